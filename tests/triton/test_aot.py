"""Every Triton kernel compiled ahead of time, for GPUs that are not there: it compiles, and it does not spill."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

import triton_aot as aot  # noqa: E402
import triton_forms  # noqa: E402

from plufg_fast.ops import triton_rows  # noqa: E402

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
