"""The parity tests of the CPU kernels again, on every instruction set that is compiled in and that this CPU runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plufg_fast import extension

pytestmark = pytest.mark.skipif(not extension.loaded(), reason=f"no extension: {extension.why_not()}")
FILES = ("test_cheb_step.py", "test_cheb_fused.py", "test_plap_step.py")
KERNELS = [str(Path(__file__).with_name(name)) for name in FILES]


@pytest.mark.parametrize("isa", extension.info()["cpu_isa"]["compiled"])
def test_parity_on_every_instruction_set(isa: str) -> None:
    # The choice is made once per process.
    environment = os.environ | {"PLUFG_CPU_ISA": isa}
    asked = [sys.executable, "-c", "import plufg_fast._C as c; print(c.cpu_isa())"]
    chosen = subprocess.run(asked, env=environment, capture_output=True, text=True)
    if "PLUFG_CPU_ISA must name" in chosen.stderr:
        pytest.skip(f"this CPU does not run {isa}")
    assert chosen.stdout.split() == [isa], chosen.stderr
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "parity"]
    done = subprocess.run([*command, *KERNELS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
