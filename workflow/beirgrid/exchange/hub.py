"""Export scores as evaluation results of the Hugging Face hub: a YAML file for a model's repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import yaml

from ..config.metric_names import USUAL
from ..config.registry import tasks
from ..core import files
from ..core.errors import DataError, warn
from ..results.scores import unanswered
from .finished import SOFTWARE, Directory, ExportedCell, GridName, Output, finished_cells
from .mteb import main_score, task_of


def export_huggingface(
    *,
    output: Output,
    directory: Directory = Path(),
    grid: GridName = "",
    hub_datasets: Annotated[tuple[str, ...], "datasets on the hub, DATASET=ORGANISATION/NAME"] = (),
) -> None:
    """Write scores as the hub's YAML of evaluation results, a file per system and dataset.

    Raises:
        DataError: there is no finished cell, a file is damaged, ndcg@10 was not computed, no dataset is known on the
            hub, or the output is not empty.
    """
    named = dict(map(_pair, hub_datasets))
    if len(named) < len(hub_datasets):
        raise DataError("--hub-datasets names a dataset twice")
    known = {dataset: task.hub for dataset, task in tasks().items()} | named
    cells = finished_cells(directory, grid, output)
    if absent := sorted(named.keys() - {cell.result.dataset for cell in cells}):
        raise DataError(f"--hub-datasets: no finished cell is on the dataset {absent[0]!r}")
    unknown = sorted({cell.result.dataset for cell in cells} - set(known))
    if unknown:
        warn(f"export leaves out datasets whose name on the hub is unknown: {', '.join(unknown)}")
    exported = [cell for cell in cells if cell.result.dataset in known]
    if not exported:
        raise DataError(f"no dataset is known on the hub: name one with --hub-datasets {unknown[0]}=ORGANISATION/NAME")
    with files.atomic(output, directory=True) as folder:
        for cell in exported:
            path = folder / cell.result.system / ".eval_results" / f"{cell.result.dataset}.yaml"
            content = eval_results(cell, known[cell.result.dataset])
            files.write_text(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _pair(text: str) -> tuple[str, str]:
    dataset, _, hub = text.partition("=")
    if not dataset or not re.fullmatch(r"[\w.-]+/[\w.-]+", hub, re.ASCII):
        raise DataError(f"--hub-datasets: {text!r} is not of the form DATASET=ORGANISATION/NAME")
    return dataset, hub


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
