"""How time and memory of the p-step grow with the graph, each size in a process of its own.

A process of its own has no memory left over from other sizes, so that what a call adds shows as what the operating
system has to give. ``python -m plufg_fast.bench.scaling`` is such a process.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from .cases import Bench, Settings
from .graphs import power_law, short_count
from .results import Result, Score
from .timing import Timing, Watch, measure

EDGES: Final = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000)
QUICK_EDGES: Final = (5_000, 10_000, 20_000)
# To draw: about 13 of them stay when duplicates and self-loops are gone.
EDGES_PER_NODE: Final = 13.8
P: Final = 1.5


def scaling(settings: Settings, watch: Watch) -> Iterator[Result]:
    """Time and extra memory of the p-step, p = 1.5, from 0.1 M to 30 M edges of the same mean degree."""
    sizes = QUICK_EDGES if settings.quick else EDGES
    # In a hurry they share one process: importing torch takes longer than these graphs.
    batches = [sizes] if settings.quick else [(edges,) for edges in sizes]
    timings: list[Timing] = []
    points: list[dict[str, Any]] = []
    for batch in batches:
        name = ", ".join(map(short_count, batch)) + " edges"
        watch(name)
        try:
            measured = _in_process(batch, settings)
        except subprocess.CalledProcessError as problem:
            timings.append(Timing(name, failed=f"its process ended with code {problem.returncode}"))
            continue
        for point in measured:
            timings.append(Timing(**point.pop("timing")))
            if timings[-1].seconds:
                points.append({**point, "quartiles": timings[-1].quartiles})
    channels = settings.widths[0]
    facts = {"channels": channels, "p": P, "points": points}
    yield Result("scaling", f"power law, p = {P}, C = {channels}", facts, timings, *_judge(points))


def _judge(points: Sequence[dict[str, Any]]) -> tuple[list[Score], list[str]]:
    """The exponent of time, the memory of the largest graph, and that memory in words."""
    scores, notes = [], []
    if len(points) > 1:
        exponent = fit_exponent([point["edges"] for point in points], [point["quartiles"][1] for point in points])
        scores.append(Score("time", "edges (exponent)", exponent, exponent, exponent, "at most", 1.1))
    told = [point for point in points if point["extra_bytes"] is not None]
    if told:
        edges, extra, nodes_array, edges_array = (
            told[-1][key] for key in ("edges", "extra_bytes", "node_array_bytes", "edge_array_bytes")
        )
        arrays = extra / nodes_array
        # The result and what belongs to nodes; one array over edges would already be as large as 13.
        scores.append(Score("extra memory", "arrays over nodes and channels", arrays, arrays, arrays, "at most", 4.0))
        notes.append(
            f"A call on {short_count(edges)} edges adds {extra / 1e6:.1f} MB. An array over nodes and channels is"
            f" {nodes_array / 1e6:.1f} MB, one over edges and channels {edges_array / 1e6:.1f} MB."
        )
    return scores, notes


def fit_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The e of ``seconds ~ sizes^e``, by least squares of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _in_process(batch: Sequence[int], settings: Settings) -> list[dict[str, Any]]:
    task = json.dumps({"batch": list(batch), "settings": asdict(replace(settings, root=None))})
    done = subprocess.run([sys.executable, "-m", __name__, task], stdout=subprocess.PIPE, text=True, check=True)
    points: list[dict[str, Any]] = json.loads(done.stdout)
    return points


def measure_size(edges: int, settings: Settings) -> dict[str, Any]:
    """One point of the curve: how long a call takes, and the bytes it adds."""
    g = power_law(max(round(edges / EDGES_PER_NODE), 2), edges)
    bench = Bench.on("", g, settings.widths[0])
    step = bench.step(f"{short_count(g.num_edges)} edges", P)
    # The first call on this size, before there is memory kept from others; on a small graph what is set up once.
    Bench.on("", power_law(100, 1_000), settings.widths[0]).step("", P).run()
    extra = peak_extra_bytes(step.run)
    (timing,) = measure([step], settings.rounds, settings.budget)
    return {
        "nodes": g.num_nodes,
        "edges": g.num_edges,
        "extra_bytes": extra,
        "node_array_bytes": bench.f.numel() * bench.f.element_size(),
        "edge_array_bytes": bench.moved,
        "timing": asdict(timing),
    }


def peak_extra_bytes(run: Callable[[], Any]) -> int | None:
    """How much more memory the process held during a call than before it; None where Linux is not there to tell."""
    # glibc keeps freed memory for later calls, which would hide what this one takes: nothing from 64 kB up is kept
    # from here on, and what was kept is given back.
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        mmap_threshold = -3
        libc.mallopt(mmap_threshold, 1 << 16)
        libc.malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        before = _status("VmRSS")
        kept = run()
        peak = _status("VmHWM")
        del kept
    except OSError:
        return None
    return peak - before


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"no {field} in /proc/self/status")
    return 1024 * int(found[1])


def main(task: str) -> None:
    """What a process of its own does: measure a batch of sizes and print them as JSON."""
    wanted = json.loads(task)
    settings = Settings(**wanted["settings"])
    torch.set_num_threads(settings.threads)
    print(json.dumps([measure_size(edges, settings) for edges in wanted["batch"]]))


if __name__ == "__main__":
    main(sys.argv[1])
