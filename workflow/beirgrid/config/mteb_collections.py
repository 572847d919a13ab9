"""Collections as mteb lists them: a task, a benchmark, a subset or a split, as datasets with their corpora."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any, cast

from ..core.errors import ConfigError
from ..measures import MEASURES, USUAL
from .registry import KINDS, mteb, mteb_names, mteb_version
from .values import COMMIT

# Main metrics that have no cut: accuracy is recall at 1, and p-MRR compares whole rankings of 1,000 documents.
_WITHOUT_CUT = {"accuracy": "recall@1", "p-MRR": "p_mrr@1000", "paired_accuracy": "paired_accuracy@1"}
# Mean bytes of a word and the space after it, in English.
WORD_BYTES = 6
# Languages of Lucene's analyzers: ISO 639-3, as mteb writes them, to ISO 639-1.
ISO_639_1 = {
    **{"ara": "ar", "ben": "bn", "dan": "da", "deu": "de", "eng": "en", "spa": "es", "fas": "fa", "fin": "fi"},
    **{"fra": "fr", "hin": "hi", "hun": "hu", "ind": "id", "ita": "it", "jpn": "ja", "kor": "ko", "nld": "nl"},
    **{"nob": "no", "nor": "no", "pol": "pl", "por": "pt", "rus": "ru", "swe": "sv", "swa": "sw", "tel": "te"},
    **{"tha": "th", "tur": "tr", "ukr": "uk", "zho": "zh", "cmn": "zh", "yor": "yo"},
}


def collection(name: str) -> dict[str, Any] | None:
    """Return the rows of a task, a benchmark, or one subset or split of a task (MIRACLRetrieval-sw), with entries.

    Returns:
        ``rows`` (names of datasets) and ``datasets`` (by name: ``mteb``, ``task``, ``dataset`` and, unless the dataset
        is registered or a mean, ``corpus``); None if mteb lists no such name.

    Raises:
        ConfigError: a task of that name has no text, or no pinned commit.
    """
    whole = [task for task in task_names() if name == task or name.startswith(f"{task}-")]
    if whole:
        members = [mteb().get_task(max(whole, key=len))]
    else:
        try:
            members = _members(mteb().get_benchmark(name))
        except KeyError:
            return None
    rows: list[str] = []
    datasets: dict[str, Any] = {}
    for task in members:
        of_task = _rows(task, datasets)
        rows += _as_one(task, name, of_task, datasets) if len(members) > 1 else of_task
    if whole and name not in whole:  # one subset or split
        rows = [row for row in rows if row == name]
        datasets = {row: datasets[row] for row in datasets if row == name}
    return {"mteb": mteb_version(), "rows": rows, "datasets": datasets} if rows else None


@cache
def task_names() -> tuple[str, ...]:
    """Return the names of mteb's tasks that rank documents for queries, in order."""
    every: dict[str, Any] = {"task_types": list(KINDS), "exclude_superseded": False}
    single = {task.metadata.name for task in mteb().get_tasks(**every, exclude_aggregate=True)}
    return tuple(sorted(single | {task.metadata.name for task in mteb().get_tasks(**every)}))


def collection_names() -> list[str]:
    """Return the names of mteb's retrieval tasks and of its benchmarks."""
    return [*task_names(), *(benchmark.name for benchmark in mteb().get_benchmarks())]


def listed() -> Iterator[dict[str, Any]]:
    """Yield mteb's retrieval tasks, then its benchmarks, each with the reason why it is refused, if it is."""
    registered = {known: row for row, known in mteb_names().items()}
    for name in task_names():
        meta = mteb().get_task(name).metadata
        whole = name in registered or hasattr(meta, "tasks")
        rows = len(meta.hf_subsets) * len(meta.eval_splits)
        yield {
            "dataset": name,
            "corpus": registered.get(name, f"{rows} datasets" if rows > 1 else name),
            "task": meta.type.lower(),
            "language": _spoken(meta.languages),
            "licence": str(meta.license or "").replace("not specified", ""),
            "reason": "" if whole else _refusal(meta),
        }
    for benchmark in mteb().get_benchmarks():
        row = {"dataset": benchmark.name, "task": "benchmark", "corpus": f"{len(benchmark.tasks)} tasks"}
        spoken = {language for task in benchmark.tasks for language in task.metadata.languages}
        yield row | {"language": _spoken(spoken), "licence": "", "reason": _refusal_of_members(benchmark, registered)}


