"""Runs the tests of the compiled operators under AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitize`).

The package is built into build/sanitize, with objects of its own; the extension in use is not touched.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/sanitize"
PACKAGES = FOLDER / "lib"
LIBRARY = PACKAGES / "plufg_fast/_C.abi3.so"
TESTS = [f"tests/ops/test_{stem}.py" for stem in ("cheb_step", "cheb_fused", "plap_step")]
# Emulated kernels know nothing of instruction sets, run once, and at a tenth of their speed here: of penalties and
# types of indices, which read the same memory, some are left out.
EMULATED = ["tests/simt", "-k", "not (test_parity_of_values_and_gradients and (tikhonov or nldiff or rtv or index1))"]
# What torch.compile generates is not ours, and would be built by a compiler beneath the sanitizers. With the usual
# capture by file descriptor a report would be lost with the process that it ends.
PYTEST = ["-q", "-x", "-p", "no:cacheprovider", "--disable-warnings", "--capture=sys", "-k", "not compiled_graph"]
OPTIONS = "halt_on_error=1:abort_on_error=1"  # aborted, pytest shows the Python stack as well

# Known faults: a run that cannot see them would be green for nothing.
PROBE = """
extern "C" float at(const float* x, long i) { return x[i]; }
extern "C" int twice(int x) { return x + x; }
"""
FAULTS = {
    "heap-buffer-overflow": "x = torch.ones(5); probe.at(ctypes.c_void_p(x.data_ptr()), ctypes.c_long(5))",
    "signed integer overflow": "probe.twice(2**31 - 1)",
}

# pytest in the process that has looked at what it loaded: another copy of the package cannot come in.
RUN = """
import sys
from pathlib import Path
import pytest
import plufg_fast
import plufg_fast._C as compiled

library, isa, *arguments = sys.argv[1:]
assert plufg_fast.extension.loaded(), plufg_fast.extension.why_not()
assert compiled.__file__ == library, f"loaded {compiled.__file__}, not {library}"
content = Path(library).read_bytes()
assert b"__asan_report_load" in content and b"__ubsan_handle_" in content, "the library is not instrumented"
if not isa:
    print(*compiled.isas)
    raise SystemExit
try:
    chosen = compiled.cpu_isa()
except RuntimeError as error:
    print(f"SKIPPED sanitize on {isa}: {error}")
    raise SystemExit
assert chosen == isa
print(f"== {isa}: {library}", flush=True)
raise SystemExit(pytest.main(arguments))
"""


class Unavailable(Exception):
    """Something is missing without which nothing can be said."""


def find_compiler() -> list[str]:
    """The compiler that setup.py takes, if it is a GCC."""
    for candidate in [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++"]:
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            about = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
            if "clang" in about or sys.platform != "linux":
                raise Unavailable(f"it needs GCC on Linux, got {shlex.join(command)} on {sys.platform}")
            return command
    raise Unavailable(f"no C++ compiler (CXX={os.environ.get('CXX', '')!r})")


def find_runtime(compiler: list[str], name: str) -> str:
    """The shared library of a sanitizer, to be loaded before everything else."""
    asked = [*compiler, f"-print-file-name={name}"]
    path = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    # A compiler that does not have the file answers with its bare name.
    if path.is_absolute() and path.exists():
        content = path.read_bytes()
        if content.startswith(b"\x7fELF"):
            return str(path.resolve())
        # Some distributions put a linker script there that names the library.
        named = re.search(rb"/[\w./+-]+\.so[\w.]*", content)
        if named and Path(os.fsdecode(named[0])).exists():
            return os.fsdecode(named[0])
    raise Unavailable(f"{shlex.join(compiler)} has no {name}")


def main() -> None:
    """Build, make sure that faults are seen, and test on every instruction set that this CPU runs."""
    try:
        compiler = find_compiler()
        runtimes = [find_runtime(compiler, name) for name in ("libasan.so", "libubsan.so")]
    except Unavailable as reason:
        print(f"SKIPPED sanitize: {reason}")
        return

    # Modules that the package no longer has must not stay behind. GCC's warnings are unreliable in instrumented code.
    shutil.rmtree(PACKAGES, ignore_errors=True)
    build = [sys.executable, "setup.py", "-q", "build", "--build-lib", str(PACKAGES)]
    setting = {"PLUFG_BUILD": "1", "PLUFG_SANITIZE": "1", "PLUFG_WERROR": "0"}
    subprocess.run(build, cwd=ROOT, env=os.environ | setting, check=True)

    environment = os.environ | {
        "LD_PRELOAD": ":".join(runtimes),
        # Python frees little of what it has at its end.
        "ASAN_OPTIONS": f"{OPTIONS}:detect_leaks=0:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": f"{OPTIONS}:print_stacktrace=1",
        "PYTHONPATH": str(PACKAGES),
        "OMP_NUM_THREADS": "1",  # the tests of threads choose their own numbers
        "PLUFG_SANITIZE": "1",  # for what the tests compile themselves
    }
    # Without -P the package in the source folder would come first.
    python = [sys.executable, "-P", "-c"]

    probe = FOLDER / "probe.so"
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-shared", "-fPIC", "-x", "c++", "-"]
    subprocess.run([*compiler, *flags, "-o", str(probe)], input=PROBE, text=True, check=True)
    for fault, code in FAULTS.items():
        lines = f"import ctypes, torch; probe = ctypes.CDLL({str(probe)!r}); {code}"
        done = subprocess.run([*python, lines], env=environment, capture_output=True, text=True)
        if done.returncode == 0 or fault not in done.stderr:
            raise SystemExit(f"sanitize: a deliberate {fault} was not seen: {done.stderr}")
        print(f"seen: a deliberate {fault}", flush=True)

    def run(isa: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [*python, RUN, str(LIBRARY), isa, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment | {"PLUFG_CPU_ISA": isa}, text=True, **options)

    isas = run("", stdout=subprocess.PIPE, check=True).stdout.split()
    for isa, tests in [*((isa, TESTS) for isa in isas), (isas[0], EMULATED)]:
        done = run(isa, *PYTEST, *tests)
        if done.returncode != 0:
            raise SystemExit(f"sanitize: failed on {isa}, see above")


if __name__ == "__main__":
    main()
