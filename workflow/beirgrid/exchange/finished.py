"""The finished cells of a grid for exports, and the options that all exports share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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
# Record keys that exports require.
_KEYS = ("command", "packages", "cpus", "finished")
# Name of the software in all exports.
SOFTWARE = f"beirgrid {full_version()}"


class ExportedStep(NamedTuple):
    """A step before a cell's evaluation: the path and content of its record."""

    path: Path
    record: dict[str, Any]

    @property
    def stage(self) -> str:
        """The stage."""
        return str(self.record["stage"])

    @property
    def system(self) -> str:
        """The system whose run the step wrote."""
        return self.path.parent.name

    def option(self, name: str) -> list[str]:
        """Return the values of an option of the step's command."""
        return provenance.option(self.path, self.record, name)


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
        return provenance.read_record(self.result.scores, *_KEYS)

    @cached_property
    def steps(self) -> list[ExportedStep]:
        """The steps before the evaluation, in order."""
        return [ExportedStep(path, provenance.read_record(path, *_KEYS)) for path in self.result.records]

    def steps_of(self, *stages: str) -> list[ExportedStep]:
        """Return the steps of these stages."""
        return [step for step in self.steps if step.stage in stages]

    @property
    def dataset_record(self) -> dict[str, Any]:
        """The record of queries and qrels."""
        return self._dataset.record

    @property
    def _dataset(self) -> ExportedStep:
        steps = self.steps_of("fetch_dataset")
        if not steps:
            raise DataError(
                f"{self.result.system} on {self.result.dataset} has no record of its queries and qrels: the summary "
                f"of the grid is damaged. {REMEDY}"
            )
        return steps[0]

    @property
    def qrels(self) -> Path:
        """The qrels in BEIR's layout, after checking them against their record."""
        return provenance.artifact(self._dataset.path.with_name("qrels.tsv"))

    @property
    def precisions(self) -> str:
        """The precisions of the models in the steps; empty without a model."""
        return ", ".join(sorted(precisions(step.record for step in self.steps)))


def finished(directory: Path, grid: str, output: Path) -> tuple[Results, list[ExportedCell]]:
    """Return the results and their finished cells, after checking runs and scores against their records.

    Raises:
        DataError: no cell is finished, a file is damaged, or the output is not empty.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise DataError(f"--output: {output} is not an empty folder; name a new one")
    found = results_folder.find(directory, grid)
    cells = [ExportedCell(result) for result in found.cells.values() if result.scores.is_file()]
    if not cells:
        raise DataError(f"{found.summary or found.folder} has no finished cell")
    if waiting := len(found.cells) - len(cells):
        warn(f"export leaves out {waiting:,} unfinished cells")
    for cell in cells:
        scores.evaluated_run(cell.result.run, cell.result.scores)
        if not cell.scores.means:
            raise DataError(f"{cell.result.scores} has no metric. {files.REMEDY}")
    return found, cells
