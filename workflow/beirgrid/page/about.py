"""The tables of the page on systems and datasets: what is known of them beside their scores."""

from __future__ import annotations

import math
from typing import Any

from ..config.metric_names import lower_is_better
from ..core import provenance
from ..core.errors import DataError
from ..results.answers import Answers
from ..results.summary import DatasetSummary, GridSummary
from . import texts
from .sections import ByMetric, Rows

# Counts by fetch that a reader should know.
CORPUS_COUNTS = {"empty_documents": "documents without text", "duplicates_dropped": "duplicate documents dropped"}
DATASET_COUNTS = {
    "duplicates_dropped": "duplicate queries dropped",
    "unknown_documents": "judged documents not in the corpus",
    "queries_without_relevant": "queries without relevant documents",
    "overruled_judgements": "judgements overruled",
    "own_documents_dropped": "queries that are documents and do not retrieve themselves",
    "same_ids_kept": "queries with the id of another document",
}


def leaderboard(grid: GridSummary, answers: Answers) -> ByMetric:
    """Rank the systems by their means, with means per task and the facts of their models."""
    counted = grid.counted_once
    tasks: dict[str, list[str]] = {}
    for row in counted:
        tasks.setdefault(grid.datasets[row].task or "other", []).append(row)
    tasks = tasks if len(tasks) > 1 else {}
    columns = ["system", "family", "model", "parameters (M)", "dimensions", "length", "licence", "facts from"]
    columns += ["rank", "mean"]
    columns += [f"{task} ({len(names)})" for task, names in tasks.items()]
    rows: dict[str, Rows] = {}
    for metric in grid.metrics:
        of_metric = answers.scores[answers.scores["metric"] == metric]
        values = of_metric.pivot(index="system", columns="dataset", values="value").reindex(list(grid.systems))
        values = values.reindex(columns=counted)
        means = values.mean(axis=1, skipna=False)
        ranks = means.rank(method="min", ascending=lower_is_better(metric))
        of_tasks = [values[names].mean(axis=1, skipna=False) for names in tasks.values()]
        rows[metric] = [
            [
                str(system),
                grid.families.get(str(system), ""),
                *_model(grid, str(system)),
                texts.count(ranks[system]),
                *(texts.value(of[system]) for of in [means, *of_tasks]),
            ]
            for system in ranks.sort_values(kind="stable").index
        ]
    return ByMetric("systems", columns, 1, ("family", "model", "licence", "facts from"), rows)


def _model(grid: GridSummary, system: str) -> list[str]:
    """Return the facts of a system's model as texts."""
    if not (facts := grid.models.get(system)):
        return [""] * 6
    numbers = [facts.parameters, facts.dimensions, facts.max_length]
    shown = ["" if number is None else f"{number:,g}" for number in numbers]
    return [facts.model, *shown, facts.licence, facts.source]


def datasets(grid: GridSummary, answers: Answers) -> Rows:
    """Tabulate the registered facts and fetch's counts of each dataset."""
    queries = answers.scores.dropna(subset="queries").groupby("dataset")["queries"].first().to_dict()
    rows = []
    for name in grid.rows:
        entry = grid.datasets[name]
        corpus, dataset = _facts(entry.corpus_record), _facts(entry.dataset_record)
        relevant = f"{dataset['relevant'] / dataset['queries']:.1f}" if dataset else ""
        published = entry.statistics.relevant
        source = f"mean of {', '.join(entry.mean_of)}" if entry.mean_of else entry.source
        rows.append(
            [
                name,
                source,
                texts.count(corpus.get("documents", math.nan)),
                texts.count(queries.get(name, math.nan)),
                relevant,
                "" if published is None else f"{published}",
                entry.task,
                entry.domain,
                entry.relevance,
                entry.licence,
                _note(entry, corpus, dataset),
            ]
        )
    return rows


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
