"""``beirgrid compare``: compare two systems, grids or results folders cell by cell, with tests and possible causes."""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import AfterValidator

from ..analysis import significance
from ..analysis.tables import EvaluatedDataset, by_units, read_dataset
from ..config.metric_names import registered_metric, written
from ..config.values import NotNegative, Seed
from ..core import files, paths, provenance
from ..core.errors import BeirgridError, DataError, say, show
from ..results import results_folder, scores
from ..results.answers import guarded
from ..results.results_folder import Result, Results
from .options import NameLists
from .text import frame_lines

SAME, DIFFERENT, NOT_COMPARABLE = 0, 1, 2
# Columns of the values, one row per metric of a pair of cells. Differences are second minus first.
_COLUMNS = [
    *("system", "other", "dataset", "metric", "queries", "first_seeds", "second_seeds", "first", "second"),
    *("difference", "low", "high", "p", "p_holm", "rmse", "same"),
]
# The printed columns of a value that differs, with their titles and forms.
_PRINTED = {
    **{"dataset": ("dataset", ""), "system": ("system", ""), "metric": ("metric", "")},
    **{"first": ("A", ".4f"), "second": ("B", ".4f"), "difference": ("B - A", "+.4f"), "low": ("low", "+.4f")},
    **{"high": ("high", "+.4f"), "p_holm": ("p", ".2g"), "rmse": ("RMSE", ".4f")},
}
# Facts of records that are conditions; other facts are outcomes. Paths are no conditions: contents have hashes.
_FACTS = ("device", "precision", "hardware", "commit", "sha256", "files", "source_sha256")
_CONDITION = ("step", "condition", "a", "b", "cells")
# Records that stages of one name may write for a cell.
_SEVERAL = [Path(pattern).name for pattern in (paths.CORPUS_RECORD, paths.MODEL_RECORD)]
# Longest printed value of a differing condition.
_LONGEST = 48
# The run of a cell, or those of all its seeds; none where a side lacks the cell.
Runs = tuple[Result, ...]


class Pair(NamedTuple):
    """Two cells of one dataset."""

    systems: tuple[str, str]
    dataset: str
    runs: tuple[Runs, Runs]


class Differences(NamedTuple):
    """What differs between two sides, in the form of the JSON file; ``values`` has the columns ``_COLUMNS``."""

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
    metrics: Annotated[
        NameLists,
        AfterValidator(lambda names: tuple(dict.fromkeys(map(registered_metric, names)))),
        "metrics, such as nDCG@10 (default: all that both have)",
    ] = (),
    datasets: Annotated[NameLists, "datasets (default: all)"] = (),
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
        pairs = _pairs(*_side(a, directory), *_side(b, directory), datasets)
    except BeirgridError as error:
        error.exit_status = NOT_COMPARABLE
        raise
    differences = _differences(pairs, metrics, tolerance, seed)
    if output:
        _write(output, differences, a=a, b=b, tolerance=tolerance)
    show(f"A: {a}", f"B: {b}", *_lines(differences, tolerance))
    for cell in differences.cannot_be_compared:
        say(f"cannot be compared: {cell}")
    return differences.exit_status


def _side(text: str, directory: Path) -> tuple[Results, str]:
    """Return the results that A or B stands for, and the system if it names one."""
    place, colon, system = text.rpartition(":")
    try:
        return results_folder.find(directory / text), ""
    except DataError:
        here = None
        with contextlib.suppress(DataError):
            here = results_folder.find(directory / place)
        if not here or not (colon or here.runs(system)):
            raise
    if system and not here.runs(system):
        raise DataError(f"{text}: {here.folder} has no system {system!r} (it has {', '.join(here.systems)})")
    return here, system


def _pairs(first: Results, one: str, second: Results, other: str, datasets: Sequence[str]) -> list[Pair]:
    """Return the cells of two sides by dataset, and by system unless a side names one.

    Raises:
        DataError: they have no cell in common.
    """
    named = [(one or other, other or one)] if one or other else []
    pairs = []
    for systems in named or [(name, name) for name in dict.fromkeys([*first.systems, *second.systems])]:
        a, b = first.runs(systems[0]), second.runs(systems[1])
        pairs += [Pair(systems, dataset, (a.get(dataset, ()), b.get(dataset, ()))) for dataset in {**a, **b}]
    if unknown := [name for name in datasets if name not in {pair.dataset for pair in pairs}]:
        raise DataError(f"--datasets: neither A nor B has {unknown[0]!r}")
    pairs = [pair for pair in pairs if not datasets or pair.dataset in datasets]
    if not any(all(pair.runs) for pair in pairs):
        raise DataError("A and B have no cell in common (beirgrid list runs)")
    return pairs


# Differences ----------------------------------------------------------------------------------------------------------


