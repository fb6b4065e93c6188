"""Builds plufg_fast/_C.abi3.so: CPU kernels once per instruction set and, where nvcc is found, CUDA kernels.

What the build reads from the environment:
  PLUFG_BUILD=0            leave the extension out; =1: fail where there is no compiler for it
  PLUFG_CUDA=0|1           without / with CUDA kernels, whether or not nvcc is found
  PLUFG_CUDA_ARCHS=80;90   GPU architectures; the last one is added as PTX for later ones
  PLUFG_WERROR=1           strict warnings, each of them an error
  PLUFG_SANITIZE=1         with AddressSanitizer and UndefinedBehaviorSanitizer, without CUDA (make sanitize)
  CXX, CXXFLAGS, CUDA_HOME, MAX_JOBS   as everywhere
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SANITIZE = os.environ.get("PLUFG_SANITIZE") == "1"
# A folder of its own: an editable install gets a fresh temporary one and would compile everything again.
OBJECTS = Path("build/sanitize" if SANITIZE else "build/ext")
DEFAULT_ARCHS = "80;90;100"
# One stem per kernel: schemas, CPU kernels and their registration are found by it.
STEMS = ("cheb", "plap")
CPU_KERNELS = ("cheb", "plap_step", "plap_backward")
X86 = platform.machine().lower() in ("x86_64", "amd64")

# Every x86 object starts from the plain instruction set, whatever CXXFLAGS asks for: a wider one is chosen at
# run time.
PLAIN = ["-march=x86-64", "-mtune=generic"] if X86 else []
ISAS: dict[str, list[str]] = {"baseline": []}
if X86:
    ISAS["avx2"] = ["-mavx2", "-mfma"]
    ISAS["avx512"] = [*ISAS["avx2"], "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]

# Behind all other flags of every command: of two optimisation levels the last one counts.
SANITIZERS: list[str] = []
if SANITIZE:
    SANITIZERS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    SANITIZERS += ["-fno-omit-frame-pointer", "-g1", "-O1"]


class BuildError(SystemExit):
    """Ends the build. Of an optional extension setuptools would turn its own errors into mere warnings."""


@dataclass(frozen=True)
class Step:
    """One compiler run: what it makes, from what, and how."""

    output: Path
    command: list[str]
    inputs: list[Path]

    @property
    def record(self) -> Path:
        return self.output.with_name(self.output.name + ".cmd")

    def is_done(self) -> bool:
        """Made by this very command and newer than every file it was made from."""
        if not self.output.exists() or not self.record.exists():
            return False
        if self.record.read_text() != shlex.join(self.command):
            return False
        made = self.output.stat().st_mtime
        files = [*self.inputs, *dependencies(self.output.with_suffix(".d"))]
        return all(f.exists() and f.stat().st_mtime <= made for f in files)

    def run(self) -> None:
        if self.is_done():
            return
        self.record.unlink(missing_ok=True)
        # One write a line: several run at once.
        sys.stdout.write(shlex.join(self.command) + "\n")
        sys.stdout.flush()
        done = subprocess.run(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.stdout:
            print(done.stdout, end="", flush=True)
        if done.returncode != 0:
            raise BuildError(
                f"plufg_fast: building {self.output} failed (see above). PLUFG_BUILD=0 installs without the "
                "extension, PLUFG_CUDA=0 without its CUDA kernels."
            )
        self.record.write_text(shlex.join(self.command))


def dependencies(depfile: Path) -> list[Path]:
    """The files a make rule written by the compiler names behind its colon."""
    if not depfile.exists():
        return []
    _, _, names = depfile.read_text().replace("\\\n", " ").partition(": ")
    return [Path(name) for name in names.split()]


def package_version() -> str:
    text = (ROOT / "plufg_fast/version.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise BuildError("plufg_fast/version.py: no line that sets __version__")
    return found[1]


def find_cxx() -> list[str] | None:
    """The C++ compiler as a command, or None."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for candidate in candidates:
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            return command
    return None


