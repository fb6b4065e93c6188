"""What ptxas made of the CUDA kernels, read from the built extension: the table in docs/gpu.md.

Run without arguments it writes the table of the extension in the source folder into the page.
"""

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/gpu.md"
LIBRARY = ROOT / "plufg_fast/_C.abi3.so"
ARCHS = ("sm_80", "sm_90", "sm_100")
BLOCK = 128  # threads, kThreads of csrc/cuda/rows.cuh
START, END = "<!-- table: .ci/gpu_table.py -->\n", "<!-- end of table -->\n"


class Unavailable(Exception):
    """A tool is missing without which the extension cannot be read."""


@dataclass(frozen=True)
class Usage:
    """Of one kernel on one architecture, in registers a thread and bytes."""

    registers: int
    stack: int  # of a thread: spilled registers, or arrays that were not kept in registers
    shared: int  # of a block


def tool(name: str) -> str:
    """A program on the PATH, or the one that comes with Triton."""
    found = shutil.which(name)
    triton = importlib.util.find_spec("triton")
    if found is None and triton is not None and triton.origin is not None:
        found = shutil.which(name, path=str(Path(triton.origin).parent / "backends/nvidia/bin"))
    if found is None:
        raise Unavailable(f"there is no {name}, neither on PATH nor in Triton")
    return found


def usages(library: Path) -> dict[str, dict[str, Usage]]:
    """By demangled name and architecture, all kernels in a library."""
    listing = subprocess.run([tool("cuobjdump"), "-res-usage", str(library)], capture_output=True, text=True).stdout
    listing = subprocess.run([tool("c++filt")], input=listing, capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[str, Usage]] = {}
    arch = name = ""
    for line in listing.splitlines():
        if at := re.match(r"arch = (\w+)", line):
            arch = at[1]
        elif at := re.match(r" Function (.*):$", line):
            name = at[1]
        elif at := re.match(r"  REG:(\d+) STACK:(\d+) SHARED:(\d+) ", line):
            found.setdefault(name, {})[arch] = Usage(*map(int, at.groups()))
    return found


def occupancy(usage: Usage, threads: int = BLOCK) -> float:
    """The part of the 64 warps of a multiprocessor that fit it; the same on all of ARCHS."""
    warps = threads // 32
    # Registers are given out to warps by 256, and to warps by four.
    fit = 65536 // (-(-usage.registers // 8) * 8 * 32) // 4 * 4
    blocks = min(32, fit // warps, 64 // warps)
    return blocks * warps / 64


def described(name: str) -> tuple[str, str, str]:
    """Kernel, type and the widths it serves, whatever the type of the indices."""
    short = re.sub(r"plufg::(cuda::)?|^void |\(.*", "", name)
    kernel, _, arguments = short.rstrip(">").partition("<")
    scalar = "float64" if "double" in arguments else "float32"
    vector = 4 if scalar == "float32" else 2
    width = "any"
    if kernel == "cheb_kernel":
        per_load, loads = map(int, arguments.split(", ")[:2])
        kernel = "cheb analysis" if "Analysis" in arguments else "cheb synthesis"
        width = f"multiple of {vector}" if per_load > 1 else "at most 32" if loads == 1 else "other"
    elif kernel in ("plap_step_kernel", "plap_backward_kernel"):
        held = int(arguments.split(", ")[-1])
        width = f"at most {held * 32 * vector}"
    elif "wide" in kernel:
        width = f"above {2 * 32 * vector}"
    kernel = kernel.removesuffix("_kernel").removesuffix("_wide").replace("_", " ")
    return kernel, scalar, width


def table(library: Path) -> str:
    """One row per kernel, type and width, of int32 and int64 indices the one that takes more registers."""
    rows: dict[tuple[str, str, str], dict[str, Usage]] = {}
    for name, by_arch in usages(library).items():
        row = rows.setdefault(described(name), {})
        for arch, usage in by_arch.items():
            other = row.get(arch, usage)
            row[arch] = max(usage, other, key=lambda u: (u.stack, u.registers))
    lines = ["| kernel | arithmetic | channels | " + " | ".join(ARCHS) + " |", "|---" * (3 + len(ARCHS)) + "|"]
    for key in sorted(rows, key=lambda k: (k[0], k[1], len(k[2]), k[2])):
        cells = []
        for arch in ARCHS:
            usage = rows[key][arch]
            threads = 32 if key[0] == "plap settle" else BLOCK
            stack = f", stack {usage.stack} B" if usage.stack else ""
            shared = f", shared {usage.shared} B" if usage.shared else ""
            cells.append(f"{usage.registers}, {occupancy(usage, threads):.0%}{stack}{shared}")
        lines.append("| " + " | ".join([*key, *cells]) + " |")
    return "\n".join(lines) + "\n"


def nvcc_version() -> str:
    """The compiler's own number, as the page names it."""
    said = subprocess.run([tool("nvcc"), "--version"], capture_output=True, text=True).stdout
    return re.findall(r"V([\d.]+)", said)[0]


def split(page: str) -> tuple[str, str, str]:
    """What stands before the table, the table, and what stands behind it."""
    before, _, rest = page.partition(START)
    inside, _, behind = rest.partition(END)
    return before, inside, behind


def main() -> None:
    """Write the table."""
    before, _, behind = split(PAGE.read_text())
    before = re.sub(r"nvcc [\d.]+", f"nvcc {nvcc_version()}", before)
    PAGE.write_text(before + START + table(LIBRARY) + END + behind)


if __name__ == "__main__":
    main()
