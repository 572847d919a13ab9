"""Build the commands of the rules and the settings of their jobs.

A job reads its settings from standard input, as a JSON object of options (``@-``). This text is a param, so Snakemake
compares it, and the digest in the job's record covers it.

Some arguments do not change the output: device, batch size, the folder of the checkout. The functions that compute them
take ``output``. Snakemake does not compare the values of such functions, so changing them reruns nothing.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..core import provenance
from ..core.checkout import INSTALLED, MODULES
from ..core.cli import as_words, is_given
from ..core.stages import STAGES
from .grid import Grid
from .nodes import computed_once, signed

# A folder in the working directory that contains only a link to the package.
_LINKED = Path(".snakemake/beirgrid/modules")


class Commands:
    """The params of all rules, and the digest of a job's params."""

    def __init__(self, grid: Grid, own_python: bool) -> None:
        """Set up for a grid. ``own_python`` is true if jobs run in this Python, false in conda environments."""
        self.grid = grid
        self.own_python = own_python
        self.python = sys.executable if own_python else "python"
        # The folder of an installed package also contains this Python's libraries, which another Python cannot load.
        self.modules = _LINKED if INSTALLED and not own_python else MODULES
        self.values: dict[str, dict[str, Any]] = {}

    def link_package(self) -> None:
        """Create the link through which Pythons of conda environments import an installed package."""
        link = self.modules / "beirgrid"
        if self.modules == _LINKED and not link.exists():
            link.unlink(missing_ok=True)  # the link of a removed package
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(MODULES / "beirgrid", target_is_directory=True)

    def __call__(
        self, rule: str, *groups: Callable[[Any], Mapping[str, Any]], files: Any = None, **options: Any
    ) -> dict[str, Any]:
        """Return the params of a rule, as Snakemake's directive takes them.

        Args:
            groups: functions of the wildcards that return options by name.
            files: state of local files that are not inputs, or a function of the wildcards that returns it.
            options: options of the command that change its output: constants, or functions of the wildcards.
        """

        def settings(wildcards: Any) -> str:
            found = {name: _value(option, wildcards) for name, option in options.items()}
            for group in groups:
                found |= group(wildcards)
            return json.dumps({name: value for name, value in found.items() if is_given(value)})

        values = {"version": STAGES[rule].version, "settings": computed_once(settings)} | (
            {} if files is None else {"files": files}
        )
        self.values[rule] = values
        return {**values, "beirgrid": signed(partial(self.start, rule))}

    def neural(self, rule: str, *groups: Callable[[Any], Mapping[str, Any]], **options: Any) -> dict[str, Any]:
        """Return the params of a rule that runs a model: its precision (by default the grid's) and its device."""
        config = self.grid.config
        compute = ["--batch-tokens", config.encode.batch_tokens.model_dump_json(), "--kernels", config.kernels]

        def reached(wildcards: Any, output: Any) -> list[str]:
            if endpoint := self.grid.endpoint(dict(wildcards.items())):
                return ["--device", "cpu", *compute, "--connection", json.dumps(endpoint.connection())]
            return ["--device", config.device, *compute]

        params = self(rule, *groups, **{"precision": config.encode.precision, **options})
        return params | {"compute": signed(reached)}

    def start(self, rule: str, wildcards: Any, output: Any) -> str:
        """Return the start of a job's command: it imports this checkout's package, and nothing from the working
        directory.
        """
        python = f"PYTHONSAFEPATH=1 PYTHONPATH={shlex.quote(str(self.modules))} {shlex.quote(self.python)}"
        return f"{python} -m beirgrid --settings {self.digest(rule, wildcards)}"

    def rule_of(self, rule: Any) -> str | None:
        """Map a Snakemake rule to its name in this workflow; None for a rule of another workflow.

        A workflow that uses this one as a module renames its rules, and may have rules of its own.
        """
        start = rule.params.get("beirgrid")
        return start.args[0] if isinstance(start, partial) and start.func == self.start else None

    def asked(self, rule: str, wildcards: Any) -> dict[str, Any]:
        """Return the params of a job that change its output."""
        return {name: _value(value, wildcards) for name, value in self.values[rule].items()}

    def digest(self, rule: str, wildcards: Any) -> str:
        """Return the digest of a job's params, which its record keeps and aggregate compares."""
        return provenance.digest(self.asked(rule, wildcards))


def _value(value: Any, wildcards: Any) -> Any:
    return value(wildcards) if callable(value) else value


def given(*names: str) -> Callable[[Any, Any], list[str]]:
    """Return a param function that passes optional inputs as options of the same name."""

    def options(wildcards: Any, input: Any) -> list[str]:  # Snakemake passes it by this name
        found = {name: input.get(name, []) for name in names}
        return as_words({name: [files] if isinstance(files, str) else list(files) for name, files in found.items()})

    return options
