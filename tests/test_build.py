"""What `setup.py` does where there is no compiler, and what it makes where there is one."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from plufg_fast import extension

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not a source tree")


@pytest.fixture
def tree(tmp_path):
    """A copy of what a build reads, so that it neither sees nor changes what was built here."""
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "plufg_fast", tmp_path / "plufg_fast", ignore=ignore)
    return tmp_path


def run_setup(tree: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PLUFG_") and k not in ("CXX", "CXXFLAGS")}
    command = [sys.executable, "setup.py", *arguments]
    return subprocess.run(command, cwd=tree, env=clean | env, capture_output=True, text=True)


def wheel_contents(tree: Path) -> tuple[str, list[str]]:
    (wheel,) = (tree / "dist").glob("*.whl")
    return wheel.name, zipfile.ZipFile(wheel).namelist()


def test_without_compiler_the_build_succeeds_with_one_warning(tree):
    done = run_setup(tree, "bdist_wheel", CC="/nonexistent", CXX="/nonexistent/c++")
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING: plufg_fast")]
    assert len(warnings) == 1
    assert "/nonexistent/c++" in warnings[0]
    _, names = wheel_contents(tree)
    assert "plufg_fast/extension.py" in names
    assert not any(name.endswith(".so") for name in names)


def test_without_compiler_a_demanded_extension_fails_the_build(tree):
    done = run_setup(tree, "build_ext", CXX="/nonexistent/c++", PLUFG_BUILD="1")
    assert done.returncode != 0
    assert "no usable C++ compiler" in done.stderr


def test_without_extension_on_purpose_the_wheel_is_pure(tree):
    done = run_setup(tree, "bdist_wheel", PLUFG_BUILD="0")
    assert done.returncode == 0, done.stderr
    assert "WARNING: plufg_fast" not in done.stderr
    name, names = wheel_contents(tree)
    assert name.endswith("-py3-none-any.whl")
    assert not any(n.endswith(".so") for n in names)


def test_a_source_that_does_not_compile_fails_the_build_and_says_what_to_do(tree):
    (tree / "csrc/module.cpp").write_text("this is not C++\n")
    done = run_setup(tree, "build_ext", PLUFG_CUDA="0")
    if "no usable C++ compiler" in done.stderr:
        pytest.skip("no C++ compiler")
    assert done.returncode != 0
    assert "PLUFG_BUILD=0" in done.stderr


def test_a_sanitized_extension_does_not_replace_the_one_in_use(tree):
    done = run_setup(tree, "build_ext", "--inplace", PLUFG_SANITIZE="1")
    if "no usable C++ compiler" in done.stderr:
        pytest.skip("no C++ compiler")
    assert done.returncode != 0
    assert "make sanitize" in done.stderr
    assert not list((tree / "plufg_fast").glob("*.so"))


@pytest.mark.parametrize("archs", ["sm_80", "80,90", ";"])
def test_bad_cuda_archs_are_named(tree, archs):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    done = run_setup(tree, "build_ext", PLUFG_CUDA="1", PLUFG_CUDA_ARCHS=archs)
    assert done.returncode != 0
    assert f"got {archs!r}" in done.stderr


def test_cuda_demanded_without_nvcc_fails(tree):
    folder = tree / "bin"
    folder.mkdir()
    for tool in ("c++", "g++"):
        if path := shutil.which(tool):
            (folder / tool).symlink_to(path)
    done = run_setup(tree, "build_ext", PLUFG_CUDA="1", PATH=str(folder), CUDA_HOME="/nonexistent")
    if "no usable C++ compiler" in done.stderr:
        pytest.skip("no C++ compiler")
    assert done.returncode != 0
    assert "there is no nvcc" in done.stderr


def test_build_is_incremental(tree):
    first = run_setup(tree, "build_ext", "--inplace", PLUFG_CUDA="0")
    if "no usable C++ compiler" in first.stderr:
        pytest.skip("no C++ compiler")
    assert first.returncode == 0, first.stdout + first.stderr
    assert (tree / "plufg_fast/_C.abi3.so").exists()

    def compiled() -> list[str]:
        done = run_setup(tree, "build_ext", "--inplace", PLUFG_CUDA="0")
        assert done.returncode == 0, done.stderr
        commands = [line.split() for line in done.stdout.splitlines() if " -c " in line]
        return sorted(command[command.index("-c") + 1] for command in commands)

    assert compiled() == []
    # A header is a reason to compile what includes it, and nothing else.
    os.utime(tree / "csrc/cpu/isa.h")
    assert compiled() == [
        "csrc/cpu/cheb_ops.cpp",
        "csrc/cpu/isa.cpp",
        "csrc/cpu/plap_ops.cpp",
        "csrc/module.cpp",
    ]
    version = tree / "plufg_fast/version.py"
    version.write_text('__version__ = "999.0"\n')
    assert compiled() == ["csrc/module.cpp"]


@pytest.fixture
def built() -> Path:
    if not extension.loaded():
        pytest.skip(f"no extension: {extension.why_not()}")
    import plufg_fast._C as compiled

    return Path(compiled.__file__)


def test_extension_keeps_to_the_stable_python_abi(built):
    audit = shutil.which("abi3audit", path=str(Path(sys.executable).parent))
    if audit is None:
        pytest.skip("abi3audit is not installed")
    command = [audit, "--strict", "--assume-minimum-abi3", "3.11", str(built)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wide_instructions_stay_in_their_own_kernels():
    """An inline function compiled for AVX and shared through the linker would crash a plain CPU."""
    isas = extension.info()["cpu_isa"]["compiled"]
    objects = [(isa, path) for isa in isas for path in sorted((ROOT / "build/ext").glob(f"{isa}_*.o"))]
    if not objects or shutil.which("nm") is None:
        pytest.skip("no objects of a build in this tree, or no nm")
    for isa, path in objects:
        symbols = subprocess.run(["nm", "-C", str(path)], capture_output=True, text=True, check=True).stdout
        shared = [line for line in symbols.splitlines() if line[17:18] in "WVu"]
        assert shared == []
        exported = [line for line in symbols.splitlines() if line[17:18] == "T"]
        assert exported
        assert all(f"plufg::{isa}::" in line for line in exported)


def test_binary_holds_no_path_of_the_building_machine(built):
    content = built.read_bytes()
    assert str(ROOT).encode() not in content
    assert sys.prefix.encode() not in content
