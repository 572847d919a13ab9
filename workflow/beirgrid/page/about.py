"""The tables of the page on systems and datasets: what is known of them beside their scores."""

from __future__ import annotations

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
from .texts import Columns, Shown

# Label of a system with published values only.
NOT_RUN = "published, not run here"
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


def leaderboard(grid: GridSummary, answers: Answers) -> Shown:
    """Rank the systems by their means, with means per task and the facts of their models."""
    tasks: dict[str, list[str]] = {}
    for row in grid.counted_once:
        tasks.setdefault(grid.datasets[row].task or "other", []).append(row)
    of_tasks = {f"{task} ({len(names)})": names for task, names in tasks.items() if len(tasks) > 1}
    columns: Columns = {
        **{"system": "system", "family": "family", "model": "model", "parameters (M)": "parameters"},
        **{"dimensions": "dimensions", "length": "max_length", "licence": "licence", "facts from": "source"},
        **{name: name for name in ("rank", "mean", *of_tasks)},
    }
    facts = [{"system": name, "family": grid.families.get(name, ""), **_model(grid, name)} for name in grid.systems]
    about = pd.DataFrame(facts, columns=list(columns.values())[:8]).set_index("system", drop=False)
    scores = table_files.shown_scores(answers.scores, grid)
    rows = {}
    for metric in grid.metrics:
        values, ranked = _ranking(grid, scores, metric, grid.counted_once)
        for task, names in of_tasks.items():
            ranked[task] = values[names].mean(axis=1, skipna=False)
        rows[metric] = texts.shown(about.join(ranked).loc[ranked.index], columns)
    return Shown("systems", list(columns), 1, ("family", "model", "licence", "facts from"), rows).filled()


def not_run_here(grid: GridSummary, answers: Answers) -> Shown:
    """Tabulate systems with published values and the grid's systems, by their means over the grid's datasets.

    A system that lacks one of these datasets has no mean and no rank.
    """
    both = pd.concat([table_files.shown_scores(answers.scores, grid), answers.published], ignore_index=True)
    columns: Columns = {
        **{"system": "system", "measured": "measured", "parameters (M)": "parameters", "rank": "rank", "mean": "mean"},
        **{"difference to the best run here": "away", **{row: row for row in grid.rows}},
    }
    sizes = {name: facts.parameters for name, facts in grid.models.items()}
    for name, checkpoint in zip(answers.published["system"], answers.published["checkpoint"], strict=True):
        model = mteb_models().get(checkpoint or name)
        sizes[name] = float(model["parameters"]) if model and model["parameters"] else None
    rows = {}
    for metric in grid.metrics:
        values, ranked = _ranking(grid, both, metric, table_files.averaged_rows(grid))
        cells, of_metric = values.map(texts.number), answers.published[answers.published["metric"] == metric]
        classes = of_metric["class"].where(of_metric["protocol"] == "", OTHER_PROTOCOL)
        for system, name, mark in zip(of_metric["system"], of_metric["dataset"], classes, strict=True):
            cells.loc[system, name] += f" ({mark})" if mark in (OTHER_PROTOCOL, "card") else ""
        ours = ranked["mean"].reindex(list(grid.systems))
        table = (
            ranked.join(cells)
            .reset_index(names="system")
            .assign(
                measured=["here" if name in grid.systems else NOT_RUN for name in ranked.index],
                parameters=pd.Series([sizes.get(str(name)) for name in ranked.index], dtype="float64"),
                away=(ranked["mean"] - (ours.min() if lower_is_better(metric) else ours.max())).to_numpy(),
            )
        )
        rows[metric] = texts.shown(table, columns)
    return Shown("published", list(columns), 2, ("measured",), rows).filled()


def _ranking(
    grid: GridSummary, scores: pd.DataFrame, metric: str, averaged: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return values of a metric, systems × datasets; and rank and mean of each system, the best first.

    A system without all averaged datasets has neither.
    """
    values = scores[scores["metric"] == metric].pivot(index="system", columns="dataset", values="value")
    others = [name for name in values.index if name not in grid.systems]
    values = values.reindex(index=[*grid.systems, *others], columns=list(grid.rows))
    means = values[list(averaged)].mean(axis=1, skipna=False)
    ranks = means.rank(method="min", ascending=lower_is_better(metric))
    return values, pd.DataFrame({"rank": ranks, "mean": means}).sort_values("rank", kind="stable")


def _model(grid: GridSummary, system: str) -> dict[str, Any]:
    """Return the facts of a system's model."""
    blank = dict.fromkeys(("model", "licence", "source"), "")
    return grid.models[system].model_dump() if system in grid.models else blank


def datasets(grid: GridSummary, answers: Answers) -> Shown:
    """Tabulate the registered facts and fetch's counts of each dataset."""
    queries = answers.scores.dropna(subset="queries").groupby("dataset")["queries"].first()
    rows = []
    for name in grid.rows:
        entry = grid.datasets[name]
        corpus, dataset = _facts(entry.corpus_record), _facts(entry.dataset_record)
        rows.append(
            {
                "dataset": name,
                "source": f"mean of {', '.join(entry.mean_of)}" if entry.mean_of else entry.source,
                "documents": texts.number(corpus.get("documents"), ".0f"),
                "queries": texts.number(queries.get(name), ".0f"),
                "relevant / query": f"{dataset['relevant'] / dataset['queries']:.1f}" if dataset else "",
                "relevant / query in the paper": texts.number(entry.statistics.relevant, ""),
                **{fact: getattr(entry, fact) for fact in ("task", "domain", "relevance", "licence")},
                "notes": _note(entry, corpus, dataset),
            }
        )
    words = ("source", "task", "domain", "relevance", "licence", "notes")
    return Shown("datasets", list(rows[0]), 1, words, {"": [list(row.values()) for row in rows]}).filled()


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
