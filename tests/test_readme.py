"""The README's examples run, and show all that there is."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example-{k + 1}" for k in range(len(EXAMPLES))])
def test_examples_run(example: str) -> None:
    names: dict[str, object] = {}
    exec(example, names)
    assert "pf" in names


def test_every_layer_and_operator_has_an_example() -> None:
    import plufg_fast as pf

    code = "\n".join(EXAMPLES)
    shown = [*pf.nn.__all__, *pf.ops.__all__]
    # What a solve reports, and the recurrence that cheb_* bring along, need no example of their own.
    missing = [name for name in shown if name not in code and name not in ("SolveInfo", "chebyshev_recurrence")]
    assert not missing


def test_environment_variables_are_those_that_the_code_reads() -> None:
    root = Path(__file__).parent.parent
    sources = [root / "setup.py", *(root / "plufg_fast").rglob("*.py"), *(root / "csrc").rglob("*.cpp")]
    read = {
        name
        for path in sources
        for name in re.findall(r"""(?:environ|getenv|envvar)\W+(?:get\W+)?(PLUFG_\w+)""", path.read_text())
    }
    assert read == set(re.findall(r"`(PLUFG_[A-Z_]+)", README))
