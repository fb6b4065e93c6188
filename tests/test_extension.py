"""The package with an extension that is missing, broken, of another version, switched off, or healthy.

Every case runs in a process of its own on a copy of the package, because an extension is loaded once.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import plufg_fast
from plufg_fast import extension
from plufg_fast.ops import backend

PACKAGE = Path(plufg_fast.__file__).parent
needs_extension = pytest.mark.skipif(not extension.loaded(), reason=f"no extension: {extension.why_not()}")

# An editable installation answers for every submodule that the copy lacks: it would put the extension back.
ALONE = """
import sys
sys.meta_path = [f for f in sys.meta_path if not getattr(f, "__module__", "").startswith("__editable__")]
"""

# Counts the package's warnings, then uses an operator: whatever the extension's state, a result must come.
USE = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
    import plufg_fast
    from plufg_fast import extension
ours = [w for w in caught if str(w.message).startswith("plufg_fast:")]
print("where", plufg_fast.__file__)
print("warnings", len(ours), *(w.category.__name__ for w in ours))
print("message", *(w.message for w in ours))
print("loaded", extension.loaded())
print("reason", extension.why_not())
print("has_op", extension.has_op("cheb_step", "cpu"), extension.has_op("cheb_step", "cuda"))
g = plufg_fast.Graph(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
x, coeffs = torch.ones(3, 2), torch.tensor([[0.0, 1.0, 0.5]])
auto = plufg_fast.ops.cheb_analysis(x, g, coeffs)
print("result", bool(auto.isfinite().all()))
try:
    plufg_fast.ops.cheb_analysis(x, g, coeffs, backend="cpp")
    print("cpp served")
except RuntimeError as error:
    print("cpp refused", error)
facts = plufg_fast.info()
print("info", facts["extension"]["loaded"], facts["backends"]["cpp"]["cpu"])
"""


@pytest.fixture
def copy(tmp_path):
    """The package without its compiled file."""
    target = tmp_path / "plufg_fast"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return target


def use(copy: Path, code: str = USE, **env: str) -> dict[str, str]:
    """Run `code` on a copy of the package; its printed lines by their first word."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PLUFG_")}
    done = subprocess.run(
        [sys.executable, "-c", ALONE + code],
        cwd=copy.parent,
        env=clean | {"PYTHONPATH": str(copy.parent)} | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    if "where" in lines:
        assert lines["where"].startswith(str(copy)), "the copy is what must be tested"
    return lines


def assert_reference_serves(lines: dict[str, str], reason: str) -> None:
    assert lines["loaded"] == "False"
    assert reason in lines["reason"]
    assert lines["has_op"] == "False False"
    assert lines["result"] == "True"
    assert lines["cpp"].startswith("refused")
    assert lines["reason"] in lines["cpp"]
    assert lines["info"] == "False []"


def test_missing_extension(copy):
    lines = use(copy)
    assert lines["warnings"] == "1 UserWarning"
    assert "pip install" in lines["message"]
    assert_reference_serves(lines, "was not built")


@pytest.mark.parametrize("content", [b"", b"this is no library"])
def test_broken_extension(copy, content):
    (copy / "_C.abi3.so").write_bytes(content)
    lines = use(copy)
    assert lines["warnings"] == "1 UserWarning"
    assert "pip install" in lines["message"]
    assert_reference_serves(lines, "cannot be loaded")


def test_extension_that_needs_something_not_installed(copy):
    # Not the same as a missing extension: the message has to name what is missing.
    (copy / "_C.py").write_text("import a_module_that_is_not_there\n")
    lines = use(copy)
    assert lines["warnings"] == "1 UserWarning"
    assert_reference_serves(lines, "a_module_that_is_not_there")


@needs_extension
def test_extension_of_another_version(copy):
    shutil.copy(PACKAGE / "_C.abi3.so", copy)
    (copy / "version.py").write_text('__version__ = "999.0"\n')
    lines = use(copy)
    assert lines["warnings"] == "1 UserWarning"
    assert "999.0" in lines["message"]
    assert_reference_serves(lines, "was built for version")


@needs_extension
def test_extension_switched_off(copy):
    shutil.copy(PACKAGE / "_C.abi3.so", copy)
    lines = use(copy, PLUFG_EXTENSION="0")
    assert lines["warnings"] == "0"
    assert_reference_serves(lines, "PLUFG_EXTENSION=0")


@needs_extension
def test_healthy_extension(copy):
    shutil.copy(PACKAGE / "_C.abi3.so", copy)
    lines = use(copy)
    assert lines["warnings"] == "0"
    assert lines["loaded"] == "True"
    assert lines["reason"] == "None"
    assert lines["has_op"].startswith("True")
    assert lines["cpp"] == "served"


@needs_extension
@pytest.mark.parametrize("value", ["sse9", "AVX2", "avx2 "])
def test_unknown_instruction_set_is_refused_not_crashed(copy, value):
    shutil.copy(PACKAGE / "_C.abi3.so", copy)
    code = """
