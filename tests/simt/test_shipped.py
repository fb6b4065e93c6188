"""What is in the built extension: every kernel has run in emulation, and on a GPU none would use its stack."""

from pathlib import Path

import plap_cases
import pytest
import torch
from cheb_cases import check_against_reference, operator, recurrence
from simt.build import ROOT, load

from plufg_fast import extension, ops

gpu_table = load("gpu_table", ROOT / ".ci/gpu_table.py")


@pytest.fixture(scope="module")
def library() -> Path:
    if not extension.loaded():
        pytest.skip(f"no extension: {extension.why_not()}")
    if not extension.info()["cuda"]["compiled_archs"]:
        pytest.skip("the extension was built without CUDA kernels (no nvcc)")
    import plufg_fast._C as compiled

    return Path(compiled.__file__)


@pytest.fixture(scope="module")
def usages(library: Path) -> dict[str, dict[str, "gpu_table.Usage"]]:
    try:
        found = gpu_table.usages(library)
    except gpu_table.Unavailable as reason:
        pytest.skip(str(reason))
    assert found
    return found


def test_every_kernel_that_is_shipped_runs_in_a_parity_test(usages, emulated, monkeypatch) -> None:
    before = emulated.launches()
    for index in (torch.int32, torch.int64):
        with monkeypatch.context() as patch:
            g = plap_cases.graph("directed_weighted_loops", index, patch, 26)
        for dtype in (torch.float32, torch.float64):
            for width in (5, 100, 130, 300):
                for penalty in ("power", "rtv"):
                    plap_cases.assert_parity(g, width, dtype, penalty)
            y = torch.randn(26, 1, 3, dtype=dtype)
            options = {"warmup": 50, "steps": 1, "tol": 1e-3, "return_info": True}
            solves = [ops.plap_solve(y, g, 1.5, 1.0, backend=b, **options) for b in ("reference", "cpp")]
            assert solves[0][1].steps == solves[1][1].steps
            for channels in (5, 33, 64):
                lap = operator("directed_weighted_loops", dtype, index)
                check_against_reference(lap, channels, 2, recurrence(3), dtype)
    ran = {name for name, count in emulated.launches().items() if count > before.get(name, 0)}
    assert set(usages) - ran == set()
    # Nor does anything run here that is not shipped: the parity tests would speak for nothing.
    assert {name for name in ran if "plufg::cuda::" in name} - set(usages) == set()


def test_no_kernel_spills_registers_or_keeps_arrays_in_memory(usages) -> None:
    stacks = {(name, arch): u.stack for name, archs in usages.items() for arch, u in archs.items() if u.stack}
    assert stacks == {}


def test_every_architecture_has_every_kernel(usages) -> None:
    archs = {f"sm_{arch}" for arch in extension.info()["cuda"]["compiled_archs"]}
    assert all(set(by_arch) == archs for by_arch in usages.values())


def test_table_in_the_docs_is_that_of_the_built_kernels(usages, library: Path) -> None:
    _, shown, _ = gpu_table.split(gpu_table.PAGE.read_text())
    try:
        version = gpu_table.nvcc_version()
    except gpu_table.Unavailable as reason:
        pytest.skip(str(reason))
    if f"nvcc {version}" not in gpu_table.PAGE.read_text():
        pytest.skip(f"the table is that of another nvcc than {version}")
    archs = tuple(f"sm_{arch}" for arch in extension.info()["cuda"]["compiled_archs"])
    if archs != gpu_table.ARCHS:
        pytest.skip(f"the table is of {gpu_table.ARCHS}, this build of {archs}")
    assert shown == gpu_table.table(library), "run .ci/gpu_table.py"
