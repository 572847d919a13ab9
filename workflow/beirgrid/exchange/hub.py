"""Export scores as evaluation results of the Hugging Face hub: a YAML file for a model's repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..config.metric_names import USUAL
from ..config.registry import tasks
from ..core import files
from ..core.errors import DataError, warn
from ..results.scores import unanswered
from .finished import SOFTWARE, Directory, ExportedCell, GridName, Output, finished_cells
from .mteb import main_score, task_of


def export_huggingface(*, output: Output, directory: Directory = Path(), grid: GridName = "") -> None:
    """Write scores as the hub's YAML of evaluation results, a file per system and dataset of mteb.

    Raises:
        DataError: there is no finished cell, a file is damaged, ndcg@10 was not computed, mteb has no such dataset, or
            the output is not empty.
    """
    cells = finished_cells(directory, grid, output)
    if unknown := sorted({cell.result.dataset for cell in cells} - tasks().keys()):
        warn(f"export leaves out datasets that mteb has not: {', '.join(unknown)}")
    exported = [cell for cell in cells if cell.result.dataset in tasks()]
    if not exported:
        raise DataError("no finished cell is on a dataset of mteb, whose names on the hub are known")
    with files.atomic(output, directory=True) as folder:
        for cell in exported:
            path = folder / cell.result.system / ".eval_results" / f"{cell.result.dataset}.yaml"
            content = eval_results(cell, tasks()[cell.result.dataset].hub)
            files.write_text(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def eval_results(cell: ExportedCell, hub_dataset: str) -> list[dict[str, Any]]:
    """Return the evaluation result of a cell in the hub's YAML form; the value is a percentage, as in mteb."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    metric = f"{cell.evaluation['settings'].get('main', USUAL)} × 100, computed by {SOFTWARE}, not by mteb"
    entry = EvalResultEntry(
        dataset_id=hub_dataset,
        task_id=task_of(cell),
        value=round(100 * main_score(cell), 5),
        date=cell.evaluation["finished"],
        notes=", ".join(filter(None, (metric, cell.precisions, unanswered(cell.evaluation)))),
    )
    return eval_result_entries_to_yaml([entry])
