"""Collections as mteb lists them: a task, a benchmark, a subset or a split, as datasets with their corpora."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..core.errors import ConfigError
from .registry import COMMIT, mteb_version, quiet
from .tasks import named

# Languages of Lucene's analyzers: ISO 639-3, as mteb writes them, to ISO 639-1.
_ISO_639_1 = {
    **{"ara": "ar", "ben": "bn", "dan": "da", "deu": "de", "eng": "en", "spa": "es", "fas": "fa", "fin": "fi"},
    **{"fra": "fr", "hin": "hi", "hun": "hu", "ind": "id", "ita": "it", "jpn": "ja", "kor": "ko", "nld": "nl"},
    **{"nob": "no", "nor": "no", "pol": "pl", "por": "pt", "rus": "ru", "swe": "sv", "swa": "sw", "tel": "te"},
    **{"tha": "th", "tur": "tr", "ukr": "uk", "zho": "zh", "cmn": "zh", "yor": "yo"},
}


def collection(name: str) -> dict[str, Any] | None:
    """Return the rows that a name stands for, with entries; None if mteb lists no such name.

    Args:
        name: of a task, a benchmark, or one subset or split of a task (MIRACLRetrieval-sw).

    Returns:
        ``rows`` (names of datasets) and ``datasets`` (by name: ``mteb``, ``task``, ``dataset`` and, unless the dataset
        is registered or a mean, ``corpus``).

    Raises:
        ConfigError: a task of that name has no text, or no pinned commit.
    """
    found: dict[str, Any] = {"mteb": mteb_version(), "rows": [], "datasets": {}}
    with quiet():
        import mteb

        if whole := [task for task in _task_names() if name == task or name.startswith(f"{task}-")]:
            members = [mteb.get_task(max(whole, key=len))]
        else:
            try:
                members = list(mteb.get_benchmark(name).tasks)
            except KeyError:
                return None
        for task in members:
            found["rows"] += (_in_benchmark if len(members) > 1 else _rows)(task, found["datasets"])
    if whole and name not in whole:  # one subset or split
        one = {row: facts for row, facts in found["datasets"].items() if row == name}
        return found | {"rows": list(one), "datasets": one} if one else None
    return found


@cache
def _task_names() -> frozenset[str]:
    import mteb

    kinds = ["Retrieval"]
    single = {task.metadata.name for task in mteb.get_tasks(task_types=kinds, exclude_aggregate=True)}
    return frozenset(single | {task.metadata.name for task in mteb.get_tasks(task_types=kinds)})


def collection_names() -> list[str]:
    """Return the names of mteb's retrieval tasks and of its benchmarks."""
    import mteb

    return [*sorted(_task_names()), *(benchmark.name for benchmark in mteb.get_benchmarks())]


def _in_benchmark(task: Any, datasets: dict[str, Any]) -> list[str]:
    """Return the one row of a task of a benchmark, whose mean counts each task once: mteb's ``get_score``.

    The score of a task with several subsets or splits is the mean over these.
    """
    rows = _rows(task, datasets)
    if len(rows) > 1:
        rows, parts = [task.metadata.name], rows
        datasets[rows[0]] = {"mteb": mteb_version(), "task": rows[0], "dataset": {"mean_of": parts}}
    return rows


def _rows(task: Any, datasets: dict[str, Any]) -> list[str]:
    """Return the rows of one task; add their entries to ``datasets``."""
    registered = {known: row for row, known in named().items()}
    meta = task.metadata
    if meta.name in registered:
        return [registered[meta.name]]
    if parts := getattr(meta, "tasks", None):
        rows = [row for part in parts for row in _rows(part, datasets)]
        datasets[meta.name] = {"mteb": mteb_version(), "task": meta.name, "dataset": {"mean_of": rows}}
        return [meta.name]
    if meta.type != "Retrieval" or "text" not in meta.modalities or len(meta.modalities) > 1:
        raise ConfigError(f"{meta.name} is a task of type {meta.type} over {', '.join(meta.modalities)}: not retrieval")
    if not COMMIT.match(str(meta.dataset.get("revision"))):
        raise ConfigError(f"{meta.name}: mteb pins no commit of its data")
    pairs = [(subset, split) for subset in meta.hf_subsets for split in meta.eval_splits]
    rows = []
    for subset, split in pairs:
        several = [subset] * (len(meta.hf_subsets) > 1) + [split] * (len(meta.eval_splits) > 1)
        rows.append("-".join([meta.name, *several]))
        datasets[rows[-1]] = _dataset(task, rows[-1], subset, split)
    return rows


def _dataset(task: Any, row: str, subset: str, split: str) -> dict[str, Any]:
    """Return the entries of one subset and split of a task."""
    meta = task.metadata
    corpus: dict[str, Any] = {"source": "huggingface", "id": meta.dataset["path"], "split": split}
    if subset != "default":
        corpus["subset"] = subset
    if _loads_itself(task):
        corpus |= {"source": "mteb", "task": meta.name}
        del corpus["id"]
    corpus["revision"] = meta.dataset["revision"]
    figures = ((meta.descriptive_stats or {}).get(split) or {}) if meta.descriptive_stats else {}
    figures = (figures.get("hf_subset_descriptive_stats") or {}).get(subset, figures)
    if documents := _documents(figures):
        corpus["documents"] = documents
    if language := _language(meta, subset):
        corpus["language"] = language
    if meta.license and meta.license != "not specified":
        corpus["licence"] = str(meta.license)
    dataset = {"corpus": row, "split": split, "task": "retrieval", "queries_are_documents": "auto"}
    dataset["domain"] = ", ".join(meta.domains or ()).lower()
    return {"mteb": mteb_version(), "task": meta.name, "corpus": corpus, "dataset": dataset}


def _documents(figures: Mapping[str, Any]) -> int:
    """Return the number of documents from the statistics of a split, some of which state lengths alone; 0 if none."""
    lengths = figures.get("documents_text_statistics") or {}
    by_length = lengths.get("total_text_length", 0) / (lengths.get("average_text_length") or 1)
    return int(figures.get("num_documents") or round(by_length))


def _loads_itself(task: Any) -> bool:
    """Tell whether a task has code of its own that loads or changes its data."""
    own = [cls for cls in type(task).__mro__ if cls.__module__.startswith("mteb.tasks")]
    return any(name in vars(cls) for cls in own for name in ("load_data", "dataset_transform"))


def _language(meta: Any, subset: str) -> str:
    """Return the language of a subset's documents as ISO 639-1 has it; empty if it has no such code, or several."""
    spoken = meta.eval_langs.get(subset, []) if isinstance(meta.eval_langs, Mapping) else meta.eval_langs
    codes = {str(code).partition("-")[0] for code in spoken}
    return _ISO_639_1.get(codes.pop(), "") if len(codes) == 1 else ""
