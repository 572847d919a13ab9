"""``beirgrid compare``: compare two systems, grids or results folders cell by cell, with tests and possible causes."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config.metric_names import metric_key, parse_metric, written
from ..config.values import SEED_LIMIT
from ..core import files
from ..core.errors import BeirgridError, DataError, say, show
from ..results import conditions, results_folder, scores
from ..results.answers import guarded
from ..results.results_folder import Result, Results
from ..runs import runs
from .text import columned

if TYPE_CHECKING:
    import pandas as pd

SAME, DIFFERENT = 0, 1
_PLACES = """\
A and B are PLACE, PLACE:SYSTEM or SYSTEM. PLACE is a folder in which grids ran, its results folder, the folder of one
grid (results/grids/NAME), the grid.json of that grid, or NAME, if that grid ran in the working directory. Without it,
PLACE is the working directory. --directory names another directory. If only A or B names a system, the other side has
the same system. If neither names one, all systems that both have are compared.

exit status: 0 all compared values are the same within the tolerance; 1 a value differs, or a cell is in A or B only;
2 something cannot be compared."""
# Longest printed value of a differing condition.
_LONGEST = 48


class NotComparableError(BeirgridError):
    """A and B cannot be compared."""

    exit_status = 2


class Side(NamedTuple):
    """One side of a comparison: its results, and a system if named."""

    text: str
    found: Results
    system: str

    def cells(self, other: Side, datasets: Iterable[str] | None) -> dict[tuple[str, str], Compared]:
        """Return the cells to compare, by the system and dataset that they are compared as."""
        name = self.system or other.system
        return {
            ("" if name else system, dataset): Compared(system, dataset, runs)
            for system in ([name] if name else self.found.systems)
            for dataset, runs in self.found.runs(system).items()
            if not datasets or dataset in datasets
        }


class Compared(NamedTuple):
    """A cell of A or B: a system on a dataset, and its run, or those of all its seeds."""

    system: str
    dataset: str
    runs: tuple[Result, ...]

    @property
    def per_query(self) -> list[Path]:
        """The files of values per query, after comparing them with their records and with the means.

        Raises:
            DataError: a file is missing or damaged, or is of another system or dataset.
        """
        for run in self.runs:
            scores.read_cell(run.scores, run.per_query, run.system, run.dataset)
        return [run.per_query for run in self.runs]


class ComparedPair(NamedTuple):
    """A cell of A and the cell of B that it is compared with."""

    first: Compared
    second: Compared

    @property
    def name(self) -> str:
        """The name of the pair in messages."""
        systems = dict.fromkeys((self.first.system, self.second.system))
        return f"{' and '.join(systems)} on {self.first.dataset}"

    @property
    def runs(self) -> list[tuple[Result, Result]]:
        """The runs of A and B that belong together: seeds of equal numbers, or one run with each seed of the other."""
        first, second = self.first.runs, self.second.runs
        if 1 in (len(first), len(second)):
            return list(itertools.product(first, second))
        return list(zip(first, second, strict=True)) if len(first) == len(second) else []


class Report(NamedTuple):
    """The result of a comparison: values, cells on one side only, cells that cannot be compared, differing conditions.

    ``seeds`` has the systems with seeds that were compared: A or B, the system, and the systems of its seeds.
    """

    values: pd.DataFrame
    only: list[tuple[str, str, str]]
    refused: list[str]
    conditions: list[tuple[str, str, str, str, int]]
    seeds: list[tuple[str, str, tuple[str, ...]]]

    @property
    def exit_status(self) -> int:
        """The exit status of the command."""
        if self.refused:
            return NotComparableError.exit_status
        return DIFFERENT if self.only or not self.values["same"].all() else SAME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid compare``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _PLACES
    parser.add_argument("a", metavar="A", help="the reference")
    parser.add_argument("b", metavar="B", help="second side, compared with A")
    parser.add_argument("--directory", default=Path(), type=Path, help="base folder of A and B")
    parser.add_argument(
        "--metrics",
        type=metric_key,
        nargs="+",
        default=[],
        help="metrics, such as nDCG@10 (default: all that both have)",
    )
    parser.add_argument("--datasets", nargs="+", default=[], help="datasets (default: all)")
    parser.add_argument("--baseline", default="", help="baseline in A and B for effect ratios")
    parser.add_argument("--tolerance", type=_tolerance, default=0.0, help="largest difference that counts as equal")
    parser.add_argument("--seed", type=_seed, default=0, help="seed of intervals and tests (default: 0)")
    parser.add_argument("--output", type=Path, help="file for all values, .csv or .json")
    parser.set_defaults(run=run)


def _tolerance(text: str) -> float:
    if not 0 <= (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or a number above 0")
    return value


def _seed(text: str) -> int:
    if not text.isdecimal() or len(text) > 10 or int(text) >= SEED_LIMIT:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number below {SEED_LIMIT:,}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Compare, print, and return the exit status."""
    if args.output and args.output.suffix not in (".csv", ".json"):
        raise NotComparableError(f"--output: {args.output} must end in .csv or .json")
    try:
        args.metrics = list(dict.fromkeys(args.metrics))
        for metric in args.metrics:
            parse_metric(metric)
        first, second = (_side(text, args.directory, args.baseline) for text in (args.a, args.b))
        report = compare(first, second, args)
    except BeirgridError as error:
        raise NotComparableError(str(error)) from None
    if args.output:
        _write(report, args)
    show(*_lines(report, args))
    for refused in report.refused:
        say(f"cannot be compared: {refused}")
    return report.exit_status


