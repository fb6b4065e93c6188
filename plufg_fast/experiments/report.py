"""Reports: Markdown, the same as HTML, and pictures beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #212529; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }}
th, td {{ padding: 0.2rem 0.7rem; border-bottom: 1px solid #dee2e6; white-space: nowrap; }}
tr:hover td {{ background: #f1f3f5; }}
img {{ max-width: 100%; }}
code {{ background: #f1f3f5; padding: 0.1rem 0.3rem; }}
pre code {{ display: block; padding: 0.7rem; overflow-x: auto; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""  # noqa: E501


class Report:
    """A report that grows from top to bottom.

    Args:
        title: Its headline.
        stem: Name of its files without their endings; pictures are ``<stem>-<name>.png``.
        folder: Where they go.
    """

    def __init__(self, title: str, stem: str, folder: Path) -> None:
        self.title, self.stem, self.folder = title, stem, folder
        self.parts = [f"# {title}"]

    def text(self, *paragraphs: str) -> None:
        """Paragraphs of Markdown."""
        self.parts += paragraphs

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
        """A table, whose first ``left`` columns hold text and the others numbers."""
        lines = [header, ["---" if column < left else "---:" for column in range(len(header))], *rows]
        self.parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))

    def picture(self, name: str, figure: Figure, alt: str) -> None:
        """A picture, which is written at once."""
        path = self.folder / f"{self.stem}-{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        self.parts.append(f"![{alt}]({path.name})")

    def write(self) -> Path:
        """Write Markdown and HTML; returns the path of the Markdown."""
        from markdown_it import MarkdownIt

        markdown = "\n\n".join(self.parts) + "\n"
        path = self.folder / f"{self.stem}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(markdown, encoding="utf-8")
        body = MarkdownIt("commonmark").enable("table").render(markdown)
        path.with_suffix(".html").write_text(_PAGE.format(title=self.title, body=body), encoding="utf-8")
        return path
