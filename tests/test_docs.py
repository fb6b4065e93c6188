"""Code that the pages quote is the code that there is, their links lead somewhere, and their commands exist."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from plufg_fast.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(ROOT / "plufg_fast").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
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
        for page in PAGES
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert not missing


def test_commands_and_their_options_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    written, wrong = 0, []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        # In blocks of code a line each, what explains it behind two spaces; and within text.
        blocks = "\n".join(re.findall(r"```\n(.*?)```", text, re.DOTALL))
        lines = re.findall(r"^plufg (\S.*?)(?:  |$)", blocks, re.MULTILINE)
        lines += [
            " ".join(line.split())
            for line in re.findall(r"`plufg ([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        ]
        for line in lines:
            name, *words = shlex.split(line, comments=True)
            known = {option for item in commands[name].params for option in (*item.opts, *item.secondary_opts)}
            wrong += [
                (page.name, line, word) for word in words if word.startswith("-") and word not in known | {"--help"}
            ]
            written += 1
    assert written > 30
    assert not wrong