def _spoken(languages: Collection[str]) -> str:
    """Return a language as ISO 639-1 has it, or the number of several."""
    codes = sorted(languages)
    return ISO_639_1.get(codes[0], codes[0]) if len(codes) == 1 else f"{len(codes)} languages"


def _refusal_of_members(benchmark: Any, registered: Collection[str]) -> str:
    """Return why a benchmark cannot be run by its name; an empty text if it can."""
    try:
        metas = [task.metadata for task in _members(benchmark)]
    except ConfigError as error:
        return str(error).removeprefix(f"{benchmark.name} ")
    own = (meta for meta in metas if meta.name not in registered and not hasattr(meta, "tasks"))
    return next((f"{meta.name}: {reason}" for meta in own if (reason := _refusal(meta))), "")


def _members(benchmark: Any) -> list[Any]:
    """Return the tasks that a benchmark's name stands for.

    All tasks where all rank texts for queries. Otherwise those of type Retrieval, over whose scores mteb has a mean of
    its own, or of another type that ranks texts where there are none of that type.
    """
    tasks = list(benchmark.tasks)
    ranking = [task for task in tasks if task.metadata.type in KINDS and list(task.metadata.modalities) == ["text"]]
    if len(ranking) < len(tasks):
        ranking = [task for task in ranking if task.metadata.type == "Retrieval"] or ranking
    if not ranking:
        kinds = ", ".join(sorted({task.metadata.type for task in tasks}))
        raise ConfigError(f"{benchmark.name} has no task that ranks texts for queries, only {kinds}")
    return ranking


def _as_one(task: Any, benchmark: str, rows: list[str], datasets: dict[str, Any]) -> list[str]:
    """Return the single row of a benchmark's task: like mteb's ``get_score``, a benchmark's mean counts each task once.

    The score of a task with several subsets or splits is the mean over these. Where the benchmark has some subsets of a
    task, the row of their mean is named after both.
    """
    name = task.metadata.name
    if len(rows) > 1:
        if list(task.hf_subsets) != list(task.metadata.hf_subsets):
            name = f"{name}@{re.sub(r'[^A-Za-z0-9]+', '-', benchmark).strip('-')}"
        datasets[name] = {"mteb": mteb_version(), "task": task.metadata.name, "dataset": {"mean_of": rows}}
        return [name]
    return rows


def _rows(task: Any, datasets: dict[str, Any]) -> list[str]:
    registered = {known: row for row, known in mteb_names().items()}
    meta = task.metadata
    if meta.name in registered:
        return [registered[meta.name]]
    if parts := getattr(meta, "tasks", None):
        rows = [row for part in parts for row in _rows(part, datasets)]
        datasets[meta.name] = {"mteb": mteb_version(), "task": meta.name, "dataset": {"mean_of": rows}}
        return [meta.name]
    if reason := _refusal(meta):
        raise ConfigError(f"{meta.name}: {reason}")
    rows = []
    for subset, split in product(task.hf_subsets, meta.eval_splits):
        several = [subset] * (len(meta.hf_subsets) > 1) + [split] * (len(meta.eval_splits) > 1)
        rows.append("-".join([meta.name, *several]))
        datasets[rows[-1]] = _dataset(task, rows[-1], subset, split)
    return rows


def _refusal(meta: Any) -> str:
    """Return why a task cannot be a dataset; an empty text if it can."""
    if meta.type not in KINDS or list(meta.modalities) != ["text"]:
        return f"it is a task of type {meta.type} over {', '.join(meta.modalities)}: not of texts"
    return "" if re.match(COMMIT, str(meta.dataset.get("revision"))) else "mteb pins no commit of its data"


