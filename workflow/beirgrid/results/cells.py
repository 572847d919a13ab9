"""Determine the current state of each cell: done, with its numbers, or why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..collections import qrels as judgements
from ..core import files, lineage, paths, provenance
from ..core.checkout import without_folders
from ..core.errors import DataError, quantity
from .answers import DECLINED, DONE, FAILED, NOT_JUDGED, NOT_SUPPLIED, PENDING, REPLACED
from .scores import read_cell, unanswered
from .summary import Cell, GridSummary, others

if TYPE_CHECKING:
    import pandas as pd


# The readable records of the steps behind a cell by their paths, in order; the last is that of its evaluation.
Steps = Mapping[str, dict[str, Any]]


class CellState(NamedTuple):
    """The status of a cell, a reason for no value or a warning about the value, and the steps behind the cell.

    ``per_query`` is float64, queries × metrics, if the cell is done.
    """

    status: str
    detail: str
    per_query: pd.DataFrame | None = None
    steps: Steps = MappingProxyType({})


Cells = dict[tuple[str, str], CellState]


def precisions(records: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the precisions in which models read texts, from the records behind a cell, training left out."""
    facts = (record["facts"] for record in records if record.get("kind") in ("encode", "search", "score"))
    return {of_step["precision"] for of_step in facts if "precision" in of_step}


