"""Export scores in the form of MTEB's result files, labelled as computed by other software."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..config.metric_names import MAIN, USUAL, parse_metric
from ..config.mteb_collections import ISO_639_1
from ..config.registry import tasks
from ..core import files, provenance
from ..core.checkout import full_version
from ..core.errors import DataError
from ..results.scores import unanswered
from .finished import SOFTWARE, Directory, ExportedCell, GridName, Output, finished_cells

# mteb's names of our metrics, where they differ.
_METRICS = {"p": "precision", "success": "hit_rate"}
# Languages as mteb writes them: ISO 639-3 (of several, the first) and script, by ISO 639-1 code.
_SCRIPTS = {"ar": "Arab", "fa": "Arab", "bn": "Beng", "hi": "Deva", "ja": "Jpan", "ko": "Hang", "ru": "Cyrl"}
_SCRIPTS |= {"uk": "Cyrl", "te": "Telu", "th": "Thai", "zh": "Hans"}
_LANGUAGES = {two: f"{three}-{_SCRIPTS.get(two, 'Latn')}" for three, two in reversed(ISO_639_1.items())}
_NOT_MTEB = f"computed by {SOFTWARE}, not by mteb"


def export_mteb(*, output: Output, directory: Directory = Path(), grid: GridName = "") -> None:
    """Write scores as JSON in the form of MTEB's results, to ``beirgrid__{system}/{version}/{task}.json``.

    Raises:
        DataError: there is no finished cell, a file is damaged, ndcg@10 was not computed, or the output is not empty.
    """
    cells = finished_cells(directory, grid, output)
    with files.atomic(output, directory=True) as folder:
        for cell in cells:
            place = folder / f"beirgrid__{cell.result.system}" / full_version()
            files.write_json(place / f"{task_of(cell)}.json", task_result(cell))
            name = f"beirgrid/{cell.result.system}"
            about = {"name": name, "revision": full_version(), "note": _NOT_MTEB}
            files.write_json(place / "model_meta.json", about)


def task_of(cell: ExportedCell) -> str:
    """Return mteb's task name, or the dataset's own name."""
    task = tasks().get(cell.result.dataset)
    return task.name if task else cell.result.dataset


def task_result(cell: ExportedCell) -> dict[str, Any]:
    """Return the scores of a cell as mteb's TaskResult. ``mteb_version`` is null; ``note`` explains it."""
    settings = provenance.record_of(cell.qrels).record["settings"]
    source = settings.get("source", {})
    revision = settings.get("revision") or source.get("revision") or f"sha256:{files.sha256(cell.qrels)}"
    scores = {_metric(metric): value for metric, value in cell.scores.means.items() if metric != MAIN}
    about = {
        "main_score": main_score(cell),
        "hf_subset": "default",
        "languages": [_LANGUAGES.get(cell.result.language, "und-Zyyy")],
    }
    # Of all steps, those that cells share included.
    seconds = sum(record["seconds"] for record in cell.records) + cell.evaluation["seconds"]
    return {
        "dataset_revision": revision,
        "task_name": task_of(cell),
        "mteb_version": None,
        "note": "; ".join(filter(None, (_NOT_MTEB, unanswered(cell.evaluation)))),
        "precision": cell.precisions,
        "date": cell.evaluation["finished"],
        "evaluation_time": float(round(seconds, 3)),
        "kg_co2_emissions": None,
        "scores": {_split(settings): [{**scores, **about}]},
    }


def main_score(cell: ExportedCell) -> float:
    """Return the main metric of the dataset, nDCG@10 unless the grid computed another.

    Raises:
        DataError: nDCG@10 was not computed.
    """
    for metric in (MAIN, USUAL):
        if metric in cell.scores.means:
            return cell.scores.means[metric]
    raise DataError(f"{cell.result.scores} has no {USUAL}, the main score of retrieval tasks: add it to metrics")


def _metric(name: str) -> str:
    metric = parse_metric(name)
    return f"{_METRICS.get(metric.name, metric.name)}_at_{metric.k}"


def _split(settings: dict[str, Any]) -> str:
    """Return the entry's split, or the split at the end of an ir_datasets id."""
    last = str(settings.get("id", "")).rpartition("/")[2]
    return str(settings.get("split") or (last if last in ("dev", "test", "train") else "test"))