def _side(text: str, directory: Path, baseline: str) -> Side:
    """Return what A or B stands for; it must have the baseline, if one is named."""
    place, system = text, ""
    if not Path(directory, text).exists() and ":" in text:
        place, _, system = text.rpartition(":")
    try:
        found = results_folder.find(place, directory=directory)
    except BeirgridError:
        if system or not _is_system(text, directory):
            raise
        found, system = results_folder.find("", directory=directory), text
    for name in filter(None, (system, baseline)):
        if not found.runs(name):
            known = ", ".join(found.systems)
            raise NotComparableError(f"{text}: {found.folder} has no system {name!r} (it has {known})")
    return Side(text, found, system)


def _is_system(name: str, directory: Path) -> bool:
    """Tell whether a name is that of a system with results in a directory."""
    with contextlib.suppress(BeirgridError):
        return name in results_folder.find("", directory=directory).systems
    return False


def compare(first: Side, second: Side, args: argparse.Namespace) -> Report:
    """Compare two sides.

    Raises:
        NotComparableError: they have no cell in common.
    """
    import pandas as pd

    from ..analysis import against

    known = {dataset for side in (first, second) for _, dataset in side.found.cells}
    if unknown := [dataset for dataset in args.datasets if dataset not in known]:
        raise NotComparableError(f"--datasets: neither {first.text} nor {second.text} has {unknown[0]!r}")
    of_first, of_second = first.cells(second, args.datasets), second.cells(first, args.datasets)
    pairs = [ComparedPair(cell, of_second[key]) for key, cell in of_first.items() if key in of_second]
    if not pairs:
        raise NotComparableError(f"{first.text} and {second.text} have no cell in common: {_have(first, second)}")
    only = [("A", cell.system, cell.dataset) for key, cell in of_first.items() if key not in of_second]
    only += [("B", cell.system, cell.dataset) for key, cell in of_second.items() if key not in of_first]
    tables, refused, found = [], [], Counter[tuple[str, str, str, str]]()
    for pair in pairs:
        try:
            tables.append(_compared(pair, first, second, args))
        except DataError as error:
            refused.append(f"{pair.name}: {error}")
            continue
        both = [conditions.read(path for run in cell.runs for path in (*run.records, run.scores)) for cell in pair]
        found.update(conditions.differences(*both))
    values = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=against.COLUMNS)
    values["p_holm"] = against.corrected(values["p"], values["metric"])
    values = values.reindex(columns=against.COLUMNS)
    return Report(values, only, refused, [(*key, count) for key, count in found.items()], _seeds(pairs))


