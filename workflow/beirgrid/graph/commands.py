"""The commands of the rules: how a job starts its stage, the digest of its settings, and arguments in files.

Some arguments change no output: device, batch size, the folder of the checkout. The functions that compute them take
``output``. Snakemake does not compare the values of such functions, so a change reruns nothing.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path
from typing import Any

from ..core import files, provenance
from ..core.checkout import INSTALLED, MODULES
from ..core.stages import STAGES
from .grid import Grid

# Files of arguments, in the working directory, beside what Snakemake keeps there.
ARGUMENTS = Path(".snakemake/beirgrid")
# A folder with a link to the package and nothing else to import.
_LINKED = ARGUMENTS / "modules"


def in_file(*arguments: str) -> str:
    """Write arguments to a file, one per line, and return ``@`` and its path; return "" for no arguments.

    The content gives the file its name, so other arguments are another value of a rule's param.
    """
    if not arguments:
        return ""
    text = "".join(f"{argument}\n" for argument in arguments)
    assert text.splitlines() == list(arguments), "an argument with a line break does not fit on a line"
    path = ARGUMENTS / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.args"
    if not path.exists():
        with files.atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return f"@{path}"


class Commands:
    """The params that every rule has, and the settings of each rule's jobs."""

    def __init__(self, grid: Grid, own_python: bool) -> None:
        """Take the grid, and whether jobs run with this Python: those in conda environments have their own."""
        self.grid = grid
        self.own_python = own_python
        self.python = sys.executable if own_python else "python"
        # Beside an installed package are the libraries of this Python, which another Python cannot load.
        self.modules = _LINKED if INSTALLED and not own_python else MODULES
        self.values: dict[str, dict[str, Any]] = {}

    def link_package(self) -> None:
        """Make the link through which the Pythons of conda environments import an installed package."""
        link = self.modules / "beirgrid"
        if self.modules == _LINKED and not link.exists():
            link.unlink(missing_ok=True)  # of a package that is gone
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(MODULES / "beirgrid", target_is_directory=True)

    def __call__(self, rule: str, **values: Any) -> dict[str, Any]:
        """Return the params of a rule, as Snakemake's directive takes them.

        Args:
            rule: name of the rule.
            values: what its output depends on beside its inputs: constants, or functions of the wildcards.
        """
        values = {"version": STAGES[rule].version, **values}
        self.values[rule] = values
        return {**values, "beirgrid": lambda wildcards, output: self.start(rule, wildcards)}

    def neural(self, rule: str, **values: Any) -> dict[str, Any]:
        """Return the params of a rule that runs a model: its precision, if not its own that of all, and its device."""
        config = self.grid.config
        options = ["--device", config.device, "--batch-tokens", config.encode.batch_tokens.model_dump_json()]
        params = self(rule, **{"precision": config.encode.precision, **values})
        return params | {"compute": lambda wildcards, output: options}

    def fetch(self, rule: str, **values: Any) -> dict[str, Any]:
        """Return the params of a rule that fetches a collection: the mirror that it may take files from."""
        mirror = self.grid.config.mirror
        options = ["--mirror", mirror] if mirror else []
        return self(rule, **values) | {"mirror": lambda wildcards, output: options}

    def start(self, rule: str, wildcards: Any) -> str:
        """Return how a job starts: this checkout's package, and no modules from the working directory."""
        python = f"PYTHONSAFEPATH=1 PYTHONPATH={shlex.quote(str(self.modules))} {shlex.quote(self.python)}"
        return f"{python} -m beirgrid --settings {self.digest(rule, wildcards)}"

    def known(self, rule: str) -> str | None:
        """Return a rule's own name, without the prefix that it has where the workflow is used as a module."""
        return max((name for name in self.values if f"_{rule}".endswith(f"_{name}")), key=len, default=None)

    def digest(self, rule: str, wildcards: Any) -> str:
        """Return the digest of a job's params. Its record keeps the digest, and aggregate compares it."""
        params = self.values[self.known(rule) or rule]
        values = {name: value(wildcards) if callable(value) else value for name, value in params.items()}
        return provenance.digest(values)
