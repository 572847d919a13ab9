"""The tables of the page on systems and datasets: what is known of them beside their scores."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..config.metric_names import lower_is_better
from ..core import provenance
from ..core.errors import DataError
from ..results import table_files
from ..results.answers import Answers
from ..results.published import OTHER_PROTOCOL
from ..results.summary import DatasetSummary, GridSummary
from . import texts
from .texts import Shown

# Label of a system with published values only.
NOT_RUN = "published, not run here"
_SIZES = ["parameters", "dimensions", "max_length"]
_MODEL = ["model", *_SIZES, "licence", "source"]
# Counts by fetch that a reader should know: of the corpus, and of the dataset.
CORPUS_COUNTS = {"empty_documents": "documents without text", "duplicates_dropped": "duplicate documents dropped"}
DATASET_COUNTS = {
    "duplicates_dropped": "duplicate queries dropped",
    "unknown_documents": "judged documents not in the corpus",
    "queries_without_relevant": "queries without relevant documents",
    "overruled_judgements": "judgements overruled",
    "own_documents_dropped": "queries that are documents and do not retrieve themselves",
    "same_ids_kept": "queries with the id of another document",
}


def systems(grid: GridSummary, answers: Answers) -> Shown:
    """Rank the systems by their means, with means per task and the facts of their models.

    Systems of which the grid shows published values stand among them. A system that lacks a dataset has no mean.
    """
    tasks: dict[str, list[str]] = {}
    for row in grid.counted_once:
        tasks.setdefault(grid.datasets[row].task or "other", []).append(row)
    sets = {"mean": table_files.averaged_rows(grid) or list(grid.rows)}
    sets |= {f"{task} ({len(names)})": names for task, names in tasks.items() if len(names) > 1}
    about = pd.DataFrame([*_run_here(grid), *_not_run_here(answers.published)]).set_index("system", drop=False)
    about = about.reindex(columns=["system", "measured", "family", *_MODEL])
    about[_SIZES] = about[_SIZES].astype("float64")  # numeric also without a value
    scores = pd.concat([table_files.shown_scores(answers.scores, grid), answers.published], ignore_index=True)
    tables = {}
    for metric in grid.metrics:
        values = scores[scores["metric"] == metric].pivot(index="system", columns="dataset", values="value")
        values = values.reindex(index=about.index, columns=list(grid.rows))
        means = pd.DataFrame({name: values[names].mean(axis=1, skipna=False) for name, names in sets.items()})
        means.insert(0, "rank", means["mean"].rank(method="min", ascending=lower_is_better(metric)))
        tables[metric] = about.join(means).sort_values("rank", kind="stable")
    return texts.shown("systems", tables, [*about, "rank", *sets])


def _run_here(grid: GridSummary) -> list[dict[str, Any]]:
    """Return what is known of the systems of a grid."""
    models = {name: facts.model_dump() for name, facts in grid.models.items()}
    return [{"system": name, "family": grid.families.get(name, ""), **models.get(name, {})} for name in grid.systems]


def _not_run_here(published: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what is known of systems with published values alone."""
    rows = []
    for system, values in published.groupby("system", sort=False):
        classes = values["class"].where(values["protocol"] == "", OTHER_PROTOCOL)
        marks = [mark for mark in ("card", OTHER_PROTOCOL) if mark in set(classes)]
        measured = f"{NOT_RUN} ({', '.join(marks)})" if marks else NOT_RUN
        rows.append({"system": system, "measured": measured})
    return rows


def datasets(grid: GridSummary, answers: Answers) -> Shown:
    """Tabulate the registered facts and fetch's counts of each dataset."""
    queries = answers.scores.dropna(subset="queries").groupby("dataset")["queries"].first()
    rows = []
    for name in grid.rows:
        entry = grid.datasets[name]
        corpus, dataset = _facts(entry.corpus_record), _facts(entry.dataset_record)
        row = entry.model_dump(include={"task", "domain", "relevance", "licence"})
        row |= {"dataset": name, "documents": corpus.get("documents"), "queries": queries.get(name)}
        row["source"] = f"mean of {', '.join(entry.mean_of)}" if entry.mean_of else entry.source
        row["relevant"] = dataset["relevant"] / dataset["queries"] if dataset else None
        row |= {"in the paper": entry.statistics.relevant, "notes": _note(entry, corpus, dataset)}
        rows.append(row)
    columns = ["dataset", "source", "documents", "queries", "relevant", "in the paper", "task", "domain", "relevance"]
    return texts.shown("datasets", {"": pd.DataFrame(rows)}, [*columns, "licence", "notes"])


def _facts(record: str) -> dict[str, Any]:
    """Return fetch's counts; empty if it has not run or its record is damaged."""
    try:
        return dict(provenance.read_record(record)["facts"]) if record else {}
    except DataError:
        return {}


def _note(entry: DatasetSummary, corpus: dict[str, Any], dataset: dict[str, Any]) -> str:
    if entry.not_supplied:
        return f"not supplied: there is no folder {', '.join(entry.not_supplied)}"
    counted = [(corpus.get(key), what) for key, what in CORPUS_COUNTS.items()]
    counted += [(dataset.get(key), what) for key, what in DATASET_COUNTS.items()]
    return ", ".join(f"{count} {what}" for count, what in counted if count)
