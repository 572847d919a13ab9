"""Export scores in the form of MTEB's result files, labelled as computed by other software."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..config.metric_names import MAIN, USUAL, parse_metric
from ..config.tasks import tasks
from ..core import files
from ..core.errors import DataError
from ..core.version import full_version
from ..results.scores import unanswered
from .finished import SOFTWARE, Directory, ExportedCell, GridName, Output, finished

# mteb's names of our metrics, where they differ.
_METRICS = {"p": "precision", "success": "hit_rate"}
# Languages as mteb writes them: ISO 639-3 and script, by ISO 639-1 code.
_LANGUAGES = {
    "ar": "ara-Arab",
    "bn": "ben-Beng",
    "da": "dan-Latn",
    "de": "deu-Latn",
    "en": "eng-Latn",
    "es": "spa-Latn",
    "fa": "fas-Arab",
    "fi": "fin-Latn",
    "fr": "fra-Latn",
    "hi": "hin-Deva",
    "hu": "hun-Latn",
    "id": "ind-Latn",
    "it": "ita-Latn",
    "ja": "jpn-Jpan",
    "ko": "kor-Hang",
    "nl": "nld-Latn",
    "no": "nob-Latn",
    "pl": "pol-Latn",
    "pt": "por-Latn",
    "ru": "rus-Cyrl",
    "sv": "swe-Latn",
    "sw": "swa-Latn",
    "te": "tel-Telu",
    "th": "tha-Thai",
    "tr": "tur-Latn",
    "uk": "ukr-Cyrl",
    "yo": "yor-Latn",
    "zh": "zho-Hans",
}
_NOT_MTEB = f"computed by {SOFTWARE}, not by mteb"


def export_mteb(*, output: Output, directory: Directory = Path(), grid: GridName = "") -> None:
    """Write scores as JSON in the form of MTEB's results, to ``beirgrid__{system}/{version}/{task}.json``.

    Raises:
        DataError: there is no finished cell, a file is damaged, ndcg@10 was not computed, or the output is not empty.
    """
    _, cells = finished(directory, grid, output)
    with files.atomic(output, directory=True) as folder:
        for cell in cells:
            place = folder / f"beirgrid__{cell.result.system}" / full_version()
            files.write_json(place / f"{task_of(cell)}.json", task_result(cell))
            files.write_json(place / "model_meta.json", _model(cell))


def task_of(cell: ExportedCell) -> str:
    """Return mteb's task name, or the dataset's own name."""
    task = tasks().get(cell.result.dataset)
    return task.name if task else cell.result.dataset


def _model(cell: ExportedCell) -> dict[str, Any]:
    return {"name": f"beirgrid/{cell.result.system}", "revision": full_version(), "note": _NOT_MTEB}


def task_result(cell: ExportedCell) -> dict[str, Any]:
    """Return the scores of a cell as mteb's TaskResult. ``mteb_version`` is null; ``note`` explains it."""
    record = cell.dataset_record
    settings, source = record["settings"], record["settings"].get("source", {})
    revision = settings.get("revision") or source.get("revision") or f"sha256:{files.sha256(cell.qrels)}"
    scores = {_metric(metric): value for metric, value in cell.scores.means.items() if metric != MAIN}
    about = {"main_score": main_score(cell), "hf_subset": "default", "languages": [_language(cell)]}
    return {
        "dataset_revision": revision,
        "task_name": task_of(cell),
        "mteb_version": None,
        "note": "; ".join(filter(None, (_NOT_MTEB, unanswered(cell.evaluation)))),
        "precision": cell.precisions,
        "date": cell.evaluation["finished"],
        "evaluation_time": _seconds([*(step.record for step in cell.steps), cell.evaluation]),
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


def _language(cell: ExportedCell) -> str:
    """Return the language in mteb's form, ISO 639-3 and script; ``und-Zyyy`` if unknown."""
    return _LANGUAGES.get(cell.result.language, "und-Zyyy")


def _seconds(records: Iterable[dict[str, Any]]) -> float:
    """Sum the seconds of all steps, including steps that cells share."""
    return float(round(sum(record["seconds"] for record in records), 3))
