"""Arguments that are too long for a command line: they travel in a file, which the command names as ``@file``."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..core import files

# In the working directory, beside what Snakemake keeps there. Each start of Snakemake writes what is missing.
FOLDER = Path(".snakemake/beirgrid")


def in_file(*arguments: str) -> str:
    """Write arguments to a file, one per line, and return ``@`` and its path; return "" for no arguments.

    The content gives the file its name, so other arguments are another value of a rule's param.
    """
    if not arguments:
        return ""
    text = "".join(f"{argument}\n" for argument in arguments)
    assert text.splitlines() == list(arguments), "an argument with a line break does not fit on a line"
    path = FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.args"
    if not path.exists():
        with files.atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return f"@{path}"
