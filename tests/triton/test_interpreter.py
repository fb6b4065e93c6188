"""Runs the tests of `interpreted`, where Triton's interpreter takes the place of a GPU, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
FOLDER = Path(__file__).with_name("interpreted")


@pytest.mark.parametrize("family", ["plap", "cheb"])
def test_parity_of_all_kernels_in_the_interpreter(family: str) -> None:
    # The interpreter is chosen once per process, when Triton is imported.
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--show-capture=no", "--tb=short"]
    done = subprocess.run([*command, FOLDER / f"test_{family}.py"], env=environment, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
