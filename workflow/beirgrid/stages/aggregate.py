"""Stage aggregate: the tables of a grid: scores, verdicts, costs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..core import files, paths, provenance
from ..core.errors import DataError
from ..data import metrics, published

# The formats of a metric's table.
WIDE = ("csv", "md", "tex")
SCORE_COLUMNS = ["system", "dataset", "metric", "value", "queries", "precision"]
VERDICT_COLUMNS = [*SCORE_COLUMNS, "published", "difference", "tolerance", "verdict", "source", "note", "protocol"]
# What a table says where a collection that its user supplies is not there. In memory such a value is NaN.
NOT_SUPPLIED = "not supplied"
# The stages in which models read the texts of a cell. What a model was trained in is no precision of its scores.
READING_STAGES = ("expand", "encode", "retrieve", "score")
COST_COLUMNS = ["system", "dataset", "stage", "seconds", "rate", "unit", "bytes", "peak_memory_mb", "device", "record"]


class Step(NamedTuple):
    """A step behind a cell of the grid: ``record`` is what ``path`` says of it."""

    system: str
    dataset: str
    path: str
    record: dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid aggregate``."""
    parser.add_argument("--grid", required=True, type=json.loads, help="summary of the grid, as JSON")
    parser.add_argument("--published", nargs="*", default=[], type=Path, help="published values, .csv")
    parser.add_argument("--made", default=Path(paths.TABLES_MADE), type=Path, help="where to record what made them")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write results/tables/ from the metrics and records of every cell of the grid."""
    grid = args.grid
    references = list(published.read(args.published, grid["tolerances"]))
    settings = {"published": [path.name for path in args.published]}
    wide = [paths.GRID_TABLE.format(metric=metric, format=kind) for metric in grid["metrics"] for kind in WIDE]
    outputs = [paths.SCORES, paths.VERDICTS, paths.COSTS, *wide]
    with provenance.record("aggregate", args.made, settings, outputs) as facts:
        steps = list(read_steps(grid))
        scores = collect_scores(grid, cell_precisions(steps))
        verdicts = judge(scores, references, grid["tolerances"])
        _write(_named(scores), paths.SCORES)
        _write(_named(verdicts), paths.VERDICTS)
        _write(collect_costs(steps), paths.COSTS)
        for metric in grid["metrics"]:
            write_wide(scores, grid, metric)
        facts["cells"] = len(grid["systems"]) * len(grid["rows"])
        facts["verdicts"] = verdicts["verdict"].value_counts().to_dict()


def _write(table: pd.DataFrame, path: str) -> None:
    with files.atomic(path) as temporary:
        table.to_csv(temporary, index=False)


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with ``not supplied`` where a score has no value."""
    missing = table["value"].isna()
    shown = table.astype({"value": object, "queries": object})
    shown.loc[missing, ["value", "queries"]] = NOT_SUPPLIED
    return shown


def _record(path: str, grid: dict[str, Any]) -> dict[str, Any]:
    """Return a record, which must have been made with the settings that the grid asks for, where the summary has them.

    Raises:
        DataError: it is damaged, or was made with other settings.
    """
    record = provenance.read_record(path)
    wanted = grid.get("settings_keys", {}).get(path)
    if wanted and record.get("settings_key") != wanted:
        raise DataError(f"{path} was made with other settings than the grid asks for. {files.REMEDY}")
    return record


def read_steps(grid: dict[str, Any]) -> Iterator[Step]:
    """Yield each step behind each cell. The record of a step that cells share is read once."""
    records: dict[str, dict[str, Any]] = {}
    for system, entry in grid["systems"].items():
        for dataset, facts in grid["datasets"].items():
            if {"mean_of", "not_supplied"} & set(facts):
                continue
            for pattern in entry["made"]:
                for path in paths.expand_made(pattern, dataset, facts["corpus"], facts["shards"]):
                    if path not in records:
                        records[path] = _record(path, grid)
                    yield Step(system, dataset, path, records[path])