def _dataset(task: Any, row: str, subset: str, split: str) -> dict[str, Any]:
    meta = task.metadata
    kind = cast(Any, type(task))
    corpus: dict[str, Any] = {"source": "huggingface", "id": meta.dataset["path"], "split": split}
    if subset != "default":
        corpus["subset"] = subset
    figures = _statistics(kind).get(split) or {}
    if _is_loaded_by_mteb(task, figures):
        corpus |= {"source": "mteb", "task": meta.name}
        del corpus["id"]
    corpus["revision"] = meta.dataset["revision"]
    figures = (figures.get("hf_subset_descriptive_stats") or {}).get(subset, figures)
    if documents := _documents(figures):
        corpus["documents"] = documents
    if language := _language(meta, subset):
        corpus["language"] = language
    if meta.license and meta.license != "not specified":
        corpus["licence"] = str(meta.license)
    dataset = {"corpus": row, "split": split, "task": meta.type.lower()}
    # mteb drops the document with the id of the query where a task says so, whatever its text.
    dataset["queries_are_documents"] = bool(task.ignore_identical_ids)
    if (metric := main_metric(meta.main_score)) not in ("", USUAL):
        dataset["metric"] = metric
    dataset["domain"] = ", ".join(meta.domains or ()).lower()
    if words := _words(figures):
        dataset["statistics"] = words
    return {"mteb": mteb_version(), "task": meta.name, "corpus": corpus, "dataset": dataset}


@cache
def _statistics(kind: Any) -> Mapping[str, Any]:
    """Return mteb's statistics of a class of tasks, by split, from its file; those of subsets are among them."""
    return kind.metadata.descriptive_stats or {}


def _documents(figures: Mapping[str, Any]) -> int:
    """Return the number of documents from the statistics of a split, some of which state lengths alone; 0 if none."""
    lengths = figures.get("documents_text_statistics") or {}
    by_length = lengths.get("total_text_length", 0) / (lengths.get("average_text_length") or 1)
    return int(figures.get("num_documents") or round(by_length))


def _words(figures: Mapping[str, Any]) -> dict[str, float]:
    """Estimate the words per query and document, for the sizes of jobs: mteb states characters."""
    lengths = {
        key: (figures.get(f"{texts}_text_statistics") or {}).get("average_text_length") or 0
        for key, texts in (("query_words", "queries"), ("document_words", "documents"))
    }
    return {key: round(length / WORD_BYTES, 2) for key, length in lengths.items() if length}


def _is_loaded_by_mteb(task: Any, figures: Mapping[str, Any]) -> bool:
    """Tell whether mteb's own code has to load a task: it has such code, candidates, instructions or conversations.

    Args:
        figures: mteb's statistics of a split.
    """
    own = [cls for cls in type(task).__mro__ if cls.__module__.startswith("mteb.tasks")]
    code = any(name in vars(cls) for cls in own for name in ("load_data", "dataset_transform"))
    parts = [figures, *(figures.get("hf_subset_descriptive_stats") or {}).values()]
    ranked = any(part.get("top_ranked_statistics") for part in parts)
    talks = "Conversational retrieval" in (task.metadata.task_subtypes or ())
    return code or ranked or talks or task.metadata.type != "Retrieval"


def main_metric(score: str) -> str:
    """Return our name of a main metric of mteb; empty if beirgrid does not compute it."""
    name, _, k = score.partition("_at_")
    ours = next((measure.name for measure in MEASURES.values() if name in (measure.mteb, measure.name)), None)
    return _WITHOUT_CUT.get(score, f"{ours}@{k}" if ours and k.isdecimal() else "")


def _language(meta: Any, subset: str) -> str:
    """Return the language of a subset's documents as ISO 639-1 has it; empty if it has no such code, or several."""
    spoken = meta.eval_langs.get(subset, []) if isinstance(meta.eval_langs, Mapping) else meta.eval_langs
    codes = {str(code).partition("-")[0] for code in spoken}
    return ISO_639_1.get(codes.pop(), "") if len(codes) == 1 else ""