def _seeds(pairs: Iterable[ComparedPair]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the systems with seeds: A or B, the system, and the systems of its seeds."""
    found = {
        (side, cell.system): tuple(run.system for run in cell.runs)
        for pair in pairs
        for side, cell in zip("AB", pair, strict=True)
    }
    return [(*key, members) for key, members in found.items() if len(members) > 1]


def _have(*sides: Side) -> str:
    cells = [[f"{name} on {row}" for name in side.found.systems for row in side.found.runs(name)] for side in sides]
    return "; ".join(f"{side.text} has {', '.join(of_side)}" for side, of_side in zip(sides, cells, strict=True))


def _compared(pair: ComparedPair, first: Side, second: Side, args: argparse.Namespace) -> pd.DataFrame:
    """Return a row per metric of one pair.

    Raises:
        DataError: a file is missing or damaged, lacks a metric, or has other queries.
    """
    from ..analysis import against
    from ..analysis.reproducibility import compare_rankings

    dataset = pair.first.dataset
    sides = against.Sides(*(cell.per_query for cell in pair))
    known, *others = [_metrics(path) for of_side in sides for path in of_side]
    metrics = args.metrics or [metric for metric in known if all(metric in of_file for of_file in others)]
    if not metrics:
        raise DataError(f"{sides.first[0]} and {sides.second[0]} have no metric in common")
    bases = [side.found.runs(args.baseline).get(dataset) for side in (first, second)]
    of_bases = [Compared(args.baseline, dataset, runs).per_query for runs in bases if runs]
    baselines = against.Sides(*of_bases) if len(of_bases) == 2 else None
    main = scores.main_metric(pair.first.runs[0].scores)
    table = against.compare(
        dataset, sides, metrics, main=main, baselines=baselines, tolerance=args.tolerance, seed=args.seed
    ).assign(system=pair.first.system, other=pair.second.system, dataset=dataset)
    if pair.runs and all(run.run.is_file() for of_pair in pair.runs for run in of_pair):
        found = [compare_rankings(_ranked(one), _ranked(other)) for one, other in pair.runs]
        for name in ("kendall_tau_union", "rank_biased_overlap"):
            table[name] = sum(getattr(rankings, name) for rankings in found) / len(found)
    return table


def _ranked(cell: Result) -> dict[str, list[str]]:
    return {query: ranking.ids for query, ranking in runs.read(scores.evaluated_run(cell.run, cell.scores)).items()}


def _metrics(path: Path) -> list[str]:
    """Return the metrics of a per-query file."""
    import pyarrow.parquet as pq

    with files.reading(path):
        return [name for name in pq.read_schema(path).names if name != "query"]


def _write(report: Report, args: argparse.Namespace) -> None:
    """Write every value, and to JSON all else that was found too."""
    with files.atomic(args.output) as temporary:
        if args.output.suffix == ".csv":
            guarded(report.values).to_csv(temporary, index=False)
            return
        content = {
            "a": args.a,
            "b": args.b,
            "seeds": [dict(zip(("side", "system", "seeds"), of_system, strict=True)) for of_system in report.seeds],
            "tolerance": args.tolerance,
            "values": json.loads(report.values.to_json(orient="records", double_precision=15)),
            "only": [dict(zip(("side", "system", "dataset"), cell, strict=True)) for cell in report.only],
            "cannot_be_compared": report.refused,
            "conditions": [
                dict(zip(("step", "condition", "a", "b", "cells"), row, strict=True)) for row in report.conditions
            ],
            "exit_status": report.exit_status,
        }
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _lines(report: Report, args: argparse.Namespace) -> Iterator[str]:
    """Yield what is printed: the values that differ, cells of one side, and what differs in how they were computed."""
    differing = report.values[~report.values["same"].astype(bool)]
    yield f"A: {args.a}"
    yield f"B: {args.b}"
    for side, system, members in report.seeds:
        yield f"{system} in {side}: the score of a query is its mean over {len(members)} seeds ({', '.join(members)})"
    if len(differing):
        yield ""
        yield from columned(*_table(differing))
        yield "interval: 95 %, BCa bootstrap over queries. p: paired randomisation test, Holm's correction over the"
        yield "cells of a metric. tau, RBO: Kendall's tau union and rank-biased overlap of the runs."
    yield ""
    same = len(report.values) - len(differing)
    cells = len(report.values.groupby(["system", "other", "dataset"]))
    yield f"Cells compared: {cells:,}"
    yield f"Values that are the same within {args.tolerance:g}: {same:,} of {len(report.values):,}"
    for side, system, dataset in report.only:
        yield f"only in {side}: {system} on {dataset}"
    if report.conditions:
        yield ""
        yield "What differs in how these cells were computed:"
        rows = [[step, name, _short(a), _short(b), str(count)] for step, name, a, b, count in report.conditions]
        yield from columned(["step", "condition", "A", "B", "cells"], rows)


def _table(values: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    ratios = values["effect_ratio"].notna().any()
    columns = ["dataset", "system", "metric", "A", "B", "B - A", "interval", "p", "RMSE", "tau", "RBO"]
    columns += ["effect ratio", "delta RI"] if ratios else []
    rows = []
    for row in values.to_dict("records"):
        system = row["system"] if row["system"] == row["other"] else f"{row['system']} / {row['other']}"
        more = [_number(row["effect_ratio"]), _number(row["relative_improvement_delta"])] if ratios else []
        rows.append(
            [
                *(row["dataset"], system, written(row["metric"]), _number(row["first"]), _number(row["second"])),
                f"{row['difference']:+.4f}",
                f"[{row['low']:+.4f}, {row['high']:+.4f}]" if not math.isnan(row["low"]) else "",
                "<0.0001" if row["p_holm"] < 0.0001 else f"{row['p_holm']:.4f}",
                *(_number(row[name]) for name in ("rmse", "kendall_tau_union", "rank_biased_overlap")),
                *more,
            ]
        )
    return columns, rows


def _number(value: Any) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4f}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
