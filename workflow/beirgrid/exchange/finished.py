"""The finished cells of a grid for exports, and the options that all exports share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from ..core import files, provenance
from ..core.errors import DataError, warn
from ..core.version import full_version
from ..results import results_folder, scores
from ..results.cells import precisions
from ..results.results_folder import Result, Results
from ..results.summary import REMEDY

Output = Annotated[Path, "folder to write; it must be new or empty"]
Directory = Annotated[Path, results_folder.PLACE]
GridName = Annotated[str, "name of the grid; by default, all finished cells of the folder"]
# Name of the software in all exports.
SOFTWARE = f"beirgrid {full_version()}"


@dataclass(frozen=True)
class ExportedCell:
    """A finished cell: one system on one dataset."""

    result: Result

    @cached_property
    def scores(self) -> scores.Scores:
        """Means of the metrics, after checking them against the values per query."""
        of = self.result
        return scores.read_cell(of.scores, of.per_query, of.system, of.dataset)[0]

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """The record of the evaluation."""
        return provenance.read_record(self.result.scores)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The records of the steps before the evaluation, in order."""
        return [provenance.read_record(path) for path in self.result.records]

    @cached_property
    def dataset_record(self) -> dict[str, Any]:
        """The record of queries and qrels."""
        return self.records[self._dataset_number]

    @property
    def qrels(self) -> Path:
        """The qrels in BEIR's layout, after checking them against their record."""
        return provenance.artifact(self.result.records[self._dataset_number].with_name("qrels.tsv"))

    @cached_property
    def _dataset_number(self) -> int:
        """The place of the record of queries and qrels among the records."""
        for number, record in enumerate(self.records):
            if record["stage"] == "fetch_dataset":
                return number
        raise DataError(
            f"{self.result.system} on {self.result.dataset} has no record of its queries and qrels: the summary of the "
            f"grid is damaged. {REMEDY}"
        )

    @property
    def precisions(self) -> str:
        """The precisions of the models in the steps; empty without a model."""
        return ", ".join(sorted(precisions(self.records)))


def finished_cells(directory: Path, grid: str, output: Path) -> tuple[Results, list[ExportedCell]]:
    """Return the results and their finished cells, after checking runs and scores against their records.

    Raises:
        DataError: no cell is finished, a file is damaged, or the output is not empty.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise DataError(f"--output: {output} is not an empty folder; name a new one")
    results = results_folder.find(directory, grid)
    cells = [ExportedCell(result) for result in results.cells.values() if result.scores.is_file()]
    if not cells:
        raise DataError(f"{results.summary or results.folder} has no finished cell")
    if waiting := len(results.cells) - len(cells):
        warn(f"export leaves out {waiting:,} unfinished cells")
    for cell in cells:
        scores.evaluated_run(cell.result.run, cell.result.scores)
        if not cell.scores.means:
            raise DataError(f"{cell.result.scores} has no metric. {files.REMEDY}")
    return results, cells
