"""What a cell of the grid is at this moment: done, pending, failed or not supplied, with its numbers if it is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import files, provenance
from ..core.errors import DataError
from . import qrels as judgements
from .answers import DONE, FAILED, NOT_SUPPLIED, PENDING
from .scores import Scores, read, read_per_query
from .summary import Cell, GridSummary

if TYPE_CHECKING:
    import pandas as pd

# Stages in which models read the texts of a cell. The precision of a model's training is no precision of its scores.
READING_STAGES = ("expand", "encode", "retrieve", "score")
# Values that one computation wrote twice differ by less than this.
_ROUNDING = 1e-9


class Step(NamedTuple):
    """A step behind a cell of the grid: the content of its record, which stands at ``path``."""

    system: str
    dataset: str
    path: str
    record: dict[str, Any]


class Found(NamedTuple):
    """What was found of a cell.

    Attributes:
        status: done, pending or failed.
        detail: why there is no value, or an empty string.
        scores: means and the number of queries, if the cell is done.
        per_query: queries × metrics, float64, if the cell is done.
        steps: the steps behind the cell that can be read.
    """

    status: str
    detail: str
    scores: Scores | None = None
    per_query: pd.DataFrame | None = None
    steps: tuple[Step, ...] = ()

    @property
    def precisions(self) -> set[str]:
        """The precisions in which models read the texts of the cell; BM25 has none."""
        facts = (step.record["facts"] for step in self.steps if step.record["stage"] in READING_STAGES)
        return {of_step["precision"] for of_step in facts if "precision" in of_step}


Cells = dict[tuple[str, str], Found]


def find(grid: GridSummary, failures: Mapping[str, str] | None = None, *, running: bool = False) -> Cells:
    """Return what each cell of the grid is, by system and dataset.

    Args:
        grid: summary of the grid.
        failures: for each file that a failed job should have written, the log of that job and the log's last line.
        running: whether the grid is being run. What has other settings than the grid asks for is then pending.
    """
    look = _Look(grid, failures or {}, running)
    return {(cell.system, cell.dataset): look.at(cell) for cell in grid.cells}


def refuse_unfinished(cells: Cells) -> None:
    """Raise DataError unless every cell is done."""
    for (system, dataset), found in cells.items():
        if found.status != DONE:
            raise DataError(found.detail or f"{system} on {dataset} has no scores. {files.REMEDY}")


def combined(parts: Mapping[str, Found | None]) -> tuple[str, str]:
    """Return status and detail of a mean from those of its parts; None is a part that is not supplied."""
    states = {name: found.status if found else NOT_SUPPLIED for name, found in parts.items()}
    if len(parts) == 1:
        found = next(iter(parts.values()))
        return (found.status, found.detail) if found else (NOT_SUPPLIED, "")
    status = next((state for state in (NOT_SUPPLIED, FAILED, PENDING) if state in states.values()), DONE)
    lacking = [f"{name} ({state})" for name, state in states.items() if state != DONE]
    return status, f"lacks {', '.join(lacking)}" if lacking else ""


class _Look:
    """A look at the files of a grid: a record that several cells share is read once."""

    def __init__(self, grid: GridSummary, failures: Mapping[str, str], running: bool) -> None:
        self.grid = grid
        self.failures = failures
        self.running = running
        self.record = cache(self._record)
        self.judged = cache(self._judged)

    def at(self, cell: Cell) -> Found:
        """Return what a cell is."""
        wanted = [*cell.records, cell.scores, cell.per_query]
        steps = tuple(self._steps(cell))
        failure = next((self.failures[path] for path in wanted if path in self.failures), "")
        if missing := [path for path in wanted if not Path(path).is_file()]:
            if failure:
                return Found(FAILED, failure, steps=steps)
            if self.running or cell.scores in missing:
                return Found(PENDING, "", steps=steps)
            return Found(FAILED, f"{missing[0]} is missing. {files.REMEDY}", steps=steps)
        if outdated := next(filter(self._outdated, wanted), ""):
            if self.running and not failure:
                return Found(PENDING, "", steps=steps)
            reason = f"{outdated} was made with other settings than the grid asks for. {files.REMEDY}"
            return Found(FAILED, failure or reason, steps=steps)
        try:
            found, table = self._numbers(cell)
        except DataError as error:
            return Found(FAILED, str(error), steps=steps)
        return Found(DONE, "", found, table, steps)

    def _steps(self, cell: Cell) -> Iterator[Step]:
        for path in cell.records:
            record = self.record(path)
            if not isinstance(record, DataError):
                yield Step(cell.system, cell.dataset, path, record)

    def _record(self, path: str) -> dict[str, Any] | DataError:
        """Return a record, or what is wrong with it or with a file that it describes. Sizes are compared."""
        try:
            record = provenance.read_record(path)
            provenance.compare_sizes(path, record)
        except DataError as error:
            return error
        return record

    def _outdated(self, path: str) -> bool:
        """Tell whether a record, or a file of scores, has other settings than the grid asks for."""
        digest, record = self.grid.settings.get(path), self.record(path) if path.endswith(".json") else None
        return bool(digest) and isinstance(record, dict) and record.get("settings_key") != digest

    def _judged(self, dataset: str) -> frozenset[str] | None:
        """Return the queries with qrels of a dataset, if the grid names its qrels."""
        path = self.grid.datasets[dataset].qrels if dataset in self.grid.datasets else ""
        return frozenset(judgements.read(provenance.artifact(path))) if path else None

    def _numbers(self, cell: Cell) -> tuple[Scores, pd.DataFrame]:
        """Return the scores of a cell and its values per query.

        Raises:
            DataError: a file is damaged, or belongs to another run, dataset or grid.
        """
        for path in (*cell.records, cell.scores):
            if isinstance(record := self.record(path), DataError):
                raise record
        found = read(cell.scores)
        table = read_per_query(provenance.artifact(cell.per_query), self.grid.metrics)
        of = f"{found.system} on {found.dataset}"
        if (found.system, found.dataset) != (cell.system, cell.dataset):
            raise DataError(f"{cell.scores} has the scores of {of}. {files.REMEDY}")
        if len(table) != found.queries:
            raise DataError(
                f"{cell.per_query} has {len(table)} queries, {cell.scores} says {found.queries}. {files.REMEDY}"
            )
        judged = self.judged(cell.dataset)
        if judged is not None and judged != set(table.index):
            raise DataError(
                f"{cell.per_query}: its {len(table)} queries should be the {len(judged)} of the qrels of "
                f"{cell.dataset}. {files.REMEDY}"
            )
        for metric in self.grid.metrics:
            if abs(found.means.get(metric, float("nan")) - table[metric].mean()) <= _ROUNDING:
                continue
            raise DataError(f"{cell.per_query} and {cell.scores} have different means of {metric}. {files.REMEDY}")
        return found, table


def steps_of(cells: Iterable[Found]) -> Iterator[Step]:
    """Yield each step behind each cell that can be read."""
    for found in cells:
        yield from found.steps