def find_nvcc() -> str | None:
    """The CUDA compiler, or None where CUDA is switched off or nvcc is not there."""
    wanted = os.environ.get("PLUFG_CUDA", "")
    if wanted == "0" or SANITIZE:
        return None
    home = os.environ.get("CUDA_HOME")
    nvcc = shutil.which("nvcc", path=str(Path(home, "bin"))) if home else None
    nvcc = nvcc or shutil.which("nvcc")
    if nvcc is None and wanted == "1":
        raise BuildError("plufg_fast: PLUFG_CUDA=1, but there is no nvcc in CUDA_HOME/bin or on PATH")
    return nvcc


def find_archs(nvcc: str) -> list[str]:
    if "PLUFG_CUDA_ARCHS" not in os.environ:
        # An older toolkit does not know the newest of the defaults.
        known = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True).stdout.split()
        archs = [a for a in DEFAULT_ARCHS.split(";") if f"compute_{a}" in known]
        if archs:
            return archs
    archs = [a.strip() for a in os.environ.get("PLUFG_CUDA_ARCHS", DEFAULT_ARCHS).split(";") if a.strip()]
    if not archs or not all(re.fullmatch(r"\d{2,3}[af]?", a) for a in archs):
        given = os.environ["PLUFG_CUDA_ARCHS"]
        raise BuildError(f"plufg_fast: PLUFG_CUDA_ARCHS must be a list such as 80;90, got {given!r}")
    return archs


