"""Every Triton kernel compiled ahead of time, for GPUs that are not there: it compiles, and it does not spill."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

import torch  # noqa: E402
import triton_aot as aot  # noqa: E402
import triton_forms  # noqa: E402
from triton.runtime.autotuner import Autotuner  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from plufg_fast import Graph  # noqa: E402
from plufg_fast.ops import cheb, triton_rows  # noqa: E402

NVIDIA = [target for target in aot.TARGETS if target.startswith("sm_")]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "triton.md"


@pytest.fixture(scope="module", autouse=True)
def _fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that an earlier run has compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("target", NVIDIA)
@pytest.mark.parametrize("name", triton_forms.KERNELS)
def test_every_storage_type_and_width_compiles_and_the_table_is_right(name: str, target: str) -> None:
    lines = dict(re.findall(r"^\| (`\w+` \| \w+ \| \d+) \| (.*) \|$", DOCS.read_text(), re.MULTILINE))
    for _, kind, width in (row for row in aot.rows() if row[0] == name):
        used = aot.usage(aot.build(name, aot.fullest(name, width), target, kind, width))
        assert width > 128 or used[1] == 0, (kind, width, used)
        # Other versions of Triton use other registers.
        if f"Triton {triton.__version__}" in DOCS.read_text():
            written = lines[f"`{name}` | {kind} | {width}"].split(" | ")[NVIDIA.index(target)]
            assert written == "{}, {}".format(*used), (kind, width)


@pytest.mark.parametrize("target", aot.TARGETS)
@pytest.mark.parametrize("name", triton_forms.KERNELS)
def test_every_form_compiles_with_either_index(name: str, target: str) -> None:
    for at, form in enumerate(aot.covering(name)):
        compiled = aot.build(name, form, target, index=("i32", "i64")[at % 2])
        if target in NVIDIA:
            assert aot.usage(compiled)[1] == 0, form
        else:
            assert len(compiled.asm["hsaco"]) > 0


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("degree", [2**k for k in range(12)])
def test_there_is_a_configuration_for_every_width_and_degree(degree: int, size: int) -> None:
    for width in (1, 2, 4, 8, 16, 32, 64, 128):
        blocks = [config.kwargs["BLOCK_E"] for config in triton_rows.suitable(width, degree, size)]
        assert blocks
        assert max(blocks) <= max(degree, 4)
        assert all(triton_rows.LIMIT % block == 0 for block in blocks)


class Device:
    """As much of a GPU as a launch asks for before it starts a kernel."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return aot.TARGETS["sm_90"]


def test_operators_launch_kernels_that_compile_for_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a call but its kernels, which are compiled for the very arguments and not started."""
    launched, run = [], JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        compiled = run(self, *args, grid=grid, warmup=True, **options)
        launched.append((compiled.metadata.name, options["WINDOW"], compiled.src.signature))

    monkeypatch.setattr(JITFunction, "run", compile_only)
    monkeypatch.setattr(Autotuner, "_bench", lambda self, *args, config, **options: [config.num_warps] * 3)
    # A row of more than one window, and nodes that do not send back.
    nodes = triton_rows.LIMIT + 2
    g = Graph(torch.stack((torch.arange(nodes), torch.zeros(nodes, dtype=torch.int64))))
    t, (_, dinv, _) = g.transpose(), g.values(torch.float64)
    arrays = (g.rowptr, g.col, None, t.rowptr, t.col, None, dinv)
    f, p = torch.zeros(nodes, 2, 130, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    x, weights = torch.zeros(nodes, 5, dtype=torch.bfloat16), torch.ones(2, 3)
    kernels = torch.ops.plufg_triton
    monkeypatch.setattr(triton.runtime.driver, "_active", Device())
    kept = kernels.plap_step(f, f, *arrays, p, p, 0.1, 3, 0.5)
    kernels.plap_step_backward(f, f, *kept, *arrays, p, 0.1, 3, 0.5, True)
    kernels.cheb_analysis(x, *cheb.laplacian(g, torch.float32), weights, [0.1] * 6)
    # Both directions of the derivative have windows, and both steps of the recurrence.
    windows = [(name, window) for name, window, _ in launched]
    for name, times in {"norms": 1, "step": 1, "dots": 2, "gradient": 2, "recur": 2}.items():
        assert [windows.count((name, window)) for window in (True, False)] == [times, times], name
    for name, _, signature in launched:
        # Numbers of Python are as precise as the kernel computes.
        assert signature["alpha" if name == "recur" else "eps"] == "fp64"
        assert signature["owner"] == "*i64"
    assert [signature["x"] for name, _, signature in launched if name == "recur"] == ["*bf16"] * 2 + ["*fp32"] * 2
