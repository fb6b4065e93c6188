"""Code that the docs quote is the code that there is."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "kernels.md").read_text(encoding="utf-8")
# The text before a block of code, and the block.
QUOTES = re.findall(r"((?:(?!```).)*)```(?:python|cpp)\n(.*?)```", TEXT, re.DOTALL)


def test_every_version_is_quoted() -> None:
    quoted = " ".join(path for before, _ in QUOTES for path in re.findall(r"\]\(\.\./(.*?)\)", before))
    assert all(part in quoted for part in ("reference.py", "csrc/cpu", "csrc/cuda", "plap/triton.py"))


@pytest.mark.parametrize(("before", "code"), QUOTES, ids=range(len(QUOTES)))
def test_quoted_code_is_in_its_source(before: str, code: str) -> None:
    path = re.findall(r"\]\(\.\./(.*?)\)", before)[-1]
    source = [line.strip() for line in (DOCS.parent / path).read_text(encoding="utf-8").splitlines()]
    at = 0
    # Parts between dots, each as it stands there but for its indentation, and in this order.
    for part in re.split(r"^\.\.\.\n", code, flags=re.MULTILINE):
        lines = [line.strip() for line in part.splitlines()]
        found = [k for k in range(at, len(source) - len(lines) + 1) if source[k : k + len(lines)] == lines]
        assert found, f"{path} does not have:\n{part}"
        at = found[0] + len(lines)


def test_links_lead_somewhere() -> None:
    missing = [
        (page.name, link)
        for page in DOCS.glob("*.md")
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8"))
        if not (DOCS / link).exists()
    ]
    assert not missing
