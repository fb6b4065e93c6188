"""Installs a wheel into a new environment, away from the source tree, and uses it there.

The new environment borrows what the wheel depends on from the environment that runs this script, so that
nothing is downloaded; the package itself comes from the wheel alone, which is checked.
"""

import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

USE = """
import sys
import torch
import plufg_fast
from plufg_fast import extension

assert extension.loaded(), extension.why_not()
for module in (plufg_fast, sys.modules["plufg_fast._C"]):
    assert module.__file__.startswith(sys.prefix), f"imported {module.__file__}, not the wheel's"

# A path of three nodes: row pointers, columns; undirected, so it is its own transpose.
rowptr, col = torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1])
dense = torch.tensor([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=torch.float64)
x = torch.randn(3, 5, dtype=torch.float64)
out = torch.ops.plufg.cheb_step(x, x, rowptr, col, None, rowptr, col, None, None, None, None, 2.0, 0.5, -1.0)
torch.testing.assert_close(out, 2 * (x - dense @ x) + 0.5 * x - x)
print("cheb_step of the wheel agrees with the dense product")
"""


def main(wheel: Path) -> None:
    """Install `wheel` and use it."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False)
        python = str(Path(folder, "bin/python"))

        def run(*command: str) -> None:
            print("+", *(part if "\n" not in part else "..." for part in command), flush=True)
            subprocess.run(command, cwd=folder, check=True)

        run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", str(wheel.resolve()))
        paths = sysconfig.get_paths(vars={"base": folder, "platbase": folder})
        # A plain line is a further folder to search, after the environment's own. An editable installation
        # that lives there is started by a .pth file of its own, which is not read from here.
        Path(paths["purelib"], "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        run(python, "-I", "-W", "error::UserWarning", "-c", USE)
        run(str(Path(folder, "bin/plufg")), "info")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
