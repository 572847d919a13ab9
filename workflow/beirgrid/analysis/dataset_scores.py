"""The scores of the queries of a dataset, by system: read them, and join those of several datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from .. import measures
from ..core.errors import DataError, quantity, quoted
from ..results.scores import read_per_query
from . import significance


class EvaluatedDataset(NamedTuple):
    """The scores of the queries of one dataset.

    ``systems`` are sorted; ``scores`` is float64 [queries, systems, metrics]; ``parts`` has the number of queries of
    each part, if the dataset is the mean of several. A metric that has one value for a group of queries has it at the
    group's first query, and NaN at the others: the group is the unit of all statistics.
    """

    name: str
    systems: tuple[str, ...]
    metrics: tuple[str, ...]
    scores: np.ndarray
    parts: tuple[int, ...] | None = None

    def mean(self, metric: str, system: str) -> float:
        """Return the mean of a system in a metric."""
        units = self.select([self.metrics.index(metric)])
        column = self.systems.index(system)
        return float(significance.mean(units.scores[:, [column], 0], units.parts)[0])

    def select(self, numbers: Sequence[int]) -> EvaluatedDataset:
        """Return the metrics of these numbers, which have the same units, with the units as rows."""
        units = np.isfinite(self.scores[:, 0, numbers[0]])
        ends = np.cumsum(self.parts or [len(units)])[:-1]
        parts = tuple(int(part.sum()) for part in np.split(units, ends)) if self.parts else None
        metrics = tuple(self.metrics[number] for number in numbers)
        return self._replace(metrics=metrics, scores=self.scores[units][:, :, numbers], parts=parts)


def read_dataset(
    name: str,
    paths: Mapping[str, Path],
    metrics: Sequence[str],
    main: str = measures.USUAL,
    queries: list[str] | None = None,
) -> EvaluatedDataset:
    """Read the scores of one dataset: per system, its per-query file. ``main`` is the dataset's main metric.

    Args:
        queries: those of a slice; all by default.

    Raises:
        DataError: a file cannot be read, lacks a metric, has a query twice or a value that is no number, or has other
            queries than the other systems' files.
    """
    tables = {system: read_per_query(paths[system], metrics) for system in sorted(paths)}
    first, *others = tables
    for system in others:
        if not tables[first].index.symmetric_difference(tables[system].index).empty:
            sides = (f"{paths[side]} ({quantity(len(tables[side]), 'query')})" for side in (first, system))
            raise DataError(
                f"{' and '.join(sides)} should have the same queries of {name}. One of them was evaluated with other "
                "qrels: delete it and run the workflow again."
            )
    if queries is None:
        return stack(name, tables, main)
    if missing := [query for query in queries if query not in tables[first].index]:
        raise DataError(f"{paths[first]} lacks the query {quoted(missing[0])} of the slice {name}")
    return stack(name, {system: table.loc[queries] for system, table in tables.items()}, main)


def stack(name: str, tables: Mapping[str, pd.DataFrame], main: str = measures.USUAL) -> EvaluatedDataset:
    """Return a dataset from queries × metrics of each system; all tables have the same queries and metrics."""
    systems = tuple(sorted(tables))
    first = tables[systems[0]]
    ordered = [tables[system].reindex(index=first.index, columns=first.columns) for system in systems]
    scores = np.stack([table.to_numpy(np.float64) for table in ordered], axis=1)
    for column, metric in enumerate(first.columns):
        meant = main if metric == measures.MAIN else metric
        if group := measures.parse_metric(str(meant)).measure.group:
            stems = [group(str(query)) for query in first.index]
            scores[:, :, column] = _of_groups(scores[:, :, column], stems)
    return EvaluatedDataset(name, systems, tuple(first.columns), scores)


def _of_groups(scores: np.ndarray, stems: Sequence[str]) -> np.ndarray:
    """Return the values of groups at their first queries, and NaN at the others, float64 [queries, systems].

    A group's value is the sum over its queries, divided by the mean number of queries of a group. So the mean over the
    groups is the mean over the queries.
    """
    stemmed = pd.DataFrame(scores).groupby(np.array(stems), sort=False)
    values = stemmed.transform("sum") * (stemmed.ngroups / len(scores))
    values[stemmed.cumcount() > 0] = np.nan
    return values.to_numpy()


def by_units(datasets: Sequence[EvaluatedDataset]) -> Iterator[list[EvaluatedDataset]]:
    """Yield the datasets once for all metrics that have the same units everywhere, with these units as rows."""
    kinds: dict[bytes, list[int]] = {}
    for number in range(len(datasets[0].metrics)):
        units = b"".join(np.isfinite(dataset.scores[:, :1, number]).tobytes() for dataset in datasets)
        kinds.setdefault(units, []).append(number)
    for numbers in kinds.values():
        yield [dataset.select(numbers) for dataset in datasets]


def mean_of(name: str, datasets: Sequence[EvaluatedDataset]) -> EvaluatedDataset:
    """Return a dataset whose scores are the unweighted mean of several, over the systems that all of them have."""
    systems = sorted(set.intersection(*(set(dataset.systems) for dataset in datasets)))
    scores = []
    for dataset in datasets:
        places = [dataset.systems.index(system) for system in systems]
        scores.append(dataset.scores[:, places])
    parts = tuple(map(len, scores))
    return EvaluatedDataset(name, tuple(systems), datasets[0].metrics, np.concatenate(scores), parts)
