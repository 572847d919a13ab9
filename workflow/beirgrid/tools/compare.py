"""``beirgrid compare``: compare two systems, grids or results folders cell by cell, with tests and possible causes."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import AfterValidator

from ..analysis import reproduction as breuer
from ..analysis.dataset_scores import EvaluatedDataset, by_units, read_dataset
from ..config.values import NotNegative
from ..core import files, lineage, paths, provenance
from ..core.errors import BeirgridError, DataError, nearest, quantity, say, show, suggestion, wrapped
from ..measures import lower_is_better, metric_key, written
from ..options import NameLists
from ..results import comparisons, results_folder, scores, summary
from ..results.answer_files import guarded
from ..results.comparisons import ROUNDING, student
from ..results.results_folder import Result, Results
from ..results.summary import GridSummary

SAME = 0
DIFFERENT = 1
NOT_COMPARABLE = 2
# Columns of the values, one row per metric of a pair of cells. Differences are second minus first.
_COLUMNS = [
    *("system", "other", "dataset", "metric", "queries", "first_seeds", "second_seeds", "first", "second"),
    *("difference", "low", "high", "p", "verdict", "needed", "rmse", "same"),
]
# The printed columns of a value that differs, and the titles of those that are not called by their names.
_PRINTED = ["metric", "first", "second", "difference", "low", "high", "verdict"]
_OF_REPRODUCTION = ["rmse", *breuer.COLUMNS]
_TITLES = {"first": "A", "second": "B", "difference": "B-A", "rmse": "RMSE", "ktu": "KTU", "rbo": "RBO"}
_NEEDED = "In brackets: queries that would decide."
_REPRODUCTION = "RMSE to p_paired: repro_eval's measures of Breuer et al. (2020), not corrected."
# Facts of records that are conditions; other facts are outcomes. Paths are no conditions: contents have hashes.
_FACTS = ("device", "precision", "hardware", "commit", "sha256", "files", "source_sha256", "dimension")
# Names of records that stages of one name may write for a cell.
_SEVERAL = {Path(paths.CORPUS_RECORD).name: "corpus", Path(paths.MODEL_RECORD).name: "checkpoint"}
# The system in the path of a run.
_RUN = re.compile(paths.RUN.format(system="([^/]+)", dataset="[^/]+"))


class Pair(NamedTuple):
    """A dataset with a system of each side, and the runs of both cells: one, one per seed, or none if it is absent."""

    systems: tuple[str, str]
    dataset: str
    runs: tuple[tuple[Result, ...], tuple[Result, ...]]
    baselines: tuple[tuple[Result, ...], tuple[Result, ...]] = ((), ())


# Steps by what differs in their records, with the side that alone has it.
Changes = dict[tuple[str, str], dict[str, None]]


class Differences(NamedTuple):
    """What differs between two sides."""

    values: pd.DataFrame  # the columns ``_COLUMNS``
    only: list[str]  # cells that one side lacks
    refused: list[str]  # cells that cannot be compared, with the reasons
    conditions: list[Changes]  # of each cell, what differs in its records


def compare(
    a: Annotated[str, "the reference"],
    b: Annotated[str, "second side, compared with A"],
    *,
    directory: Annotated[Path, "base folder of A and B"] = Path(),
    metrics: Annotated[
        NameLists,
        AfterValidator(lambda names: tuple(dict.fromkeys(map(metric_key, names)))),
        "metrics, such as nDCG@10 (default: all that both have)",
    ] = (),
    datasets: Annotated[NameLists, "datasets (default: all)"] = (),
    tolerance: Annotated[NotNegative, "largest difference that counts as equal"] = 0.0,
    reproduction: Annotated[bool, "add repro_eval's measures of B as a reproduction of A"] = False,
    baseline: Annotated[str, "system of both sides over which --reproduction measures the effect"] = "",
    output: Annotated[Path | None, "CSV file for all values"] = None,
) -> int:
    """Compare two systems, grids or results folders, cell by cell.

    A and B are PLACE, PLACE:SYSTEM or SYSTEM. PLACE is a folder in which grids ran, its results folder, the folder of
    one grid (results/grids/NAME), the grid.json of that grid, or NAME, if that grid ran in the working directory.
    Without it, PLACE is the working directory. --directory names another directory. If only A or B names a system, the
    other side has the same system. If neither names one, all systems that both have are compared.

    exit status: 0 all compared values are the same within the tolerance; 1 a value differs, or a cell is in A or B
    only; 2 something cannot be compared.

    Raises:
        BeirgridError: a side has no results or no such system, they have no cell in common, or the output is no .csv.
    """
    try:
        if output and output.suffix != ".csv":
            raise BeirgridError(f"--output: {output} is written as CSV: name a file .csv")
        if baseline and not reproduction:
            raise BeirgridError("--baseline: only --reproduction reads it; add that")
        if reproduction:
            breuer.require()
        first, system = _side(a, directory)
        second, other = _side(b, directory)
        pairs = _pairs(first, system, second, other, datasets)
        if baseline:
            pairs = [_with_baselines(pair, baseline, first, second) for pair in pairs]
    except BeirgridError as error:
        error.exit_status = NOT_COMPARABLE
        raise
    grids = _plans(first.folder) if first.folder == second.folder else []
    differences = _differences(pairs, metrics, tolerance, grids, reproduction)
    if output:
        files.write_text(output, guarded(differences.values).to_csv(index=False))
    lines = [*_lines(differences, tolerance)]
    show(*[f"A: {a}", f"B: {b}"] * (len(lines) > 1), *lines)
    for cell in differences.refused:
        say(f"cannot be compared: {cell}")
    if differences.refused:
        return NOT_COMPARABLE
    return DIFFERENT if differences.only or not differences.values["same"].all() else SAME


def _side(text: str, directory: Path) -> tuple[Results, str]:
    """Return the results that A or B stands for, and the system if it names one."""
    place, colon, system = text.rpartition(":")
    try:
        return results_folder.find(directory / text), ""
    except DataError:
        here = None
        with contextlib.suppress(DataError):
            here = results_folder.find(directory / place)
        if not here or not (colon or here.runs(system) or nearest(system, here.systems)):
            raise
    if system and not here.runs(system):
        raise DataError(f"{text}: {here.folder} has no system {system!r}{suggestion(system, here.systems)}")
    return here, system


def _pairs(first: Results, system: str, second: Results, other: str, datasets: Sequence[str]) -> list[Pair]:
    """Pair cells of two sides by dataset, and by system unless a side names one; raise DataError if none is in both."""
    named = [(system or other, other or system)] if system or other else []
    pairs = []
    for systems in named or [(name, name) for name in dict.fromkeys([*first.systems, *second.systems])]:
        a = first.rows(systems[0])
        b = second.rows(systems[1])
        for dataset in {**a, **b}:
            pairs.append(Pair(systems, dataset, (a.get(dataset, ()), b.get(dataset, ()))))
    if unknown := [name for name in datasets if name not in {pair.dataset for pair in pairs}]:
        raise DataError(f"--datasets: neither A nor B has {unknown[0]!r}")
    pairs = [pair for pair in pairs if not datasets or pair.dataset in datasets]
    if not any(all(pair.runs) for pair in pairs):
        raise DataError("A and B have no cell in common (beirgrid list runs)")
    return pairs


def _with_baselines(pair: Pair, baseline: str, first: Results, second: Results) -> Pair:
    """Add the runs of a baseline to a pair of cells; raise DataError if a side has none."""
    found = tuple(side.rows(baseline).get(pair.dataset, ()) for side in (first, second))
    for side, name in zip("AB", found, strict=True):
        if all(pair.runs) and not name:
            raise DataError(f"--baseline: {side} has no system {baseline!r} on {pair.dataset}")
    return pair._replace(baselines=(found[0], found[1]))


# Differences ----------------------------------------------------------------------------------------------------------


def _differences(
    pairs: list[Pair],
    metrics: Sequence[str],
    tolerance: float,
    grids: Collection[GridSummary],
    reproduction: bool,
) -> Differences:
    """Compare the cells that both sides have, which ``grids`` may plan."""
    differences = Differences(pd.DataFrame(columns=_COLUMNS), [], [], [])
    tables: list[pd.DataFrame] = []
    ancestry = lineage.Ancestry()
    for pair in pairs:
        sides = zip("AB", pair.systems, pair.runs, strict=True)
        if not all(pair.runs):
            differences.only.extend(f"only in {side}: {name} on {pair.dataset}" for side, name, cell in sides if cell)
            continue
        try:
            values = _compare_cells(pair, metrics, tolerance, reproduction, ancestry)
            changed = _changed_conditions(pair)
        except DataError as error:
            differences.refused.append(f"{' and '.join(dict.fromkeys(pair.systems))} on {pair.dataset}: {error}")
            continue
        tables.append(values)
        differences.conditions.append(changed)
    if not tables:
        return differences
    values = pd.concat(tables, ignore_index=True)
    columns = [*_COLUMNS, *(name for name in breuer.COLUMNS if name in values)]
    return differences._replace(values=_decided(values, grids)[columns])


def _plans(folder: Path) -> list[GridSummary]:
    """Return the summaries of the grids in a results folder that plan a comparison."""

    def planned(path: Path) -> GridSummary | None:
        with files.reading(path):
            content = files.read_json(path)
            plans = content.get("compare") or content.get("first_stages")
        return summary.read(path) if plans else None

    return [grid for grid in results_folder.of_grids(folder, planned).values() if grid]


def _decided(values: pd.DataFrame, grids: Collection[GridSummary]) -> pd.DataFrame:
    """Add interval, p and verdict of a planned comparison as its grid has them, and of the others of each metric."""
    cells = values[["system", "other", "dataset", "metric"]].itertuples(index=False)
    plans = [comparisons.plan(grids, {system, other}, dataset, metric) for system, other, dataset, metric in cells]
    tests, margins = np.array(plans).T
    unplanned = pd.Series(tests == 0).groupby(values["metric"]).transform("sum")
    values = comparisons.decided(values, np.where(tests > 0, tests, unplanned), margins)
    lower = values["metric"].map(lower_is_better)
    better = np.where((values["difference"] > 0) != lower, "B is better", "A is better")
    return values.assign(verdict=values["verdict"].mask(values["verdict"] == comparisons.BETTER, better))


def _queries(runs: Sequence[Result]) -> list[str] | None:
    """Return the queries of a slice; None for a dataset. Raises DataError if the runs have other queries in it."""
    records = dict.fromkeys(run.slice for run in runs if run.slice)
    kept = [provenance.read_record(record)["kept"] for record in records]
    if any(of_side != kept[0] for of_side in kept):
        raise DataError(f"{' and '.join(map(str, records))} have other queries")
    return kept[0] if kept else None


def _compare_cells(
    pair: Pair, metrics: Sequence[str], tolerance: float, reproduction: bool, ancestry: lineage.Ancestry
) -> pd.DataFrame:
    """Return a row per metric of two cells. A query's score is its mean over the seeds.

    Raises:
        DataError: a file is missing or damaged, lacks a metric, or has other queries.
    """
    first, second = pair.runs
    sides = [side for side in (first, second, *pair.baselines) if side]
    runs = [*itertools.chain(*sides)]
    known, *others = [scores.read_cell(run, ancestry=ancestry)[0].means for run in runs]
    metrics = metrics or [metric for metric in known if all(metric in means for means in others)]
    if not metrics:
        raise DataError(f"{first[0].per_query} and {second[0].per_query} have no metric in common")
    paths = {f"{i:06}": run.per_query for i, run in enumerate(runs)}  # read_dataset sorts the names
    read = read_dataset(pair.dataset, paths, metrics, scores.main_metric(first[0].scores), _queries(runs))
    parts = np.split(read.scores, np.cumsum([len(side) for side in sides])[:-1], axis=1)
    over_seeds = np.stack([part.mean(axis=1) for part in parts], axis=1)
    means = read._replace(systems=("",) * len(sides), scores=over_seeds)
    rows = [_rows(cells, tolerance, reproduction) for (cells,) in by_units([means])]
    table = pd.concat(rows, ignore_index=True)
    about: dict[str, Any] = {"system": pair.systems[0], "other": pair.systems[1], "dataset": pair.dataset}
    if reproduction and len(first) == len(second) == 1 and not first[0].slice:  # the mean of seeds has none
        about |= breuer.of_rankings(first[0].run, second[0].run)
    return table.assign(**about, first_seeds=len(first), second_seeds=len(second))


def _rows(cells: EvaluatedDataset, tolerance: float, reproduction: bool) -> pd.DataFrame:
    """Return a row per metric of two cells, which the cells of their baselines may follow."""
    pair, baselines = np.split(cells.scores, [2], axis=1)
    table = measure(cells._replace(scores=pair), tolerance=tolerance)
    return table.assign(**breuer.of_scores(pair, baselines if baselines.size else None)) if reproduction else table


def measure(cells: EvaluatedDataset, *, tolerance: float = 0.0) -> pd.DataFrame:
    """Return a row per metric of two cells whose rows are the units of all metrics.

    Args:
        cells: float64 [units, 2, metrics]: the reference and the other cell.
        tolerance: largest difference of means that counts as equal.
    """
    first, second = np.moveaxis(cells.scores, 1, 0)
    differences = second - first
    estimate = student(differences)
    rmse = np.sqrt((differences**2).mean(axis=0))
    values = {"metric": cells.metrics, "queries": len(first), "rmse": rmse, **estimate.columns()}
    values |= {"first": first.mean(axis=0), "second": second.mean(axis=0)}
    return pd.DataFrame(values | {"same": np.abs(estimate.mean) <= tolerance + ROUNDING})


# Conditions -----------------------------------------------------------------------------------------------------------


def _changed_conditions(pair: Pair) -> Changes:
    """Return what differs between the records of two cells, in the steps that both have, seed by seed.

    Raises DataError if a record is damaged.
    """
    changed: Changes = {}
    for first, second in (map(_conditions, runs) for runs in zip(*pair.runs, strict=False)):
        for step, number in (both for both in first if both in second):
            for change in _changes(first[step, number], second[step, number]):
                changed.setdefault(change, {})[step] = None
    return changed


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each changed condition after the side that alone has it. Of files, which have hashes, yield the number."""
    contents = before.pop("files", {})
    others = now.pop("files", {})
    names = contents.keys() | others.keys()
    if differing := [name for name in names if contents.get(name) != others.get(name)]:
        yield "", f"{len(differing)} of {quantity(len(names), 'file')}"
    for change in provenance.changes(before, now):
        side = "only A" if change.endswith(" → (none)") else "only B" if " (none) → " in change else ""
        yield side, change.replace(" → (none)", "").replace("(none) → ", "")


