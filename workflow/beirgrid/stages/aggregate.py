"""Stage aggregate: the tables of a grid: scores, verdicts, costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd

from ..core import files, provenance
from ..core.errors import DataError
from ..data import published as references
from ..data import scores, tables
from ..data.entries import from_json
from ..data.published import Published
from ..data.summary import GridSummary
from ..data.tables import COST_COLUMNS, NOT_SUPPLIED, SCORE_COLUMNS, VERDICT_COLUMNS

# The formats of a metric's table.
FORMATS = ("csv", "md", "tex")
# Stages in which models read the texts of a cell. The precision of a model's training is no precision of its scores.
READING_STAGES = ("expand", "encode", "retrieve", "score")


class Step(NamedTuple):
    """A step behind a cell of the grid: the content of its record, which stands at ``path``."""

    system: str
    dataset: str
    path: str
    record: dict[str, Any]


def aggregate(
    *,
    grid: Annotated[GridSummary, from_json(GridSummary), "summary of the grid, JSON"],
    published: Annotated[tuple[Path, ...], "published values, .csv"] = (),
    output: Annotated[Path, "folder to write the tables to"],
    record: Annotated[Path, "record to write, .json"],
) -> None:
    """Make the tables of a grid: scores, verdicts, costs, and one table per metric.

    Args:
        grid: summary of the grid, which names the files to read.
        published: files of published values.
        output: folder to write scores.csv, verdicts.csv, costs.csv and {metric}.csv, .md and .tex to.
        record: record to write.

    Raises:
        ConfigError: a file of published values cannot be read.
        DataError: scores or records are missing, damaged, or have other settings than the grid asks for.
    """
    values = list(references.read(published, dict(grid.tolerances)))
    names = ["scores.csv", "verdicts.csv", "costs.csv"]
    names += [f"{metric}.{suffix}" for metric in grid.metrics for suffix in FORMATS]
    settings = {"published": [path.name for path in published]}
    with provenance.record("aggregate", record, settings, [output / name for name in names]) as facts:
        steps = list(read_steps(grid))
        found = collect_scores(grid, cell_precisions(steps))
        verdicts = judge(found, values, grid.tolerances)
        tables.write(found, output / "scores.csv")
        tables.write(verdicts, output / "verdicts.csv")
        tables.write(collect_costs(steps), output / "costs.csv")
        for metric in grid.metrics:
            tables.write_wide(found, grid, metric, output)
        facts["cells"] = len(grid.systems) * len(grid.rows)
        facts["verdicts"] = verdicts["verdict"].value_counts().to_dict()


def _record(path: str, grid: GridSummary) -> dict[str, Any]:
    """Return a record after comparing its settings with those that the grid asks for.

    Raises:
        DataError: the record is damaged, or has other settings.
    """
    record = provenance.read_record(path)
    digest = grid.settings.get(path)
    if digest and record.get("settings_key") != digest:
        raise DataError(f"{path} was made with other settings than the grid asks for. {files.REMEDY}")
    return record


def read_steps(grid: GridSummary) -> Iterator[Step]:
    """Yield each step behind each cell. The record of a step that cells share is read once."""
    records: dict[str, dict[str, Any]] = {}
    for cell in grid.cells:
        for path in cell.records:
            if path not in records:
                records[path] = _record(path, grid)
            yield Step(cell.system, cell.dataset, path, records[path])


def cell_precisions(steps: Iterable[Step]) -> dict[tuple[str, str], set[str]]:
    """Return the precisions in which models read the texts of each cell (system, dataset); BM25 has none."""
    found: dict[tuple[str, str], set[str]] = {}
    for step in steps:
        if step.record["stage"] in READING_STAGES and "precision" in step.record["facts"]:
            found.setdefault((step.system, step.dataset), set()).add(step.record["facts"]["precision"])
    return found


def collect_scores(grid: GridSummary, precisions: Mapping[tuple[str, str], set[str]]) -> pd.DataFrame:
    """Return the mean of every metric of every cell, one row each; means of datasets included.

    A dataset that is not supplied has the value NaN, and so has a mean that it is part of. The column ``precision``
    lists the precisions of the models behind a cell; it is empty where no model is.
    """
    cells: dict[tuple[str, str], scores.Scores] = {}
    for cell in grid.cells:
        _record(cell.scores, grid)
        cells[cell.system, cell.dataset] = scores.read(cell.scores)
        provenance.artifact(cell.per_query)
    rows: list[tuple[Any, ...]] = []
    for system in grid.systems:
        for dataset, entry in grid.datasets.items():
            if entry.not_supplied:
                rows += [(system, dataset, metric, float("nan"), None, "") for metric in grid.metrics]
                continue
            names = entry.mean_of or (dataset,)
            parts = [cells[system, part] for part in names]
            precision = ", ".join(sorted(set[str]().union(*(precisions.get((system, part), ()) for part in names))))
            queries = sum(part.queries for part in parts)
            for metric in grid.metrics:
                value = sum(part.means[metric] for part in parts) / len(parts)
                rows.append((system, dataset, metric, value, queries, precision))
    return pd.DataFrame(rows, columns=SCORE_COLUMNS).astype({"queries": "Int64"})


def judge(scores: pd.DataFrame, values: list[Published], tolerances: Mapping[str, float]) -> pd.DataFrame:
    """Return each score beside each published value of its cell, with the verdict.

    A score that nothing was published for has one row, with the verdict ``no reference``; what is not
    supplied has the verdict ``not supplied``; beside a value of another protocol stands ``other protocol``.
    """
    known: dict[tuple[str, str, str], list[Published]] = {}
    for reference in values:
        known.setdefault((reference.system, reference.dataset, reference.metric), []).append(reference)
    rows: list[tuple[Any, ...]] = []
    for cell in scores[SCORE_COLUMNS].itertuples(index=False, name=None):
        value = cell[SCORE_COLUMNS.index("value")]
        for reference in known.get(cell[:3], []):
            tolerance = None if reference.protocol else tolerances[reference.tolerance_class]
            if pd.isna(value):
                verdict = NOT_SUPPLIED
            elif tolerance is None:
                verdict = references.OTHER_PROTOCOL
            else:
                verdict = references.grade(value, reference.value, tolerance)
            about = (verdict, reference.source, reference.note, reference.protocol)
            rows.append((*cell, reference.value, value - reference.value, tolerance, *about))
        if cell[:3] not in known:
            verdict = NOT_SUPPLIED if pd.isna(value) else "no reference"
            rows.append((*cell, None, None, None, verdict, "", "", ""))
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS)


def collect_costs(steps: Iterable[Step]) -> pd.DataFrame:
    """Return what each step behind each cell took; steps that cells share stand in the rows of each."""
    rows = [(step.system, step.dataset, *_cost(step.record), step.path) for step in steps]
    return pd.DataFrame(rows, columns=COST_COLUMNS)


def _cost(record: dict[str, Any]) -> tuple[Any, ...]:
    facts = record["facts"]
    rate, unit = None, ""
    if "documents_per_second" in facts:
        rate, unit = facts["documents_per_second"], "documents/s"
    elif facts.get("pairs_per_second"):
        rate, unit = facts["pairs_per_second"], "pairs/s"
    elif facts.get("search_seconds"):
        rate, unit = round(facts["queries"] / facts["search_seconds"], 1), "queries/s"
    return (
        record["stage"],
        record["seconds"],
        rate,
        unit,
        facts.get("bytes"),
        record["peak_memory_mb"],
        facts.get("device", "cpu"),
    )
