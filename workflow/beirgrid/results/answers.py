"""The result tables of a grid: their columns, and what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from ..measures import lower_is_better

# The columns of each table. A column has the same type in all tables.
_COLUMNS = {
    "scores": "system dataset metric value low high queries precision checkpoints status not_judged detail",
    "seeds": "system dataset mean_of metric mean deviation seeds of",
    "verdicts": """system dataset metric value queries precision checkpoints status published difference class tolerance
        verdict source note protocol commit mteb dataset_revision recorded""",
    "costs": """system dataset stage seconds rate unit bytes peak_memory_mb device tokens price price_per_1000_queries
        finished packages command record""",
    "significance": """dataset metric queries system mean low high baseline difference difference_low difference_high
        p_randomisation p_holm p_t p_t_holm effect effect_low effect_high best in_best_group p_tukey note""",
    "pairs": """dataset metric queries system other difference difference_low difference_high p_randomisation
        p_holm p_tukey p_t p_t_holm effect effect_low effect_high standard_error degrees_of_freedom""",
    "across": """metric over datasets names system mean low_queries high_queries low_datasets high_datasets mean_rank
        borda baseline change difference difference_low_queries difference_high_queries difference_low_datasets
        difference_high_datasets wins ties losses p_t p_sign p_best own_zero_shot_mean own_zero_shot_datasets trained_on
        training_unknown note""",
    "zero_shot": "metric system other datasets names mean other_mean difference low high p_t wins ties losses",
    "published": """system dataset metric value class source note protocol checkpoint revision mteb
        dataset_revision""",
    "agreement": "dataset system other queries overlap@10 pool@5 pool@10 pool@20 pool@50",
    "efficiency": """system dataset index_bytes index_seconds query_ms peak_memory_mb device tokens price
        price_per_1000_queries""",
    "per_query": "dataset query system value",
}
TEXT = "str"
# The pandas types of columns with texts, whole numbers and booleans. All other columns have numbers.
_TYPES = {
    TEXT: """system dataset metric precision checkpoints status detail mean_of class verdict source note
        protocol commit mteb dataset_revision unit device stage finished packages command record baseline other best
        over names trained_on training_unknown checkpoint revision query""",
    "Int64": """queries seeds of datasets wins ties losses own_zero_shot_datasets tokens pool@5 pool@10 pool@20
        pool@50""",
    "boolean": "recorded in_best_group",
}
_TYPE_OF = {column: kind for kind, listed in _TYPES.items() for column in listed.split()}
# The columns of each table, with their types.
COLUMN_TYPES = {
    name: {column: _TYPE_OF.get(column, "float64") for column in listed.split()} for name, listed in _COLUMNS.items()
}

# States of a cell. Only a finished cell has a value.
DONE = "done"
PENDING = "pending"
FAILED = "failed"
REPLACED = "replaced"
NOT_SUPPLIED = "not supplied"
NOT_JUDGED = "not judged"
DECLINED = "declined"
STATUSES = (DONE, PENDING, FAILED, REPLACED, NOT_SUPPLIED, NOT_JUDGED, DECLINED)

# Sets of datasets for means: all of them, or those that no system of the table was trained on.
ALL = "all"
ZERO_SHOT = "zero-shot"
COMMON = "common"
# Over fewer datasets than this, a test that takes each dataset as one observation says nothing.
LEAST_DATASETS = 5


def columns(name: str) -> list[str]:
    """Return the columns of the named table."""
    return list(COLUMN_TYPES[name])


class Answers(NamedTuple):
    """The tables of a grid; docs/statistics.md describes those of statistics.

    Attributes:
        scores: a row per system, dataset and metric, of the parts of averaged datasets and of single seeds too.
            ``not_judged`` is a share of the top ten documents; empty where qrels list only relevant ones.
        seeds: rows of means over several datasets have an empty ``dataset``, and ``mean_of`` names the datasets.
        verdicts: each score with each reference value. ``recorded`` marks this project's own values.
        costs: each step behind each cell, with its cost and its command.
        published: published values of systems that the grid does not run, if the grid shows them.
        efficiency: size and speed of each system on each dataset.
        per_query: values of the grid's first metric, of each system on each query.
    """

    scores: pd.DataFrame
    seeds: pd.DataFrame
    verdicts: pd.DataFrame
    costs: pd.DataFrame
    significance: pd.DataFrame
    pairs: pd.DataFrame
    across: pd.DataFrame
    zero_shot: pd.DataFrame
    published: pd.DataFrame
    agreement: pd.DataFrame
    efficiency: pd.DataFrame
    per_query: pd.DataFrame

    def of_queries(self, dataset: str) -> pd.DataFrame:
        """Return the values of a dataset in the grid's first metric, float64 [queries, systems], in their order."""
        rows = self.per_query[self.per_query["dataset"] == dataset]
        values = rows.pivot(index="query", columns="system", values="value")
        return values.reindex(index=rows["query"].unique(), columns=rows["system"].unique())


def typed(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Convert a table to the columns, order and types of the named one. Texts may not be missing."""
    kinds = COLUMN_TYPES[name]
    table = table.reindex(columns=list(kinds))
    texts = [column for column, kind in kinds.items() if kind == TEXT]
    table[texts] = table[texts].astype(object).fillna("")
    return table.astype(kinds)


def verdict_counts(verdicts: pd.DataFrame, *, recorded: bool) -> dict[str, int]:
    """Count each verdict, on published values or on this project's own recorded values."""
    beside = verdicts["published"].notna() & (verdicts["recorded"].fillna(value=False) == recorded)
    return {str(verdict): int(number) for verdict, number in verdicts.loc[beside, "verdict"].value_counts().items()}


def both_ways(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return rows of the table ``pairs`` with each pair in both orders."""
    turned = pairs.rename(columns={"system": "other", "other": "system"})
    for name in ("difference", "effect"):
        low = f"{name}_low"
        high = f"{name}_high"
        turned = turned.assign(**{name: -pairs[name], low: -pairs[high], high: -pairs[low]})
    return pd.concat([pairs, turned], ignore_index=True)


def main_comparison(across: pd.DataFrame) -> pd.DataFrame:
    """Return the zero-shot rows of ``across`` if several systems have such a mean, as in the paper; otherwise the rows
    over all datasets, because the training data of too many systems is unknown.
    """
    means = across[(across["over"] == ZERO_SHOT) & across["mean"].notna()].groupby("metric").size()
    over = across["metric"].map(lambda metric: ZERO_SHOT if means.get(metric, 0) > 1 else ALL)
    return across[across["over"] == over]


def ranking(answers: Answers, systems: Sequence[str], metric: str) -> tuple[str, ...]:
    """Return systems by their mean in a metric, the best first.

    A system without a mean has the place of the mean of the scores that it has there, or comes last if it has none.
    """
    rows = main_comparison(answers.across[answers.across["metric"] == metric])
    datasets = {name for names in rows["names"].unique() for name in names.split(", ")}
    scores = answers.scores[(answers.scores["metric"] == metric) & answers.scores["dataset"].isin(datasets)]
    means = scores.groupby("system")["value"].mean() * (1 if lower_is_better(metric) else -1)
    return tuple(sorted(systems, key=lambda name: (pd.isna(means.get(name)), means.get(name, 0.0))))


def against_baseline(across: pd.DataFrame) -> pd.DataFrame:
    """Tabulate each system's mean over datasets, its change against the baseline, and the datasets on which it wins."""
    names = ["metric", "over", "datasets", "system", "mean", "baseline", "change", "wins", "ties", "losses"]
    return main_comparison(across)[names].reset_index(drop=True)
