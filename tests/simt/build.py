"""Compiles the libraries of this folder: the emulation with its own tests, and with the kernels of csrc/cuda."""

import fcntl
import hashlib
import importlib.util
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
BUILT = ROOT / "build/simt"
FLAGS = ["-std=c++20", "-O1", "-g1", "-fPIC", "-shared", "-fvisibility=hidden"]
FLAGS += ["-Wall", "-Wextra", "-Wshadow", "-Wno-unknown-pragmas"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The emulation reads ELF files and needs GCC's sanitizers: it takes the compiler that `make sanitize` takes.
sanitize = load("sanitize", ROOT / ".ci/sanitize.py")
Unavailable = sanitize.Unavailable


def build(stem: str, *extra: str, sanitized: bool | None = None) -> Path:
    """The library made from `<stem>.cpp`, compiled if anything it is made from has changed."""
    if sanitized is None:
        sanitized = os.environ.get("PLUFG_SANITIZE") == "1"
    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").exists():
        raise Unavailable(f"no Python.h in {python}")
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    # torch brings pybind11 along, and what the operators are made of.
    folder = Path(torch.origin).parent
    headers = ["-isystem", str(folder / "include"), "-isystem", str(python)]
    headers += ["-DTORCH_TARGET_VERSION=0x020d000000000000"]
    command = [
        *sanitize.find_compiler(),
        *FLAGS,
        *extra,
        *(SANITIZERS if sanitized else []),
        *headers,
        str(FOLDER / f"{stem}.cpp"),
    ]
    if stem == "kernels":  # the others are loaded without torch
        command += [f"-L{folder / 'lib'}", "-ltorch_cpu"]
    if os.environ.get("PLUFG_WERROR") == "1" and not sanitized:  # warnings are unreliable in instrumented code
        command.append("-Werror")

    # The compiler itself is not to run beneath a sanitizer.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    version = subprocess.run([command[0], "--version"], capture_output=True, env=environment).stdout
    key = hashlib.sha256(shlex.join(command).encode() + version)
    sources = [path for pattern in ("*.cpp", "*.h", "*.cuh") for path in FOLDER.glob(pattern)]
    sources += [path for path in (ROOT / "csrc").rglob("*") if path.is_file()]
    for source in sorted(sources):
        key.update(source.name.encode() + source.read_bytes())

    output = BUILT / "-".join([stem, *(flag.strip("-") for flag in extra), *(["sanitized"] if sanitized else [])])
    output.mkdir(parents=True, exist_ok=True)
    record, library = output / "key", output / f"{stem}.so"
    # Workers of pytest-xdist ask at the same time: one compiles, the others wait.
    with (output / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists() or record.read_text() != key.hexdigest():
            record.unlink(missing_ok=True)
            # A new file: a process that has the old one loaded must not see it change.
            library.unlink(missing_ok=True)
            done = subprocess.run([*command, "-o", str(library)], env=environment, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")
            record.write_text(key.hexdigest())
    return library
