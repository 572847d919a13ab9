"""The plan: index and search with a program of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...config.systems import command_words
from ...core import paths
from ...core.checkout import is_file
from ...graph import artifacts
from ...graph.dag import output
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import ADOPTED, Cost, Inputs, Settings, Stage


def _command_files(command: str) -> list[str]:
    """Return the files that a command names, except a program given by its absolute path."""
    words = [Path(word) for word in command_words(command, {})]
    files = [word for number, word in enumerate(words) if is_file(word) and (number or not word.is_absolute())]
    return list(dict.fromkeys(map(str, files)))


class ProgramStage(Stage):
    """A command of the user's. It asks for a GPU if its entry says so."""

    options_from_job = ("threads",)
    gpu = True
    systems = ("program",)
    # The corpus is written as JSON lines, measured; the index, assumed.
    costs = {
        "program_minutes": Cost(seconds=60),
        "program_mb": Cost(memory=1),
        "text_mb": Cost(seconds=0.04, disk=1),
    }

    def uses_gpu(self, grid: Grid, system: str, **_: str) -> bool:
        return bool(grid.program(system).gpu)

    def work(self, sizes: Sizes, system: str, **_: str) -> Amounts:
        entry = sizes.grid.program(system)
        return {"program_mb": entry.mem_mb, "program_minutes": entry.minutes}


class IndexProgram(ProgramStage):
    """Index that a program makes of a corpus."""

    name = "index_program"
    version = 1
    kind = "index"
    outputs = {"index": paths.PROGRAM_INDEX, "record": paths.PROGRAM_INDEX_RECORD}
    main = "index"

    def inputs(self, grid: Grid, system: str, corpus: str) -> Inputs:
        return {"corpus": artifacts.documents(corpus)}

    def files(self, grid: Grid, system: str, corpus: str) -> Iterable[str]:
        return _command_files(grid.program(system).index_command or "")

    def settings(self, grid: Grid, system: str, corpus: str) -> Settings:
        entry = grid.program(system)
        return {"command": entry.index_command, "version": entry.version or None}


class RetrieveProgram(ProgramStage):
    """Run that a program makes."""

    name = "retrieve_program"
    version = 1
    packages = ("pyarrow",)
    kind = "search"
    wildcards_passed = ("system",)
    outputs = {"run": paths.RUN, "record": paths.RUN_RECORD}
    main = "run"
    costs = {**ProgramStage.costs, **ADOPTED}

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        corpus = grid.corpus(dataset)
        inputs = {"corpus": artifacts.documents(corpus), "queries": artifacts.queries(dataset)}
        if grid.program(system).index_command:
            inputs["index"] = output(paths.PROGRAM_INDEX, system=grid.program_index(system), corpus=corpus)
        return inputs

    def files(self, grid: Grid, system: str, dataset: str) -> Iterable[str]:
        return _command_files(grid.program(system).command)

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        entry = grid.program(system)
        asked = {"depth": grid.config.retrieve.depth, "allow": tuple(entry.allow)}
        return asked | {"command": entry.command, "version": entry.version or None}
