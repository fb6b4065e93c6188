"""Compiles the Triton kernels for GPUs that need not be there; as a program it prints the table of docs/triton.md."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton_forms import KERNELS, SCALES, Form, forms

from plufg_fast.ops import triton_rows

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
TARGETS = {f"sm_{arch}": GPUTarget("cuda", arch, 32) for arch in (80, 90, 100)} | {
    "gfx942": GPUTarget("hip", "gfx942", 64)
}
# Storage and the precision that is computed in.
TYPES = {"fp32": "fp32", "bf16": "fp32", "fp16": "fp32", "fp64": "fp64"}
WIDTHS = (32, 128, 256)
# Arguments of the type of a signal; `z` is one in the Chebyshev kernel alone, which has no `bands` that is a number.
SIGNALS = {"f", "y", "grad", "out", "df", "x"}
NUMBERS = {"bands", "channels", "groups", "filters", "terms", "k", "degree"}


def fullest(name: str, width: int) -> Form:
    """The form of a kernel that has most at hand."""
    form = dict.fromkeys((*KERNELS[name][1], *KERNELS[name][2]), True) | {"WINDOW": False}
    if name == "recur":
        return form | {"z": False, "first": False}
    if name == "gradient":
        form |= {"dp": False, "before": False}
    return form | {"square": width > triton_rows.TILE}


def build(name: str, form: Form, target: str, kind: str = "fp32", width: int = 32, index: str = "i32") -> Any:
    """A kernel compiled for rows of many edges, with as much of a tile per thread as there is a configuration for."""
    work, tile = TYPES[kind], triton_rows.tile_of(width)
    candidates = triton_rows.suitable(tile, 64, 8 if work == "fp64" else 4)
    config = max(candidates, key=lambda config: (config.kwargs["BLOCK_E"] / config.num_warps, config.num_warps))
    signals = SIGNALS | ({"z", "bands"} if name == "recur" else set())
    numbers = NUMBERS - signals
    values = form | config.kwargs | {"BLOCK_C": tile, "LIMIT": triton_rows.LIMIT}

    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes = {}
    function = KERNELS[name][0].fn
    for at, parameter in enumerate(function.params):
        key = parameter.name
        if parameter.is_constexpr:
            signature[key], constants[key] = "constexpr", values[key]
        elif not form.get("z" if key == "t" else key, True):
            signature[key], constants[key] = "constexpr", None
        elif parameter.annotation_type or key in numbers:
            signature[key] = parameter.annotation_type or "i32"
        else:
            fixed = {"rowptr": index, "col": index, "owner": "i64"}
            signature[key] = "*" + fixed.get(key, kind if key in signals else work)
            attributes[(at,)] = [["tt.divisibility", 16]]
    source = ASTSource(function, signature, constants, attributes)
    return triton.compile(source, target=TARGETS[target], options={"num_warps": config.num_warps})


def usage(compiled: Any) -> tuple[int, int]:
    """Registers of a thread, and the bytes that it spills to its stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        done = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True)
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", done.stdout)[0]
    return int(registers), int(stack)


def widths(name: str) -> tuple[int, ...]:
    """The classes of width that a kernel tells apart."""
    return tuple(width for width in WIDTHS if name != "recur" or width <= triton_rows.TILE)


def rows() -> list[tuple[str, str, int]]:
    """Kernel, storage and width of every line of the table."""
    return [(name, kind, width) for name in KERNELS for kind in TYPES for width in widths(name)]


def covering(name: str) -> list[Form]:
    """A few forms of a kernel that have, for windows and for rows, every value of every flag."""
    left = {(key, form[key], form["WINDOW"]) for form in forms(name) for key in form}
    chosen = []
    while left:
        best = max(forms(name), key=lambda form: len(left & {(key, form[key], form["WINDOW"]) for key in form}))
        left -= {(key, best[key], best["WINDOW"]) for key in best}
        chosen.append(best | (dict.fromkeys(SCALES, len(chosen) % 2 == 0) if name == "recur" else {}))
    return chosen


def main() -> None:
    """Print the table."""
    columns = [target for target in TARGETS if target.startswith("sm")]
    print("| kernel | storage | channels |", " | ".join(columns), "|")
    print("|---|---|---|" + "---|" * len(columns))
    for name, kind, width in rows():
        used = [usage(build(name, fullest(name, width), target, kind, width)) for target in columns]
        cells = " | ".join(f"{registers}, {stack}" for registers, stack in used)
        print(f"| `{name}` | {kind} | {width} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
