"""Stage aggregate: compute the tables of a grid: scores, verdicts, costs and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator

from ...analysis import across
from ...analysis.tables import compare_grid
from ...collections import collection
from ...core import files, paths, provenance
from ...core.checkout import resolve_path
from ...core.provenance import Made
from ...results import cells as grid_cells
from ...results import published as references
from ...results import table_files
from ...results.answers import DONE, Answers, columns, typed
from ...results.cells import Cells, Steps
from ...results.efficiency import efficiency, price_of_queries
from ...results.published import Published
from ...results.summary import GridSummary, SummaryFile
from ...runs import runs

# In a grid's folder: the lock for writing tables.
LOCK = ".lock"


def aggregate(
    *,
    grid: SummaryFile,
    published: Annotated[tuple[Annotated[Path, AfterValidator(resolve_path)], ...], "published values, .csv"] = (),
    output: Annotated[Path, "folder to write the tables to"],
) -> Made:
    """Write the tables of a finished grid.

    Raises:
        ConfigError: a file of published values cannot be read.
        DataError: scores or records are missing, damaged, or were made with other settings.
    """
    with files.locked(output.parent / LOCK):
        cells = grid_cells.find(grid)
        grid_cells.refuse_unfinished(cells)
        answers = compute(grid, cells, published)
        table_files.write(answers, grid, output)
    verdicts = answers.verdicts["verdict"].value_counts().to_dict()
    facts = {"cells": len(grid.systems) * len(grid.rows), "verdicts": verdicts}
    return Made(facts, outputs=[output / name for name in table_files.file_names(grid)])


def compute(grid: GridSummary, cells: Cells, published: Iterable[Path]) -> Answers:
    """Compute all result tables of a grid from its cells and files of published values.

    Raises:
        ConfigError: a file of published values cannot be read.
    """
    values = {path.stem: list(references.read([path], grid.tolerances)) for path in published}
    shown = [value for name in grid.show_published for value in values.get(name, ())]
    compared, intervals = compare_grid(grid, cells)
    scores = collect_scores(grid, cells, intervals)
    steps = {
        (system, dataset): cell.steps
        for (system, dataset), cell in cells.items()
        if system not in grid.seeds and dataset not in grid.slices
    }
    return Answers(
        **compared,
        scores=scores,
        seeds=collect_seeds(grid, scores, compared["across"]),
        verdicts=judge(
            scores, chain(*values.values()), grid.tolerances, grid.meant, grid.counted_once, grid.published_as
        ),
        costs=collect_costs(steps),
        efficiency=efficiency(steps),
        agreement=collect_agreement(grid),
        per_query=collect_per_query(grid, cells),
        published=collect_published(grid, shown),
    )


def collect_scores(grid: GridSummary, cells: Cells, intervals: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the mean of each metric of each cell, including averaged datasets and means over seeds.

    Only a finished cell has a value; an averaged dataset has one if all its parts are finished.
    """
    rows: list[dict[str, Any]] = []
    for system, (dataset, entry) in product((*grid.systems, *grid.members), grid.datasets.items()):
        parts = {name: cells.get((system, name)) for name in entry.mean_of or (dataset,)}
        status, detail = grid_cells.combined(parts)
        row: dict[str, Any] = {"system": system, "dataset": dataset, "status": status, "detail": detail}
        tables = [part.per_query for part in parts.values() if part and part.per_query is not None]
        if status == DONE:
            row["queries"] = sum(map(len, tables))
            row |= _made_by([[*part.steps.values()] for part in parts.values() if part])
        for metric in grid.metrics:
            means = [table[metric].mean() for table in tables]
            value = sum(means) / len(means) if status == DONE else None
            rows.append({**row, "metric": metric, "value": value})
    of_cells = [name for name in columns("scores") if name not in ("low", "high")]
    table = pd.DataFrame(rows, columns=of_cells)
    return typed("scores", table.merge(intervals, "left", ["system", "dataset", "metric"]))


