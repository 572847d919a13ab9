"""``beirgrid compare``: compare two systems, grids or results folders cell by cell, with tests and possible causes."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from ..analysis import ranking_overlap, significance
from ..analysis.tables import EvaluatedDataset, by_units, read_dataset
from ..config.metric_names import metric_key, parse_metric, written
from ..config.values import NotNegative, Seed
from ..core import files, provenance
from ..core.errors import BeirgridError, DataError, say, show
from ..results import results_folder, scores
from ..results.answers import guarded
from ..results.results_folder import Result, Results
from ..runs import runs
from .options import NameLists
from .text import table_lines

SAME, DIFFERENT, NOT_COMPARABLE = 0, 1, 2
# Columns of the values, one row per metric of a pair of cells. Differences are second minus first.
_COLUMNS = [
    *("system", "other", "dataset", "metric", "queries", "first_seeds", "second_seeds", "first", "second"),
    *("difference", "low", "high", "p", "p_holm", "rmse", "kendall_tau_union", "rank_biased_overlap", "effect_ratio"),
    *("relative_improvement_delta", "same"),
]
# Facts of records that are conditions; other facts are outcomes. Paths are no conditions: contents have hashes.
_FACTS = ("device", "precision", "hardware", "commit", "sha256", "files", "source_sha256")
# Longest printed value of a differing condition.
_LONGEST = 48
# The run of a cell, or those of all its seeds.
Runs = tuple[Result, ...]


class Pair(NamedTuple):
    """Two cells of one dataset: their systems and their runs. A side that lacks the cell has no runs."""

    systems: tuple[str, str]
    dataset: str
    runs: tuple[Runs, Runs]


class Choice(NamedTuple):
    """What of two sides is compared, and how: the options of the command."""

    metrics: list[str]
    datasets: tuple[str, ...]
    baseline: str
    tolerance: float
    seed: int


class Differences(NamedTuple):
    """What differs between two sides.

    Attributes:
        values: the columns ``_COLUMNS``.
        only: ``side`` (A or B), ``system`` and ``dataset`` of cells of one side.
        cannot_be_compared: cells, and why.
        conditions: ``step``, ``condition``, its values in ``a`` and ``b``, and the number of ``cells``.
        seeds: ``side``, ``system`` and the systems of its ``seeds``, for systems with seeds.
    """

    values: pd.DataFrame
    only: list[dict[str, str]]
    cannot_be_compared: list[str]
    conditions: list[dict[str, Any]]
    seeds: list[dict[str, Any]]

    @property
    def exit_status(self) -> int:
        """The exit status of the command."""
        if self.cannot_be_compared:
            return NOT_COMPARABLE
        return DIFFERENT if self.only or not self.values["same"].all() else SAME


def compare(
    a: Annotated[str, "the reference"],
    b: Annotated[str, "second side, compared with A"],
    *,
    directory: Annotated[Path, "base folder of A and B"] = Path(),
    metrics: Annotated[NameLists, "metrics, such as nDCG@10 (default: all that both have)"] = (),
    datasets: Annotated[NameLists, "datasets (default: all)"] = (),
    baseline: Annotated[str, "baseline in A and B for effect ratios"] = "",
    tolerance: Annotated[NotNegative, "largest difference that counts as equal"] = 0.0,
    seed: Annotated[Seed, "seed of intervals and tests"] = 0,
    output: Annotated[Path | None, "file for all values, .csv or .json"] = None,
) -> int:
    """Compare two systems, grids or results folders, cell by cell.

    A and B are PLACE, PLACE:SYSTEM or SYSTEM. PLACE is a folder in which grids ran, its results folder, the folder of
    one grid (results/grids/NAME), the grid.json of that grid, or NAME, if that grid ran in the working directory.
    Without it, PLACE is the working directory. --directory names another directory. If only A or B names a system, the
    other side has the same system. If neither names one, all systems that both have are compared.

    exit status: 0 all compared values are the same within the tolerance; 1 a value differs, or a cell is in A or B
    only; 2 something cannot be compared.

    Raises:
        BeirgridError: a side has no results or no such system, or the sides have no cell in common.
    """
    try:
        if output and output.suffix not in (".csv", ".json"):
            raise BeirgridError(f"--output: {output} must end in .csv or .json")
        choice = Choice(list(dict.fromkeys(map(metric_key, metrics))), datasets, baseline, tolerance, seed)
        for metric in choice.metrics:
            parse_metric(metric)
        differences = _differences(_side(a, directory, baseline), _side(b, directory, baseline), choice)
    except BeirgridError as error:
        error.exit_status = NOT_COMPARABLE
        raise
    if output:
        _write(differences, output, {"a": a, "b": b, "tolerance": tolerance})
    show(f"A: {a}", f"B: {b}", *_lines(differences, tolerance))
    for refused in differences.cannot_be_compared:
        say(f"cannot be compared: {refused}")
    return differences.exit_status


def _side(text: str, directory: Path, baseline: str) -> tuple[Results, str]:
    """Return the results that A or B stands for, and the system if it names one. The results have the baseline."""
    place, system = text, ""
    if not Path(directory, text).exists() and ":" in text:
        place, _, system = text.rpartition(":")
    try:
        results = results_folder.find(place, directory=directory)
    except DataError:
        here = None
        with contextlib.suppress(DataError):
            here = results_folder.find(directory)
        if system or not here or text not in here.systems:
            raise
        results, system = here, text
    for name in filter(None, (system, baseline)):
        if not results.runs(name):
            known = ", ".join(results.systems)
            raise DataError(f"{text}: {results.folder} has no system {name!r} (it has {known})")
    return results, system


def _pairs(first: Results, one: str, second: Results, other: str) -> Iterator[Pair]:
    """Yield the cells of two sides by dataset, and by system unless a side names one."""
    named = [(one or other, other or one)] if one or other else []
    for systems in named or [(name, name) for name in dict.fromkeys([*first.systems, *second.systems])]:
        a, b = first.runs(systems[0]), second.runs(systems[1])
        yield from (Pair(systems, name, (a.get(name, ()), b.get(name, ()))) for name in {**a, **b})


# Differences ----------------------------------------------------------------------------------------------------------


def _differences(first: tuple[Results, str], second: tuple[Results, str], choice: Choice) -> Differences:
    """Compare the cells of two sides.

    Raises:
        DataError: they have no cell in common.
    """
    pairs = list(_pairs(*first, *second))
    if unknown := [name for name in choice.datasets if name not in {pair.dataset for pair in pairs}]:
        raise DataError(f"--datasets: neither A nor B has {unknown[0]!r}")
    pairs = [pair for pair in pairs if not choice.datasets or pair.dataset in choice.datasets]
    both = [pair for pair in pairs if all(pair.runs)]
    if not both:
        raise DataError("A and B have no cell in common (beirgrid list runs)")
    tables, refused, changed = list[pd.DataFrame](), list[str](), Counter[tuple[str, str, str, str]]()
    for pair in both:
        bases = [side.runs(choice.baseline).get(pair.dataset, ()) for side, _ in (first, second) if choice.baseline]
        try:
            values = _compare_cells(*pair.runs, bases if all(bases) else [], choice)
        except DataError as error:
            refused.append(f"{' and '.join(dict.fromkeys(pair.systems))} on {pair.dataset}: {error}")
            continue
        tables.append(values.assign(system=pair.systems[0], other=pair.systems[1], dataset=pair.dataset))
        a, b = map(_conditions, pair.runs)
        changed.update((*key, a.get(key, ""), b.get(key, "")) for key in sorted({*a, *b}) if a.get(key) != b.get(key))
    values = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=_COLUMNS)
    values["p_holm"] = values["p"].groupby(values["metric"]).transform(lambda p: significance.holm(p.to_numpy(float)))
    lacking = [(int(not pair.runs[0]), pair) for pair in pairs if not all(pair.runs)]
    cells = [cell for pair in both for cell in zip("AB", pair.systems, pair.runs, strict=True)]
    seeds = {(side, system): of for side, system, of in cells if len(of) > 1}
    columns = ("step", "condition", "a", "b", "cells")
    return Differences(
        values.reindex(columns=_COLUMNS),
        [{"side": "AB"[at], "system": pair.systems[at], "dataset": pair.dataset} for at, pair in lacking],
        refused,
        [dict(zip(columns, (*condition, number), strict=True)) for condition, number in changed.items()],
        [{"side": side, "system": name, "seeds": [run.system for run in of]} for (side, name), of in seeds.items()],
    )


def _compare_cells(first: Runs, second: Runs, bases: Sequence[Runs], choice: Choice) -> pd.DataFrame:
    """Return a row per metric of two cells of one dataset. A query's score is its mean over the seeds.

    Args:
        first: the reference: its run, or those of all its seeds.
        bases: the baseline's cells on both sides, or nothing.

    Raises:
        DataError: a file is missing or damaged, lacks a metric, or has other queries.
    """
    cells = [first, second, *bases]
    of_runs = [scores.read_cell(of.scores, of.per_query, of.system, of.dataset)[0] for of in itertools.chain(*cells)]
    known, *others = [of_run.means for of_run in of_runs[: len(first) + len(second)]]
    metrics = choice.metrics or [metric for metric in known if all(metric in means for means in others)]
    if not metrics:
        raise DataError(f"{first[0].per_query} and {second[0].per_query} have no metric in common")
    named = {f"{i:06}": of.per_query for i, of in enumerate(itertools.chain(*cells))}  # read_dataset sorts the names
    read = read_dataset(first[0].dataset, named, metrics, scores.main_metric(first[0].scores))
    parts = np.split(read.scores, np.cumsum(list(map(len, cells)))[:-1], axis=1)
    means = read._replace(systems=("",) * len(parts), scores=np.stack([part.mean(axis=1) for part in parts], axis=1))
    tables = [measure(of_units, tolerance=choice.tolerance, seed=choice.seed) for (of_units,) in by_units([means])]
    seeds = {"first_seeds": len(first), "second_seeds": len(second)}
    return pd.concat(tables, ignore_index=True).assign(**seeds, **_compare_rankings(first, second))


def measure(cells: EvaluatedDataset, *, tolerance: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Return a row per metric of two cells whose rows are the units of all metrics.

    Args:
        cells: float64 [units, 2 or 4, metrics]: the reference, the other cell, and the baseline on both sides.
        tolerance: largest difference of means that counts as equal.
        seed: seed of the random numbers.
    """
    first, second, *bases = np.moveaxis(cells.scores, 1, 0)
    differences = second - first
    low, high, p = np.zeros(len(cells.metrics)), np.zeros(len(cells.metrics)), np.ones(len(cells.metrics))
    if (np.abs(differences) > significance.ROUNDING).any():  # equal cells need no random numbers
        low, high = significance.mean_intervals(differences, significance.generator(seed, cells.name, "bootstrap"))
        both = np.stack([differences, np.zeros_like(differences)], axis=1)
        p = significance.randomisation(both, significance.generator(seed, cells.name, "randomisation")).p[0]
    table = pd.DataFrame(
        {
            "metric": cells.metrics,
            "queries": len(first),
            "first": first.mean(axis=0),
            "second": second.mean(axis=0),
            "difference": differences.mean(axis=0),
            "low": low,
            "high": high,
            "p": p,
            "rmse": np.sqrt((differences**2).mean(axis=0)),
            "same": np.abs(differences.mean(axis=0)) <= tolerance + significance.ROUNDING,
        }
    )
    if bases:
        improvements, of_base = np.stack([first - bases[0], second - bases[1]]).mean(axis=1), np.mean(bases, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            effects = [improvements[1] / improvements[0], np.subtract(*(improvements / of_base))]
        names = ("effect_ratio", "relative_improvement_delta")  # NaN where the reference or a baseline has none
        table = table.assign(
            **{name: np.where(np.isfinite(of), of, np.nan) for name, of in zip(names, effects, strict=True)}
        )
    return table


def _compare_rankings(first: Runs, second: Runs) -> dict[str, float]:
    """Return means over pairs of runs: seeds of equal numbers, or one run with each seed of the other cell."""
    if 1 in (len(first), len(second)):
        pairs = list(itertools.product(first, second))
    elif len(first) == len(second):
        pairs = list(zip(first, second, strict=True))
    else:
        return {}
    if not all(run.run.is_file() for pair in pairs for run in pair):
        return {}
    compared = [ranking_overlap.compare_with_reference(_rankings(one), _rankings(other)) for one, other in pairs]
    return {name: float(np.mean([of_pair[name] for of_pair in compared])) for name in compared[0]}


def _rankings(run: Result) -> dict[str, list[str]]:
    return {query: ranking.ids for query, ranking in runs.read(scores.evaluated_run(run.run, run.scores)).items()}


# Conditions -----------------------------------------------------------------------------------------------------------


def _conditions(cell: Runs) -> dict[tuple[str, str], str]:
    """Return by step and condition the values in the records of a cell, which may differ between shards and seeds.

    An unreadable record counts as a condition.
    """
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in (path for run in cell for path in (*run.records, run.scores)):
        try:
            record = provenance.read_record(path)
        except DataError:
            state = "cannot be read" if path.is_file() else "missing"
            values["record", f"{path.parent.name}/{path.name}"].add(state)
            continue
        stage = record["stage"]
        step = f"{stage} {path.stem}" if stage == "fetch" else stage  # fetch has several kinds of records
        facts = {name: record["facts"][name] for name in _FACTS if name in record["facts"]}
        of_step = {
            "stage version": record.get("stage_version", ""),
            "settings": record["settings"],
            **record.get("packages", {}),
            **facts,
            "CPU cores": record.get("cpus", ""),
        }
        for name, value in pd.json_normalize(of_step).to_dict("records")[0].items():
            if not f".{name}".endswith(".path"):
                values[step, str(name)].add(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return {key: ", ".join(sorted(of_key)) for key, of_key in values.items()}


# Output ---------------------------------------------------------------------------------------------------------------


def _write(differences: Differences, output: Path, about: Mapping[str, Any]) -> None:
    """Write the values as CSV, or everything as JSON with ``about`` before it."""
    with files.atomic(output) as temporary:
        if output.suffix == ".csv":
            guarded(differences.values).to_csv(temporary, index=False)
            return
        values = json.loads(differences.values.to_json(orient="records", double_precision=15))
        content = {**about, **differences._asdict(), "values": values, "exit_status": differences.exit_status}
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _lines(differences: Differences, tolerance: float) -> Iterator[str]:
    """Yield what is printed: the values that differ, cells of one side, and what differs in how they were computed."""
    values = differences.values
    differing = values[~values["same"].astype(bool)]
    for of_system in differences.seeds:
        members = f"{len(of_system['seeds'])} seeds ({', '.join(of_system['seeds'])})"
        yield f"{of_system['system']} in {of_system['side']}: the score of a query is its mean over {members}"
    if len(differing):
        yield ""
        yield from table_lines(*_table(differing))
        yield "interval: 95 %, BCa bootstrap over queries. p: paired randomisation test, Holm's correction over the"
        yield "cells of a metric. tau, RBO: Kendall's tau union and rank-biased overlap of the runs."
    yield ""
    yield f"Cells compared: {len(values.groupby(['system', 'other', 'dataset'])):,}"
    yield f"Values that are the same within {tolerance:g}: {len(values) - len(differing):,} of {len(values):,}"
    yield from (f"only in {cell['side']}: {cell['system']} on {cell['dataset']}" for cell in differences.only)
    if differences.conditions:
        yield ""
        yield "What differs in how these cells were computed:"
        rows = [list(map(str, condition.values())) for condition in differences.conditions]
        short = [[text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in row] for row in rows]
        yield from table_lines(["step", "condition", "A", "B", "cells"], short)


def _table(values: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the rows of the values that are printed."""
    more = {"rmse": "RMSE", "kendall_tau_union": "tau", "rank_biased_overlap": "RBO"}
    if values["effect_ratio"].notna().any():
        more |= {"effect_ratio": "effect ratio", "relative_improvement_delta": "delta RI"}
    rows = []
    for row in values.to_dict("records"):
        system = row["system"] if row["system"] == row["other"] else f"{row['system']} / {row['other']}"
        interval = f"[{row['low']:+.4f}, {row['high']:+.4f}]" if not math.isnan(row["low"]) else ""
        p = "<0.0001" if row["p_holm"] < 0.0001 else f"{row['p_holm']:.4f}"
        means = [f"{row['first']:.4f}", f"{row['second']:.4f}", f"{row['difference']:+.4f}"]
        others = ["" if pd.isna(row[name]) else f"{row[name]:.4f}" for name in more]
        rows.append([row["dataset"], system, written(row["metric"]), *means, interval, p, *others])
    return ["dataset", "system", "metric", "A", "B", "B - A", "interval", "p", *more.values()], rows