def checkpoints(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the commits of fetched checkpoints by hub name, from the records behind a cell.

    The commit of a checkpoint from a folder is unknown.
    """
    fetched = [(provenance.entry_of(record), record["facts"]) for record in records if record.get("kind") == "fetch"]
    return {
        str(entry["checkpoint"]): "" if "path" in entry else str(facts.get("commit") or entry.get("revision", ""))
        for entry, facts in fetched
        if "checkpoint" in entry
    }


def find(grid: GridSummary, failures: Mapping[str, str] | None = None, *, running: bool = False) -> Cells:
    """Return the state of each cell, by system and dataset. A system with seeds has the mean over its seeds.

    Args:
        failures: for each missing output of a failed job, the job's log and the log's last line.
        running: whether the grid is running. Cells with outdated settings are then pending.
    """
    look = _Look(grid, failures or {}, running)
    states = ((cell, look.at(cell)) for cell in grid.cells)
    cells = {
        (cell.system, cell.dataset): state._replace(detail=without_folders(state.detail)) for cell, state in states
    }
    for name in (name for name, entry in grid.datasets.items() if entry.not_judged):
        unjudged = CellState(NOT_JUDGED, "; ".join(look.marks(name)))
        cells |= dict.fromkeys(((system, name) for system in (*grid.systems, *grid.members)), unjudged)
    for cell in grid.unjudged:
        key = cell.system, cell.dataset
        cells[key] = cells[key]._replace(steps=look.steps(cell))
    cells |= {key: CellState(DECLINED, reason) for key, reason in _declined(grid)}
    for system, members in grid.seeds.items():
        for dataset in dict.fromkeys(cell.dataset for cell in grid.cells):
            cells[system, dataset] = _over_seeds({member: cells[member, dataset] for member in members})
    return cells | _of_slices(cells, look)


def _declined(grid: GridSummary) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the cells that a publisher or the grid's gate declines, each with the reason."""
    for system, of_system in grid.declined.items():
        yield from (((system, dataset), reason) for dataset, reason in of_system.items())
    for system, reason in grid.left_out.items():
        yield from (((system, cell.dataset), reason) for cell in grid.cells)


def _of_slices(cells: Cells, look: _Look) -> Cells:
    """Return the states of the cells of slices."""
    found: Cells = {}
    for row, dataset in look.grid.slices.items():
        queries = look.queries_of(row)
        for (system, name), state in cells.items():
            if name == dataset:
                found[system, row] = _of_slice(state, queries)
    return found


def _of_slice(whole: CellState, queries: CellState | list[str]) -> CellState:
    """Return the state of a cell for some queries of its dataset; for a slice without them, its own state."""
    if whole.per_query is None:
        return whole
    if isinstance(queries, CellState):
        return queries
    if not {*queries} <= {*whole.per_query.index}:
        return CellState(FAILED, f"the slice has queries without scores. {files.REMEDY}")
    return whole._replace(per_query=whole.per_query.loc[queries])


def _over_seeds(members: Mapping[str, CellState]) -> CellState:
    """Combine the seeds of a system on a dataset: if all are done, average their scores per query."""
    status, detail = combined(members)
    tables = [state.per_query for state in members.values() if state.per_query is not None]
    per_query = sum(tables[1:], tables[0]) / len(tables) if status == DONE else None
    steps = {path: record for state in members.values() for path, record in state.steps.items()}
    return CellState(status, detail, per_query, steps)


def refuse_unfinished(cells: Cells) -> None:
    """Raise DataError unless every cell with qrels is done."""
    for (system, dataset), state in cells.items():
        if state.status not in (DONE, NOT_JUDGED, DECLINED):
            raise DataError(state.detail or f"{system} on {dataset} has no scores. {files.REMEDY}")


def combined(parts: Mapping[str, CellState | None]) -> tuple[str, str]:
    """Combine the status and detail of an averaged dataset's parts; None stands for a part that is not supplied.

    The detail lists the missing parts or, if none is missing, the parts' details.
    """
    whole = {name: state or CellState(NOT_SUPPLIED, "") for name, state in parts.items()}
    if len(whole) == 1:
        return next(iter(whole.values()))[:2]
    states = {name: state.status for name, state in whole.items()}
    order = (NOT_SUPPLIED, NOT_JUDGED, DECLINED, FAILED, REPLACED, PENDING)
    status = next((state for state in order if state in states.values()), DONE)
    lacking = [f"{name} ({state})" for name, state in states.items() if state != DONE]
    if lacking:
        return status, f"lacks {', '.join(lacking)}"
    return status, "; ".join(f"{name}: {state.detail}" for name, state in whole.items() if state.detail)


class _Look:
    """Reads the files of a grid. Records that cells share are read once."""

    def __init__(self, grid: GridSummary, failures: Mapping[str, str], running: bool) -> None:
        self.grid = grid
        self.failures = failures
        self.running = running
        self.ancestry = lineage.Ancestry()
        self.record = cache(self._record)
        self.judged = cache(self._judged_queries)
        self.others = cache(lambda: others(grid.name))

    def at(self, cell: Cell) -> CellState:
        """Return the state of a cell."""
        wanted = [*cell.records, cell.scores, cell.per_query]
        steps = self.steps(cell)
        failure = next((self.failures[path] for path in wanted if path in self.failures), "")
        missing = [path for path in wanted if not Path(path).is_file()]
        replaced = "" if missing else next(self._replaced(cell), "")
        reason = f"{missing[0]} is missing. {files.REMEDY}" if missing else replaced or next(self._mismatches(cell), "")
        if reason and not failure and (self.running or cell.scores in missing):  # a run makes it
            return CellState(PENDING, "", steps=steps)
        if reason:
            return CellState(REPLACED if replaced and not failure else FAILED, failure or reason, steps=steps)
        try:
            return CellState(DONE, _flaw(steps), self._numbers(cell), steps)
        except DataError as error:
            return CellState(FAILED, str(error), steps=steps)

    def queries_of(self, row: str) -> CellState | list[str]:
        """Return the queries of a slice, or the state of its cells if its record is not as the grid asks."""
        path = self.grid.datasets[row].slice_record
        record = self.record(path)
        try:
            if isinstance(record, DataError):
                raise record
            lineage.check({"slice": Path(path)}, ancestry=self.ancestry)
            reason = next(provenance.mismatches(Path(path), record, self.grid.settings.get(path)), "")
            if not reason:
                return list(record["kept"])
        except DataError as error:
            reason = str(error)
        failure = self.failures.get(path, "")
        pending = not failure and (self.running or not Path(path).is_file())
        return CellState(PENDING, "") if pending else CellState(FAILED, failure or reason)

    def marks(self, dataset: str) -> list[str]:
        """Return the warnings in a dataset's record."""
        record = self.record(self.grid.datasets[dataset].dataset_record)
        return [] if isinstance(record, DataError) else _marks([record])

    def steps(self, cell: Cell) -> Steps:
        """Return the records of the steps behind a cell that can be read."""
        records = {path: self.record(path) for path in (*cell.records, cell.scores)}
        return {path: record for path, record in records.items() if not isinstance(record, DataError)}

    def _record(self, path: str) -> dict[str, Any] | DataError:
        """Return a record, or the error in it."""
        try:
            record = provenance.read_record(path)
        except DataError as error:
            return error
        return {"kind": self.grid.kinds.get(record["stage"], ""), **record}  # earlier versions recorded none

    def _replaced(self, cell: Cell) -> Iterator[str]:
        """Yield which other grid has replaced a file of a cell, and its settings that differ, if the record is kept."""
        kept = Path(paths.REPLACED.format(grid=self.grid.name))
        for path, now in self.steps(cell).items():
            key = self.grid.settings.get(path, now["settings_key"])
            if key != now["settings_key"]:
                difference = ""
                before = self.record(str(kept / Path(path).relative_to("results")))
                if not isinstance(before, DataError) and before["settings_key"] == key:
                    asked = [
                        {"stage version": record["stage_version"], **record.get("job", {}).get("settings", {})}
                        for record in (before, now)
                    ]
                    difference = (
                        f": {', '.join(provenance.changes(asked[0], asked[1])) or 'a local file has another content'}"
                    )
                names = [other.name for other in self.others() if other.settings.get(path) == now["settings_key"]]
                yield from (f"replaced by grid {name}{difference}" for name in names)

    def _mismatches(self, cell: Cell) -> Iterator[str]:
        """Yield what does not match between the records of a cell, its files and what the grid asks for."""
        for path in (*cell.records, cell.scores):
            if isinstance(record := self.record(path), DataError):
                yield str(record)
            else:
                yield from provenance.mismatches(Path(path), record, self.grid.settings.get(path))
        qrels = self.grid.datasets[cell.dataset].qrels
        run = Path(cell.records[-1]).with_suffix(".run.gz") if cell.records else None
        inputs = {"qrels": Path(qrels) if qrels else None, "run": run, "scores": Path(cell.scores)}
        try:
            lineage.check(inputs, ancestry=self.ancestry)
        except DataError as error:
            yield f"{error}. {files.REMEDY}"

    def _judged_queries(self, dataset: str) -> frozenset[str] | None:
        """Return the judged queries of a dataset, if the grid names its qrels."""
        path = self.grid.datasets[dataset].qrels
        return frozenset(judgements.read(provenance.artifact(path))) if path else None

    def _numbers(self, cell: Cell) -> pd.DataFrame:
        """Read the values per query of a cell, after checking them against its scores and the qrels."""
        _, table = read_cell(cell, self.grid.metrics, self.ancestry)
        judged = self.judged(cell.dataset)
        if judged is not None and judged != set(table.index):
            raise DataError(
                f"{cell.per_query}: it has {quantity(len(table), 'query')}, but not the {len(judged)} in the qrels of "
                f"{cell.dataset}. {files.REMEDY}"
            )
        return table


def _flaw(steps: Steps) -> str:
    """Return the warnings about a cell's score: marks of the dataset, and judged queries that a run lacks.

    A fusion may have documents for a query that one of its runs lacks.
    """
    records = list(steps.values())
    lacking = dict.fromkeys(
        f"{Path(run['source']).name} lacks {run['queries_lacking']:,} of {run['queries']:,} judged queries"
        for run in (record["facts"] for record in records)
        if run.get("queries_lacking")
    )
    return "; ".join(filter(None, [*_marks(records), *lacking, unanswered(records[-1])]))


def _marks(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the marks in the dataset's record among these records."""
    return [mark for record in records for mark in record["facts"].get("marks", ())]