def _made_by(parts: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return precisions, commits of checkpoints, and the mean share of documents without a judgement.

    Args:
        parts: the records behind a cell, for each part of its dataset.
    """
    records = list(chain(*parts))
    commits = {commit for of_part in parts for commit in grid_cells.checkpoints(of_part).items()}
    return {
        "precision": ", ".join(sorted(grid_cells.precisions(records))),
        "checkpoints": ", ".join(f"{name}@{commit}" for name, commit in sorted(commits)),
        "not_judged": pd.Series([record["facts"].get("not_judged") for record in records], dtype="float64").mean(),
    }


def collect_seeds(grid: GridSummary, scores: pd.DataFrame, across: pd.DataFrame) -> pd.DataFrame:
    """Tabulate mean and standard deviation over the finished seeds of each system with seeds.

    A row covers a dataset, or the seeds' means over the datasets in ``mean_of``: those of the main table, and those of
    ``across``. A seed that lacks one of these datasets has no mean. ``seeds`` counts the finished seeds, ``of`` all.
    """
    sets = dict.fromkeys([table_files.name_of_mean(table_files.averaged_rows(grid)), *across["names"]])
    rows = [(name, "", [name]) for name in grid.datasets]
    rows += [("", names, names.split(", ")) for names in sets if ", " in names]
    values = {
        metric: table.pivot(index="system", columns="dataset", values="value")
        for metric, table in scores.groupby("metric")
    }
    made: list[dict[str, Any]] = []
    for (system, members), (dataset, mean_of, parts), metric in product(grid.seeds.items(), rows, grid.metrics):
        means = values[metric].loc[list(members), parts].mean(axis=1, skipna=False)
        made.append(
            {
                "system": system,
                "dataset": dataset,
                "mean_of": mean_of,
                "metric": metric,
                "of": len(members),
                "mean": means.mean(),
                "deviation": means.std(),  # denominator: seeds - 1
                "seeds": means.count(),
            }
        )
    return typed("seeds", pd.DataFrame(made))


def judge(
    scores: pd.DataFrame,
    values: Iterable[Published],
    tolerances: Mapping[str, float],
    meant: Callable[[str, str], str] = lambda metric, dataset: metric,
    averaged: Sequence[str] = (),
    names: Mapping[str, Iterable[str]] | None = None,
) -> pd.DataFrame:
    """Return each score beside each published value of its cell, with the verdict (``published.grade``).

    A score that nothing was published for has one row, with the verdict ``no reference``; the verdict on what has no
    value is its status. ``meant`` gives what a metric is on a dataset, ``names`` the names of each system in the values
    (by default its own). Rows on the means over the datasets in ``averaged`` follow.
    """
    known: dict[tuple[str, str, str], list[Published]] = {}
    judged = set(scores["dataset"])
    given = (value for value in values if value.dataset in judged)
    for system, value in references.of_systems(given, names or {system: [system] for system in scores["system"]}):
        known.setdefault((system, value.dataset, value.metric), []).append(value)
    facts = ["system", "dataset", "metric", "value", "queries", "precision", "checkpoints", "status"]
    cells: Any = scores[facts].to_dict("records")
    rows = []
    for cell in cells:
        metric = meant(cell["metric"], cell["dataset"])
        of_cell = known.get((cell["system"], cell["dataset"], metric), [])
        rows += [_verdict(cell, reference, tolerances) for reference in of_cell]
        if not of_cell:
            rows.append({**cell, "verdict": cell["status"]})
    table = typed("verdicts", pd.DataFrame(rows)).replace({"verdict": {DONE: "no reference"}})
    return pd.concat([table, _of_means(table, averaged, tolerances)], ignore_index=True)


def _verdict(cell: Mapping[str, Any], reference: Published, tolerances: Mapping[str, float]) -> dict[str, Any]:
    """Return the row of a score and a published value."""
    commits = dict(text.split("@") for text in cell["checkpoints"].split(", ") if text)
    same = references.same_commit(reference, commits)
    measured = {None: "", True: "measured on the same commit"}
    kind = reference.tolerance_class
    if kind == references.CHECKPOINT and same and cell["precision"] == "float32":
        kind = references.COMMIT
    tolerance = None if reference.protocol else tolerances[kind]
    verdict = cell["status"]
    if verdict == DONE:
        verdict = references.grade(cell["value"], reference.value, tolerance, same_commit=same)
    return {
        **reference._asdict(),
        **cell,
        "published": reference.value,
        "difference": cell["value"] - reference.value,
        "recorded": reference.recorded,
        "class": kind,
        "tolerance": tolerance,
        "verdict": verdict,
        "commit": measured.get(same, f"measured on another commit: {reference.measured_on}"),
    }


def _of_means(verdicts: pd.DataFrame, averaged: Sequence[str], tolerances: Mapping[str, float]) -> pd.DataFrame:
    """Return a verdict on the mean difference over datasets, for each system, metric and source with five or more.

    An error that moves all scores by less than the tolerance of one shows there. The means are over scores computed in
    float32 beside judged values of checkpoints, on our commit or on one that is not known.
    """
    of_checkpoints = verdicts["class"].isin((references.CHECKPOINT, references.COMMIT))
    judged = verdicts["tolerance"].notna() & (verdicts["status"] == DONE)
    exact = verdicts["precision"] == "float32"
    counted = verdicts["dataset"].isin(averaged)
    of_others = verdicts["commit"].str.contains("another")
    compared = verdicts[of_checkpoints & judged & exact & counted & ~of_others]
    groups = compared.groupby(["system", "metric", "source"], sort=False)
    means = groups[["value", "published"]].mean()
    means = means.assign(number=groups.size(), of=groups["dataset"].agg(", ".join))
    means = means[means["number"] >= references.DATASETS].reset_index()
    if len(means):
        tolerance = tolerances[references.MEAN]
        of_means = means[["value", "published"]].to_numpy()
        means["class"] = references.MEAN
        means = means.assign(
            precision="float32",
            status=DONE,
            recorded=False,
            dataset=[f"mean of {number} datasets" for number in means["number"]],
            note=[f"over {names}" for names in means["of"]],
            difference=means["value"] - means["published"],
            tolerance=tolerance,
            verdict=[references.grade(value, published, tolerance) for value, published in of_means],
        )
    return typed("verdicts", means)


def collect_published(grid: GridSummary, values: Iterable[Published]) -> pd.DataFrame:
    """Tabulate the published values of systems that the grid does not run; if a cell has several, the first."""
    own = {*chain(grid.systems, *grid.published_as.values())}
    rows = [
        value._replace(metric=metric)
        for value, metric in product(values, grid.metrics)
        if value.dataset in grid.rows and value.metric == grid.meant(metric, value.dataset)
        if not value.by_name().keys() & own
    ]
    table = pd.DataFrame(rows, columns=list(Published._fields)).drop_duplicates(["system", "dataset", "metric"])
    return typed("published", table.rename(columns={"tolerance_class": "class"}))


def collect_costs(steps: Mapping[tuple[str, str], Steps]) -> pd.DataFrame:
    """Tabulate each step behind each cell, with its cost. Shared steps are repeated for each cell."""
    rows = []
    for (system, dataset), behind in steps.items():
        for path, record in behind.items():
            facts = dict(record["facts"])
            if seconds := facts.get("query_seconds"):
                facts["queries_per_second"] = round(facts["queries"] / seconds, 1)
            rates = {f"{what}/s": facts.get(f"{what}_per_second") for what in ("documents", "pairs", "queries")}
            unit = next((unit for unit, rate in rates.items() if rate), "")
            packages = ", ".join(f"{name} {version}" for name, version in record.get("packages", {}).items())
            rows.append(
                {
                    "device": "cpu",
                    **facts,
                    **record,
                    "system": system,
                    "dataset": dataset,
                    "rate": rates.get(unit),
                    "unit": unit,
                    "packages": packages,
                    "record": path,
                    "price_per_1000_queries": price_of_queries([record]),
                    "command": provenance.command_line(record),
                }
            )
    return typed("costs", pd.DataFrame(rows))


def collect_agreement(grid: GridSummary) -> pd.DataFrame:
    """Tabulate how alike the systems rank on each dataset without qrels, from the runs that are there."""
    rankings: dict[str, dict[str, dict[str, list[str]]]] = {}
    for cell in grid.unjudged:
        run = Path(paths.RUN.format(system=cell.system, dataset=cell.dataset))
        if run.is_file():
            queries = collection.read_queries(paths.QUERIES.format(dataset=cell.dataset))
            top = runs.read_top(run, queries, max(across.DEPTHS))
            rankings.setdefault(cell.dataset, {})[cell.system] = top
    rows = [{"dataset": name, **row} for name, tops in rankings.items() for row in across.agreement(tops)]
    return typed("agreement", pd.DataFrame(rows)).round(4)


def collect_per_query(grid: GridSummary, cells: Cells) -> pd.DataFrame:
    """Tabulate the values of the grid's first metric of each finished cell, by dataset, system and query."""
    values = {
        (dataset, system): state.per_query[grid.metrics[0]]
        for dataset, system in product(grid.rows, grid.systems)
        if (state := cells.get((system, dataset))) and state.per_query is not None
    }
    table = pd.concat(values, names=["dataset", "system", "query"]).rename("value").reset_index() if values else None
    return typed("per_query", pd.DataFrame(table))