def _conditions(run: Result) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the conditions in the records of a run, by step and by the number of the record in the step."""
    conditions: dict[tuple[str, int], dict[str, Any]] = {}
    numbers = Counter[str]()
    for path in filter(Path.is_file, (*run.records, run.scores)):
        record = provenance.read_record(path)
        step = _SEVERAL.get(path.name, record["stage"])
        settings = provenance.without_paths(json.dumps(record["settings"]))
        settings |= settings.pop("model", {}) | settings.pop("entry", {})
        facts = record["facts"]
        conditions[step, numbers[step]] = {
            "stage version": record.get("stage_version"),
            **settings,
            **_stated(facts.get("states", {})),
            **_runs_read(record),
            **record.get("packages", {}),
            **{name: facts[name] for name in _FACTS if name in facts},
            "CPU cores": record.get("cpus"),
        }
        numbers[step] += 1
    return conditions


def _stated(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint states of itself, with the pooling by its name (mean, cls)."""
    pooling = own.get("pooling", {})
    flags = [name for name, value in pooling.items() if value is True and name.startswith("pooling_mode_")]
    modes = [re.sub("pooling_mode_|_tokens?", "", flag) for flag in flags]
    return {**own, "pooling": pooling.get("pooling_mode", ", ".join(modes))} if pooling else dict(own)


