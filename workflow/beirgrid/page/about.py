"""The tables of the page on systems and datasets: what is known of them beside their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from ..config.metric_names import lower_is_better
from ..config.registry import mteb_models
from ..core import provenance
from ..core.errors import DataError
from ..results import table_files
from ..results.answers import Answers
from ..results.published import OTHER_PROTOCOL
from ..results.summary import DatasetSummary, GridSummary
from . import texts
from .sections import ByMetric, Rows

# Label of a system with published values only.
NOT_RUN = "published, not run here"
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
    tasks: dict[str, list[str]] = {}
    for row in grid.counted_once:
        tasks.setdefault(grid.datasets[row].task or "other", []).append(row)
    tasks = tasks if len(tasks) > 1 else {}
    columns = ["system", "family", "model", "parameters (M)", "dimensions", "length", "licence", "facts from"]
    columns += ["rank", "mean", *(f"{task} ({len(names)})" for task, names in tasks.items())]
    scores = table_files.shown_scores(answers.scores, grid)
    rows: dict[str, Rows] = {}
    for metric in grid.metrics:
        values, means, ranks = _ranking(grid, scores, metric, grid.counted_once)
        of_tasks = [means, *(values[names].mean(axis=1, skipna=False) for names in tasks.values())]
        rows[metric] = [
            [system, grid.families.get(system, ""), *_model(grid, system), texts.count(rank)]
            + [texts.value(of[system]) for of in of_tasks]
            for system, rank in zip(map(str, ranks.index), ranks, strict=True)
        ]
    return ByMetric("systems", columns, 1, ("family", "model", "licence", "facts from"), rows)


def not_run_here(grid: GridSummary, answers: Answers) -> ByMetric:
    """Tabulate systems with published values and the grid's systems, by their means over the grid's datasets.

    A system that lacks one of these datasets has no mean and no rank.
    """
    both = pd.concat([table_files.shown_scores(answers.scores, grid), answers.published], ignore_index=True)
    columns = ["system", "measured", "parameters (M)", "rank", "mean", "difference to the best run here", *grid.rows]
    sizes = {name: facts.parameters for name, facts in grid.models.items()}
    for name, checkpoint in zip(answers.published["system"], answers.published["checkpoint"], strict=True):
        model = mteb_models().get(checkpoint or name)
        sizes[name] = model.parameters if model else None
    rows: dict[str, Rows] = {}
    for metric in grid.metrics:
        values, means, ranks = _ranking(grid, both, metric, table_files.averaged_rows(grid))
        shown, of_metric = values.T.map(texts.value), answers.published[answers.published["metric"] == metric]
        classes = of_metric["class"].where(of_metric["protocol"] == "", OTHER_PROTOCOL)
        for system, name, mark in zip(of_metric["system"], of_metric["dataset"], classes, strict=True):
            shown.loc[name, system] += f" ({mark})" if mark in (OTHER_PROTOCOL, "card") else ""
        ours = means[list(grid.systems)]
        away = means - (ours.min() if lower_is_better(metric) else ours.max())
        rows[metric] = []
        for system, rank in zip(map(str, ranks.index), ranks, strict=True):
            numbers = [texts.count(rank), texts.value(means[system]), texts.difference(away[system])]
            where = "here" if system in grid.systems else NOT_RUN
            rows[metric].append([system, where, _number(sizes.get(system)), *numbers, *shown[system]])
    return ByMetric("published", columns, 2, ("measured",), rows)


def _ranking(
    grid: GridSummary, scores: pd.DataFrame, metric: str, averaged: Sequence[str]
) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Return values of a metric, systems × datasets; means of systems with all averaged datasets; and sorted ranks."""
    values = scores[scores["metric"] == metric].pivot(index="system", columns="dataset", values="value")
    others = [name for name in values.index if name not in grid.systems]
    values = values.reindex(index=[*grid.systems, *others], columns=list(grid.rows))
    means = values[list(averaged)].mean(axis=1, skipna=False)
    ranks = means.rank(method="min", ascending=lower_is_better(metric))
    return values, means, ranks.sort_values(kind="stable")


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,g}"


def _model(grid: GridSummary, system: str) -> list[str]:
    """Return the facts of a system's model as texts."""
    if not (facts := grid.models.get(system)):
        return [""] * 6
    numbers = map(_number, (facts.parameters, facts.dimensions, facts.max_length))
    return [facts.model, *numbers, facts.licence, facts.source]


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
