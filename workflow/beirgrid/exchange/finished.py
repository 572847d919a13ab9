"""The finished cells of a grid for exports, and the options that all exports share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ..core import files, provenance
from ..core.checkout import full_version
from ..core.errors import DataError, warn
from ..results import results_folder, scores
from ..results.cells import precisions
from ..results.results_folder import Result

Output = Annotated[Path, "folder to write; it must be new or empty"]
Directory = Annotated[Path, results_folder.PLACE]
GridName = Annotated[str, "name of the grid; by default, all finished cells of the folder"]
# Name of the software in all exports.
SOFTWARE = f"beirgrid {full_version()}"


class ExportedCell(NamedTuple):
    """A finished cell: one system on one dataset.

    Attributes:
        result: its files.
        scores: means of the metrics, checked against the values per query.
        evaluation: the record of the evaluation.
        records: the records of the steps before the evaluation, in order.
    """

    result: Result
    scores: scores.Scores
    evaluation: dict[str, Any]
    records: list[dict[str, Any]]

    @property
    def qrels(self) -> Path:
        """The qrels in BEIR's layout, after checking them against their record."""
        return provenance.artifact(self.result.qrels)

    @property
    def precisions(self) -> str:
        """The precisions of the models in the steps; empty without a model."""
        return ", ".join(sorted(precisions(self.records)))


def finished_cells(directory: Path, grid: str, output: Path) -> list[ExportedCell]:
    """Return the finished cells, after checking runs and scores against their records.

    Raises:
        DataError: no cell is finished, a file is damaged, or the output is not empty.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise DataError(f"--output: {output} is not an empty folder; name a new one")
    results = results_folder.find(directory, grid)
    cells = [_read(result) for result in results.cells.values() if result.scores.is_file()]
    if not cells:
        raise DataError(f"{grid or directory} has no finished cell")
    if waiting := len(results.cells) - len(cells):
        warn(f"export leaves out {waiting:,} unfinished cells")
    return cells


def _read(result: Result) -> ExportedCell:
    of_cell, _ = scores.read_cell(result.scores, result.per_query, result.system, result.dataset)
    provenance.check({"run": provenance.artifact(result.run), "scores": result.scores})
    if not of_cell.means:
        raise DataError(f"{result.scores} has no metric. {files.REMEDY}")
    records = list(map(provenance.read_record, result.records))
    return ExportedCell(result, of_cell, provenance.read_record(result.scores), records)