def cell_precisions(steps: Iterable[Step]) -> dict[tuple[str, str], set[str]]:
    """Return the precisions in which models read the texts of each cell (system, dataset); BM25 has none."""
    found: dict[tuple[str, str], set[str]] = {}
    for step in steps:
        if step.record["stage"] in READING_STAGES and "precision" in step.record["facts"]:
            found.setdefault((step.system, step.dataset), set()).add(step.record["facts"]["precision"])
    return found


def collect_scores(grid: dict[str, Any], precisions: dict[tuple[str, str], set[str]]) -> pd.DataFrame:
    """Return the mean of every metric of every cell, one row each; means of datasets included.

    A dataset that is not supplied has the value NaN, and so has a mean that it is part of. The column
    ``precision`` lists the precisions of the models behind a cell; it is empty where no model is.
    """
    rows = []
    for system in grid["systems"]:
        cells: dict[str, dict[str, Any]] = {}
        for dataset in grid["datasets"]:
            if not {"mean_of", "not_supplied"} & set(grid["datasets"][dataset]):
                cells[dataset] = _record(paths.METRICS.format(system=system, dataset=dataset), grid)["facts"]
                provenance.artifact(paths.PER_QUERY.format(system=system, dataset=dataset))
        for dataset, entry in grid["datasets"].items():
            if "not_supplied" in entry:
                rows += [(system, dataset, metric, float("nan"), None, "") for metric in grid["metrics"]]
                continue
            names = entry.get("mean_of", [dataset])
            parts = [cells[part] for part in names]
            precision = ", ".join(sorted(set[str]().union(*(precisions.get((system, part), ()) for part in names))))
            queries = sum(part["queries"] for part in parts)
            for metric in grid["metrics"]:
                value = sum(part["means"][metric] for part in parts) / len(parts)
                rows.append((system, dataset, metric, value, queries, precision))
    return pd.DataFrame(rows, columns=SCORE_COLUMNS).astype({"queries": "Int64"})


def judge(scores: pd.DataFrame, references: list[published.Published], tolerances: dict[str, float]) -> pd.DataFrame:
    """Return each score beside each published value of its cell, with the verdict.

    A score that nothing was published for has one row, with the verdict ``no reference``; what is not
    supplied has the verdict ``not supplied``; beside a value of another protocol stands ``other protocol``.
    """
    known: dict[tuple[str, str, str], list[published.Published]] = {}
    for reference in references:
        known.setdefault((reference.system, reference.dataset, reference.metric), []).append(reference)
    rows: list[tuple[Any, ...]] = []
    for cell in scores[SCORE_COLUMNS].itertuples(index=False, name=None):
        value = cell[SCORE_COLUMNS.index("value")]
        for reference in known.get(cell[:3], []):
            tolerance = None if reference.protocol else tolerances[reference.tolerance_class]
            if pd.isna(value):
                verdict = NOT_SUPPLIED
            elif tolerance is None:
                verdict = published.OTHER_PROTOCOL
            else:
                verdict = published.grade(value, reference.value, tolerance)
            told = (verdict, reference.source, reference.note, reference.protocol)
            rows.append((*cell, reference.value, value - reference.value, tolerance, *told))
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


def wide(scores: pd.DataFrame, grid: dict[str, Any], metric: str) -> pd.DataFrame:
    """Return datasets × systems of one metric, in the grid's order, with a row of means if it has several."""
    of_metric = scores[scores["metric"] == metric]
    table = of_metric.pivot(index="dataset", columns="system", values="value")
    table = table.reindex(index=grid["rows"], columns=list(grid["systems"]))
    averaged = averaged_rows(grid)
    if len(averaged) > 1:
        table.loc[mean_name(grid)] = table.loc[averaged].mean()
    return table


def averaged_rows(grid: dict[str, Any]) -> list[str]:
    """Return the rows that the mean is over: supplied, not over MS MARCO, which models are trained on, none twice."""
    datasets = grid["datasets"]
    parts = {part for row in grid["rows"] for part in datasets[row].get("mean_of", [])}
    rows = [row for row in grid["rows"] if datasets[row].get("corpus") != "msmarco" and row not in parts]
    return [row for row in rows if "not_supplied" not in datasets[row]]