import torch, plufg_fast
g = plufg_fast.Graph(torch.tensor([[0, 1], [1, 0]]))
for attempt in (1, 2):
    try:
        plufg_fast.ops.cheb_analysis(torch.ones(2, 2), g, torch.ones(1, 2), backend="cpp")
    except RuntimeError as error:
        print(f"attempt{attempt}", error)
print("info", plufg_fast.info()["cpu_isa"]["chosen"])
"""
    lines = use(copy, code, PLUFG_CPU_ISA=value)
    for line in ("attempt1", "attempt2", "info"):
        assert "PLUFG_CPU_ISA must name an instruction set" in lines[line]
        assert f"got '{value}'" in lines[line]


@needs_extension
def test_import_does_not_start_cuda(copy):
    shutil.copy(PACKAGE / "_C.abi3.so", copy)
    code = "import torch, plufg_fast\nprint('initialised', torch.cuda.is_initialized())"
    assert use(copy, code)["initialised"] == "False"


@pytest.mark.parametrize(("op", "device"), [("no_such_op", "cpu"), ("cheb_step", "meta"), ("cheb_step", "")])
def test_has_op_is_false_for_what_is_not_there(op, device):
    assert not extension.has_op(op, device)


@needs_extension
def test_info_describes_the_build():
    facts = plufg_fast.info()
    assert facts["version"] == plufg_fast.__version__
    assert facts["extension"] == {"loaded": True, "reason": None, "built_with_torch": torch.__version__}
    assert facts["cpu_isa"]["chosen"] in facts["cpu_isa"]["compiled"]
    assert extension.has_op("cheb_step", "cuda") == bool(facts["cuda"]["compiled_archs"])


@needs_extension
@pytest.mark.parametrize(
    ("archs", "gpu", "served"),
    [
        (["80", "90"], (7, 5), False),
        (["80", "90"], (8, 6), True),
        (["80", "90"], (12, 0), True),  # by the PTX of the last
        (["80", "100"], (9, 0), False),
        (["80", "100f"], (10, 3), True),
        (["90a", "100"], (8, 9), False),
        (["90a"], (9, 0), True),
        (["90a"], (10, 0), False),
        ([], (7, 5), True),
    ],
)
def test_a_gpu_that_the_kernels_are_not_for_is_served_by_others(monkeypatch, archs, gpu, served):
    monkeypatch.setitem(backend._OBSTACLE, ("cpp", "plap", "cuda"), None)
    monkeypatch.setattr(extension, "cuda_archs", lambda: archs)
    monkeypatch.setattr(backend, "_GPU", [gpu])
    assert (backend.choose("plap_step", "plap", "auto", "cuda") == "cpp") == served
    if not served:
        with pytest.raises(backend.BackendError, match=rf"for sm_{archs[0]}.*, this GPU is sm_{gpu[0]}{gpu[1]} "):
            backend.choose("plap_step", "plap", "cpp", "cuda")

    def traced(x):
        return x + len(backend.choose("plap_step", "plap", "auto", "cuda"))

    torch.compiler.reset()  # what was compiled for the GPU before
    x = torch.zeros(1)
    assert torch.equal(torch.compile(traced, fullgraph=True, backend="eager")(x), traced(x))
