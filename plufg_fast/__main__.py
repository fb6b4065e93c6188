"""``python -m plufg_fast`` is ``plufg``."""

from .cli import app

if __name__ == "__main__":
    app(prog_name="plufg")