def mean_name(grid: dict[str, Any]) -> str:
    """Return the name of the row of means: the datasets that it is over, or their number and what is left out."""
    averaged = averaged_rows(grid)
    missing = [row for row in grid["rows"] if "not_supplied" in grid["datasets"][row]]
    over = ", ".join(averaged) if len(averaged) < 4 else f"{len(averaged)} datasets"
    return f"mean of {over}" + (f" (without {', '.join(missing)})" if missing else "")


def shown(values: Iterable[float]) -> list[str]:
    """Return values as tables show them, with four decimals."""
    return [NOT_SUPPLIED if pd.isna(value) else f"{value:.4f}" for value in values]


def best(metric: str, shown: list[str]) -> str:
    """Return the best of a row of values as shown: the highest, of holes the lowest; none if none is supplied."""
    values = [text for text in shown if text != NOT_SUPPLIED]
    lower = metrics.parse_metric(metric).name in metrics.LOWER_IS_BETTER
    return (min if lower else max)(values, key=float, default="")


def precision_note(scores: pd.DataFrame, grid: dict[str, Any]) -> str:
    """Return what a table says of scores that were not computed in float32, or an empty string."""
    shown = scores[scores["dataset"].isin(grid["rows"]) & (scores["precision"] != "")]
    notes = []
    for precision, cells in shown[shown["precision"] != "float32"].groupby("precision"):
        systems = []
        for system, of_system in cells.groupby("system", sort=False):
            datasets = list(dict.fromkeys(of_system["dataset"]))
            whole = len(datasets) == shown.loc[shown["system"] == system, "dataset"].nunique()
            systems.append(str(system) if whole else f"{system} ({', '.join(datasets)})")
        notes.append(f"Computed in {precision}: {', '.join(systems)}.")
    return " ".join(notes)


def write_wide(scores: pd.DataFrame, grid: dict[str, Any], metric: str) -> None:
    """Write one metric's table as CSV, Markdown and LaTeX; the best of each row is bold in the last two."""
    table, note = wide(scores, grid, metric), precision_note(scores, grid)
    table.index.name = metric
    with files.atomic(paths.GRID_TABLE.format(metric=metric, format="csv")) as temporary:
        table.to_csv(temporary, na_rep=NOT_SUPPLIED)
    for name, render in (("md", _markdown), ("tex", _latex)):
        with files.atomic(paths.GRID_TABLE.format(metric=metric, format=name)) as temporary:
            temporary.write_text(render(table, note), encoding="utf-8")


def _cells(row: pd.Series, metric: str, bold: str) -> list[str]:
    """Return a row's values with four decimals, the best (all that show as equal to it) in bold."""
    cells = shown(row)
    return [bold.format(cell) if cell == best(metric, cells) else cell for cell in cells]


def _markdown(table: pd.DataFrame, note: str) -> str:
    lines = [[str(table.index.name), *table.columns], ["---", *["---:"] * len(table.columns)]]
    lines += [[str(name), *_cells(row, str(table.index.name), "**{}**")] for name, row in table.iterrows()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + (f"\n{note}\n" if note else "")


def _latex(table: pd.DataFrame, note: str) -> str:
    def escape(text: str) -> str:
        return text.replace("_", r"\_").replace("@", r"{@}").replace("&", r"\&").replace("%", r"\%")

    rows = [[escape(str(table.index.name)), *map(escape, table.columns)]]
    rows += [
        [escape(str(name)), *_cells(row, str(table.index.name), r"\textbf{{{}}}")] for name, row in table.iterrows()
    ]
    body = [" & ".join(cells) + r" \\" for cells in rows]
    head = rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}"
    foot = [rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{{escape(note)}}} \\"] if note else []
    lines = [head, r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", *foot, r"\end{tabular}"]
    return "\n".join(lines) + "\n"