def _runs_read(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the systems whose runs a search, a reranking or a fusion reads: its first stage, or its parts."""
    if record.get("kind") not in ("search", "rerank", "fuse"):
        return {}
    inputs = record.get("job", {}).get("inputs", {})
    systems = {option: _RUN.findall(json.dumps(read, ensure_ascii=False)) for option, read in inputs.items()}
    return {option.replace("_", " "): ", ".join(names) for option, names in systems.items() if names}


# Output ---------------------------------------------------------------------------------------------------------------


def _lines(differences: Differences, tolerance: float) -> Iterator[str]:
    """Yield what is printed: the values that differ, cells of one side, and what differs in how they were computed."""
    values = differences.values
    differing = values[~values["same"].astype(bool)]
    for side, name, seeds in (("A", "system", "first_seeds"), ("B", "other", "second_seeds")):
        for system, number in values.loc[values[seeds] > 1, [name, seeds]].drop_duplicates().itertuples(index=False):
            yield f"{system} in {side}: the score of a query is its mean over {number} seeds"
    cells = _names(values).unique()
    about = quantity(len(cells), "cell") if len(cells) != 1 else cells[0]
    of = f"{len(values) - len(differing):,} of " if len(differing) or values.empty else "all " * (len(values) > 1)
    agree = quantity(len(values), "value agrees", "values agree")
    yield f"{about}: {of}{agree}{f' within {tolerance:g}' if tolerance else ''}"
    yield from differences.only
    if len(differing):
        yield ""
        yield from _table(differing, one_cell=len(cells) == 1)
    yield from _settings(differences.conditions)


def _settings(conditions: list[Changes]) -> Iterator[str]:
    """Yield a line for each list of steps, with what differs in them, below a title."""
    lines: dict[tuple[str, str], list[str]] = {}
    for change, number in sorted(Counter(itertools.chain(*conditions)).items()):
        steps = dict.fromkeys(itertools.chain(*(of_cell.get(change, ()) for of_cell in conditions)))
        side, text = change
        where = [side] * bool(side) + [quantity(number, "cell")] * (number < len(conditions))
        lines.setdefault((", ".join(steps), ", ".join(where)), []).append(text)
    if lines:
        yield from ("", "Differing settings:")
    for (steps_of, places), changes in sorted(lines.items()):
        yield from wrapped(f"  {steps_of}{f' ({places})' if places else ''}: {', '.join(changes)}", indent="    ")


def _names(values: pd.DataFrame) -> pd.Series:
    """Return the name of the cells of each row."""
    others = (" / " + values["other"]).where(values["system"] != values["other"], "")
    return values["system"] + others + " on " + values["dataset"]


def _table(differing: pd.DataFrame, one_cell: bool) -> Iterator[str]:
    """Yield a table of values that differ, the rows of each cell below its name, which a single cell needs not."""
    needed = differing["needed"].map("{:,.0f}".format).where(differing["needed"].notna(), "")
    verdicts = differing["verdict"].str.replace(" is", "") + (" (" + needed + ")").where(needed != "", "")
    table = differing.assign(metric=differing["metric"].map(written), verdict=verdicts)
    reproduction = [name for name in _OF_REPRODUCTION if name in table and "p_paired" in table]
    printed = table[[*_PRINTED, *reproduction]].rename(columns=_TITLES)
    in_short = {"p_paired": "{:.2g}".format}
    header, *lines = printed.to_string(index=False, float_format="%.4f", formatters=in_short).splitlines()
    yield header
    names = _names(differing)
    for cell, line in zip(names.mask(names.duplicated() | one_cell, ""), lines, strict=True):
        yield from filter(None, (cell, line))
    yield f"Paired t test, Bonferroni-corrected.{f' {_NEEDED}' if any(needed) else ''}"
    if reproduction:
        yield _REPRODUCTION