def find_torch() -> tuple[Path, str]:
    """Where torch is installed and its version, without the seconds that importing it takes."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError(
            "plufg_fast: torch is not installed in this environment; install it first, then use "
            "pip install --no-build-isolation"
        )
    return Path(spec.origin).parent, importlib.metadata.version("torch")


def plan() -> tuple[list[Step], Step]:
    """The compiler runs that make the objects, in any order, and the one that links them."""
    cxx, nvcc = find_cxx(), find_nvcc()
    assert cxx is not None
    torch, torch_version = find_torch()
    archs = find_archs(nvcc) if nvcc else []
    strict = os.environ.get("PLUFG_WERROR") == "1"

    # Headers of others are system headers: their warnings are not ours. Their paths stay out of the binary.
    torch_include = ["-isystem", str(torch / "include"), "-DTORCH_TARGET_VERSION=0x020d000000000000"]
    # Dependency files leave system headers out; the version in the command makes a new torch rebuild.
    torch_include += [f'-DPLUFG_TORCH_VERSION="{torch_version}"']
    shared = ["-g0", "-fPIC", "-fvisibility=hidden", f"-ffile-prefix-map={torch.parent}=."]
    cpp = [*cxx, "-std=c++20", "-O2", *shared, *shlex.split(os.environ.get("CXXFLAGS", "")), *PLAIN]
    if strict:
        cpp += ["-Wall", "-Wextra", "-Wshadow", "-Werror"]

    def compiled(source: str, compiler: list[str], name: str = "") -> Step:
        output = OBJECTS / f"{name or source.removeprefix('csrc/').replace('/', '_')}.o"
        depfile = str(output.with_suffix(".d"))
        command = [*compiler, *SANITIZERS, "-MMD", "-MF", depfile, "-c", source, "-o", str(output)]
        return Step(output, command, [Path(source)])

    facts = [
        "-DPy_LIMITED_API=0x030b0000",
        f'-DPLUFG_VERSION="{package_version()}"',
        f'-DPLUFG_TORCH_VERSION="{torch_version}"',
        f'-DPLUFG_CUDA_ARCHS="{";".join(archs)}"',
    ]
    objects = [
        compiled("csrc/ops/allocate.cpp", [*cpp, *torch_include]),
        compiled("csrc/ops/arguments.cpp", [*cpp, *torch_include]),
        compiled("csrc/cpu/isa.cpp", cpp),
        compiled("csrc/cpu/scratch.cpp", cpp),
        compiled("csrc/module.cpp", [*cpp, "-isystem", sysconfig.get_paths()["include"], *facts]),
    ]
    for stem in STEMS:
        for source in (f"csrc/ops/{stem}.cpp", f"csrc/cpu/{stem}_ops.cpp"):
            objects.append(compiled(source, [*cpp, *torch_include]))
    for isa, flags in ISAS.items():
        # Square roots set no errno and comparisons trap nowhere here: loops over them become vectors.
        fast = [*cpp, "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", *flags]
        for kernel in CPU_KERNELS:
            objects.append(compiled(f"csrc/cpu/{kernel}.cpp", [*fast, f"-DPLUFG_ISA={isa}"], f"{isa}_{kernel}"))

    link = [*cxx, "-shared", *SANITIZERS]
    if nvcc:
        # The compiler alone, without a launcher before it or options behind it: nvcc takes a program.
        program = [word for word in cxx if not word.startswith("-")][-1]
        host = [nvcc, "-ccbin", program]
        cu = [*host, "-std=c++20", "-O3", "-Xcompiler", ",".join(shared), *torch_include]
        for arch in archs:
            cu += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
        cu += ["-gencode", f"arch=compute_{archs[-1]},code=compute_{archs[-1]}"]
        if strict:
            # nvcc's own stubs have unused parameters.
            cu += ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Wno-unused-parameter"]
        # First of all: nothing else takes as long.
        objects = [compiled(f"csrc/cuda/{name}.cu", cu) for name in ("plap_backward", "plap", "cheb")] + objects
        # CUDA's runtime is linked in statically: the file must load where there is no GPU and no driver.
        link = [*host, "-shared", "-cudart", "static", "--no-device-link"]

    # torch is loaded before this file, so no run path is needed; naming its library binds the symbols to it.
    made = [step.output for step in objects]
    output = OBJECTS / "_C.abi3.so"
    link += [*map(str, made), f"-L{torch / 'lib'}", "-ltorch_cpu", "-o", str(output)]
    if sys.platform == "linux":
        link += ["-Xlinker", "--exclude-libs", "-Xlinker", "ALL"]
    elif sys.platform == "darwin":
        link += ["-undefined", "dynamic_lookup"]
    return objects, Step(output, link, made)


class BuildExtension(build_ext):
    """Compiles one source several times with different flags, which setuptools' own step cannot."""

    def run(self) -> None:
        # An editable installation is one in place, too.
        if SANITIZE and self.inplace:
            raise BuildError(
                "plufg_fast: built with PLUFG_SANITIZE=1 the extension only loads beneath the sanitizers' runtime and "
                "may not replace the one in the source folder; use make sanitize, or name a --build-lib"
            )
        super().run()

    def build_extension(self, ext: Extension) -> None:
        if find_cxx() is None or os.name != "posix":
            message = (
                f"plufg_fast: no usable C++ compiler (CXX={os.environ.get('CXX', '')!r}); installing without "
                "the compiled extension, the slower reference path will serve"
            )
            if os.environ.get("PLUFG_BUILD") == "1":
                raise BuildError(message)
            print(f"WARNING: {message}", file=sys.stderr, flush=True)
            return
        os.chdir(ROOT)
        OBJECTS.mkdir(parents=True, exist_ok=True)
        objects, link = plan()
        with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS", os.cpu_count() or 1))) as pool:
            try:
                for finished in [pool.submit(step.run) for step in objects]:
                    finished.result()
            except BuildError:
                pool.shutdown(cancel_futures=True)
                raise
        link.run()
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        # A new file instead of new contents: a process that has the old one loaded must not see it change.
        target.unlink(missing_ok=True)
        shutil.copy2(link.output, target)


extensions = [
    Extension(
        "plufg_fast._C",
        sources=["csrc/module.cpp"],  # BuildExtension has its own list; MANIFEST.in ships all of csrc
        py_limited_api=True,
        optional=True,
    )
]

setup(
    ext_modules=[] if os.environ.get("PLUFG_BUILD") == "0" else extensions,
    cmdclass={"build_ext": BuildExtension},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