def _differences(pairs: list[Pair], metrics: Sequence[str], tolerance: float, seed: int) -> Differences:
    """Compare the cells that both sides have."""
    tables, only, refused = [pd.DataFrame(columns=_COLUMNS)], list[dict[str, str]](), list[str]()
    seeds, changed = dict[tuple[str, str], list[str]](), Counter[tuple[str, ...]]()
    for pair in pairs:
        of_sides = list(zip("AB", pair.systems, pair.runs, strict=True))
        if not all(pair.runs):
            only += [{"side": side, "system": name, "dataset": pair.dataset} for side, name, of in of_sides if of]
            continue
        seeds |= {(side, name): [run.system for run in of] for side, name, of in of_sides if len(of) > 1}
        try:
            values = _compare_cells(pair, metrics, tolerance, seed)
            a, b = map(_conditions, pair.runs)
        except DataError as error:
            refused.append(f"{' and '.join(dict.fromkeys(pair.systems))} on {pair.dataset}: {error}")
            continue
        tables.append(values.assign(system=pair.systems[0], other=pair.systems[1], dataset=pair.dataset))
        steps = {step for step, _ in a} & {step for step, _ in b}
        keys = sorted(key for key in {*a, *b} if key[0] in steps and a.get(key) != b.get(key))
        changed.update((*key, a.get(key, ""), b.get(key, "")) for key in keys)
    values = pd.concat(tables[1:] or tables, ignore_index=True).reindex(columns=_COLUMNS)
    values["p_holm"] = values["p"].groupby(values["metric"]).transform(lambda p: significance.holm(p.to_numpy(float)))
    conditions = [dict(zip(_CONDITION, (*of, number), strict=True)) for of, number in changed.items()]
    of_seeds = [{"side": side, "system": name, "seeds": members} for (side, name), members in seeds.items()]
    return Differences(values, only, refused, conditions, of_seeds)


def _compare_cells(pair: Pair, metrics: Sequence[str], tolerance: float, seed: int) -> pd.DataFrame:
    """Return a row per metric of two cells. A query's score is its mean over the seeds.

    Raises:
        DataError: a file is missing or damaged, lacks a metric, or has other queries.
    """
    first, second = pair.runs
    runs = [*first, *second]
    known, *others = [scores.read_cell(of.scores, of.per_query, of.system, of.dataset)[0].means for of in runs]
    metrics = metrics or [metric for metric in known if all(metric in means for means in others)]
    if not metrics:
        raise DataError(f"{first[0].per_query} and {second[0].per_query} have no metric in common")
    paths = {f"{i:06}": of.per_query for i, of in enumerate(runs)}  # read_dataset sorts the names
    read = read_dataset(pair.dataset, paths, metrics, scores.main_metric(first[0].scores))
    parts = np.split(read.scores, [len(first)], axis=1)
    means = read._replace(systems=("", ""), scores=np.stack([part.mean(axis=1) for part in parts], axis=1))
    tables = [measure(of_units, tolerance=tolerance, seed=seed) for (of_units,) in by_units([means])]
    return pd.concat(tables, ignore_index=True).assign(first_seeds=len(first), second_seeds=len(second))


def measure(cells: EvaluatedDataset, *, tolerance: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Return a row per metric of two cells whose rows are the units of all metrics.

    Args:
        cells: float64 [units, 2, metrics]: the reference and the other cell.
        tolerance: largest difference of means that counts as equal.
        seed: seed of the random numbers.
    """
    first, second = np.moveaxis(cells.scores, 1, 0)
    differences = second - first
    low, high, p = np.zeros(len(cells.metrics)), np.zeros(len(cells.metrics)), np.ones(len(cells.metrics))
    if (np.abs(differences) > significance.ROUNDING).any():  # equal cells need no random numbers
        low, high = significance.mean_intervals(differences, significance.generator(seed, cells.name, "bootstrap"))
        both = np.stack([differences, np.zeros_like(differences)], axis=1)
        p = significance.randomisation(both, significance.generator(seed, cells.name, "randomisation"))[0]
    means, rmse = differences.mean(axis=0), np.sqrt((differences**2).mean(axis=0))
    values = {"metric": cells.metrics, "queries": len(first)}
    values |= {"first": first.mean(axis=0), "second": second.mean(axis=0)}
    values |= {"difference": means, "low": low, "high": high, "p": p, "rmse": rmse}
    values |= {"same": np.abs(means) <= tolerance + significance.ROUNDING}
    return pd.DataFrame(values)


# Conditions -----------------------------------------------------------------------------------------------------------


def _conditions(cell: Runs) -> dict[tuple[str, str], str]:
    """Return by step and condition the values in the records of a cell, which may differ between shards and seeds.

    Raises:
        DataError: a record is damaged.
    """
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in (path for run in cell for path in (*run.records, run.scores) if path.is_file()):
        record = provenance.read_record(path)
        stage = record["stage"]
        step = f"{stage} {path.stem}" if path.name in _SEVERAL else stage
        of_step = {
            "stage version": record.get("stage_version", ""),
            "settings": record["settings"],
            **record.get("packages", {}),
            **{name: record["facts"][name] for name in _FACTS if name in record["facts"]},
            "CPU cores": record.get("cpus", ""),
        }
        for name, value in pd.json_normalize(of_step).to_dict("records")[0].items():
            if not f".{name}".endswith(".path"):
                values[step, str(name)].add(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return {key: ", ".join(sorted(of_key)) for key, of_key in values.items()}


# Output ---------------------------------------------------------------------------------------------------------------


def _write(output: Path, differences: Differences, **about: Any) -> None:
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
        both = differing["system"] + (" / " + differing["other"]).where(differing["system"] != differing["other"], "")
        yield ""
        yield from frame_lines(differing.assign(system=both, metric=differing["metric"].map(written)), _PRINTED)
        yield "low, high: 95 % interval, BCa bootstrap over queries. p: paired randomisation test, Holm's correction"
        yield "over the cells of a metric. RMSE: root mean square difference of the queries."
    yield ""
    yield f"Cells compared: {len(values.groupby(['system', 'other', 'dataset'])):,}"
    yield f"Values that are the same within {tolerance:g}: {len(values) - len(differing):,} of {len(values):,}"
    yield from (f"only in {cell['side']}: {cell['system']} on {cell['dataset']}" for cell in differences.only)
    if differences.conditions:
        yield ""
        yield "What differs in how these cells were computed:"
        table = pd.DataFrame(differences.conditions).astype(str)
        short = table.map(lambda text: text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
        yield from frame_lines(short, {name: (name, "") for name in _CONDITION})
