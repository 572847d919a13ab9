"""Write tables of a grid: datasets × systems of one metric, as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ..core import files, provenance
from ..core.errors import DataError
from ..measures import lower_is_better, written
from . import comparisons
from .answer_files import file_name, read_answers, write_answers
from .answers import (
    DECLINED,
    DONE,
    FAILED,
    NOT_JUDGED,
    NOT_SUPPLIED,
    PENDING,
    REPLACED,
    ZERO_SHOT,
    Answers,
    both_ways,
    main_comparison,
    ranking,
)
from .published import OTHER_COMMIT, OTHER_PROTOCOL, SCORE_IS_PUBLISHED
from .summary import GridSummary

# The formats of a metric's table.
FORMATS = ("csv", "md", "tex")
_FORM = "{:.4f}".format
# Text of a mean that lacks a cell.
INCOMPLETE = "incomplete"
# Sign of a value with a warning, which a note below the table explains.
FLAW = "§"
# Signs of a value on a dataset that the system was, or may have been, trained on.
_TRAINED = "‡"
_MAYBE_TRAINED = "?"
# Characters that LaTeX would misread, or lacks in some fonts.
_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "_&%#${}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "@": "{@}",
        "–": "--",
        "†": r"$^\dagger$",
        "‡": r"$^\ddagger$",
        FLAW: r"\S{}",
        "±": r"$\pm$",
        "<": "$<$",
        ">": "$>$",
        "≤": r"$\leq$",
    }
)
# Verdicts in descending priority: a cell with several references shows the first one.
VERDICTS = (
    *("deviates", "close", "reproduced", OTHER_COMMIT, OTHER_PROTOCOL, SCORE_IS_PUBLISHED),
    *("no reference", FAILED, REPLACED, PENDING, NOT_JUDGED, NOT_SUPPLIED, DECLINED, ""),
)
_CELL = ["dataset", "system"]
BEST_COLUMN = "open against the best"
DEVIATION = (
    "±: standard deviation over the seeds (denominator: seeds - 1); for a mean over datasets, that of the seeds' means."
)
_GROUP = "†: open against the best of the row ({})."


def in_latex(text: str) -> str:
    """Return a text for LaTeX."""
    return text.translate(_LATEX)


def file_names(grid: GridSummary) -> list[str]:
    """Return the names of all table files of a grid, without their record."""
    of_metrics = (f"{metric}.{suffix}" for metric in grid.metrics for suffix in FORMATS)
    return [*map(file_name, Answers._fields), *of_metrics]


def read(grid: GridSummary, folder: Path) -> Answers:
    """Read the tables of a grid.

    Raises:
        DataError: a table is missing, damaged or of another grid.
    """
    for name in Answers._fields:
        provenance.artifact(folder / file_name(name))
    answers = read_answers(folder)
    cells = set(answers.scores[["system", "dataset", "metric"]].itertuples(index=False, name=None))
    wanted = {(cell.system, cell.dataset, metric) for cell in grid.cells for metric in grid.metrics}
    others = {*answers.scores["system"]} - {*grid.systems, *grid.members}
    if wanted - cells or others:
        raise DataError(f"{folder / 'scores.csv'} has other cells than the grid. {files.REMEDY}")
    return answers


def write(answers: Answers, grid: GridSummary, folder: Path) -> bool:
    """Write all tables of a grid to a folder, and delete those of metrics that the grid lacks.

    Unchanged files are not written. Returns whether any file was written.
    """
    changed = [write_answers(answers, folder)]
    for metric in grid.metrics:
        notes = common_notes(grid, answers)
        if len(grid.systems) > 1:
            notes = [_GROUP.format(comparisons.tests_of(grid, metric)), *notes]
        changed.append(write_wide(wide(answers, grid, metric), notes, folder))
    for path in folder.glob("*@*"):
        if path.suffix[1:] in FORMATS and path.stem not in grid.metrics:
            path.unlink(missing_ok=True)
    return any(changed)


def ordered(grid: GridSummary, answers: Answers) -> GridSummary:
    """Return a grid with its systems in the order of tables: that of their scores, if the grid asks for no other."""
    if grid.order == "grid":
        return grid
    return grid.model_copy(update={"systems": ranking(answers, grid.systems, grid.metrics[0])})


def cell_facts(answers: Answers, grid: GridSummary, metric: str) -> pd.DataFrame:
    """Return what is known of each score of a metric and of each mean over datasets, by dataset and system.

    In place of a dataset, a row of across.csv has ``{over}: {names}``, and the mean of the written tables its name.
    ``text`` is the value with four decimals, or the reason for none. ``best`` tells whether no such text of the dataset
    is better, ``alike`` whether the system is indistinguishable from the best, ``certain`` whether it differs from the
    baseline. ``common_notes`` explains ``signs``.
    """
    tables = {name: table[table["metric"] == metric] for name, table in answers._asdict().items() if "metric" in table}
    tables["seeds"] = tables["seeds"][tables["seeds"]["seeds"] == tables["seeds"]["of"]]
    rows = _dataset_facts(tables, grid)
    of_means = _mean_facts(tables, grid, rows).reindex(columns=rows.columns)
    rows = pd.concat([rows, of_means], ignore_index=True)
    rows = rows.fillna({"alike": False, "certain": False, "verdict": ""})
    rows["value"] = rows["value"].where(rows["status"] == DONE)
    done = rows["value"].notna()
    rows["text"] = rows["value"].map(_FORM).where(done, rows["status"])
    numbers = rows["value"].map(lambda value: float(_FORM(value)))  # values that look equal are equally good
    extremes = numbers.groupby(rows["dataset"]).transform("min" if lower_is_better(metric) else "max")
    rows["best"] = numbers == extremes
    trained = [training_sign(grid, system, name) for name, system in rows[_CELL].itertuples(index=False)]
    alike = (rows["alike"] & ~rows["best"]).map({True: "†", False: ""})
    flaws = (rows["detail"] != "").map({True: FLAW, False: ""})
    rows["signs"] = (alike + trained + flaws).where(done, "")
    rows.index = pd.MultiIndex.from_frame(rows[_CELL])
    return rows


def training_sign(grid: GridSummary, system: str, row: str) -> str:
    """Return the sign of a system's values on a row that it was, or may have been, trained on; otherwise nothing."""
    if row in grid.trained_on.get(system, ()):
        return _TRAINED
    return _MAYBE_TRAINED if row in grid.training_unknown.get(system, ()) else ""


def _dataset_facts(tables: Mapping[str, pd.DataFrame], grid: GridSummary) -> pd.DataFrame:
    """Join scores, tests, verdicts and deviations over seeds."""
    tests = tables["significance"]
    pairs = both_ways(comparisons.verdicts(grid, tables["pairs"]))
    differ = pairs.set_index([*_CELL, "other"])["verdict"] == comparisons.BETTER
    to_best = pd.MultiIndex.from_frame(tests[[*_CELL, "best"]])
    to_baseline = pd.MultiIndex.from_frame(tests[[*_CELL, "baseline"]])
    tests = tests.assign(
        alike=~differ.reindex(to_best, fill_value=False).to_numpy(),
        certain=differ.reindex(to_baseline, fill_value=False).to_numpy(),
    )
    verdicts = tables["verdicts"].sort_values("verdict", key=lambda names: names.map(VERDICTS.index), kind="stable")
    rows = shown_scores(tables["scores"], grid)[[*_CELL, "value", "low", "high", "status", "detail"]]
    for table, names in (
        (tests, {"difference": "difference", "alike": "alike", "certain": "certain"}),
        (verdicts.drop_duplicates(_CELL), {"verdict": "verdict", "difference": "to_published"}),
        (tables["seeds"][tables["seeds"]["mean_of"] == ""], {"deviation": "deviation"}),
    ):
        rows = rows.merge(table[[*_CELL, *names]].rename(columns=names), "left", _CELL)
    return rows


def _mean_facts(tables: Mapping[str, pd.DataFrame], grid: GridSummary, rows: pd.DataFrame) -> pd.DataFrame:
    """Arrange the means over datasets as rows of facts. Warnings are those about the datasets."""
    titles = {"mean": "value", "low_queries": "low", "high_queries": "high", "note": "detail"}
    across = tables["across"][tables["across"]["system"].isin(list(grid.systems))].rename(columns=titles)
    means = [across.assign(dataset=across["over"] + ": " + across["names"])]
    if len(averaged := averaged_rows(grid)) > 1:
        values = rows[rows["dataset"].isin(averaged)].groupby("system")["value"].mean(skipna=False)
        means.append(values.reset_index().assign(dataset=mean_name(grid), names=name_of_mean(averaged), detail=""))
    of_seeds = tables["seeds"].rename(columns={"mean_of": "names"})[["system", "names", "deviation"]]
    over = pd.concat(means).merge(of_seeds, "left", ["system", "names"])
    flawed = (rows["status"] == DONE) & (rows["detail"] != "")
    flaws = rows[flawed].set_index(_CELL)["detail"].to_dict()
    warnings = []
    for names, system in zip(over["names"], over["system"], strict=True):
        found = [f"{name}: {flaws[name, system]}" for name in names.split(", ") if (name, system) in flaws]
        warnings.append("; ".join(found))
    untold = (over["over"] == ZERO_SHOT) & over["system"].isin(list(grid.training_unknown))
    return over.assign(
        detail=over["detail"].where(over["value"].isna(), warnings),
        status=np.select([over["value"].notna(), untold], [DONE, _MAYBE_TRAINED], INCOMPLETE),
        difference=over["difference"].where(over["system"] != over["baseline"]),
    )


def wide(answers: Answers, grid: GridSummary, metric: str) -> dict[str, pd.DataFrame]:
    """Arrange facts of one metric (``cell_facts``) as datasets × systems in the order of tables.

    The facts are value, text, best, alike, and signs with the deviation over the seeds. The last row has the means that
    order the systems, if there are several datasets. The metric is the name of the index.
    """
    facts = cell_facts(answers, grid, metric)
    systems = list(ordered(grid, answers).systems)
    deviations = facts["deviation"].map(lambda number: f" ± {number:.4f}", "ignore").fillna("")
    facts = facts.assign(signs=facts["signs"] + deviations, alike=facts["alike"].astype(bool))
    averaged = averaged_rows(grid)
    rows = [*grid.rows]
    if len(averaged) > 1:
        rows.append(mean_name(grid))
    ordering = main_comparison(answers.across[answers.across["metric"] == metric]).head(1)
    titles = {
        f"{over}: {names}": f"mean of {count} datasets" + (f" ({over})" if over == ZERO_SHOT else "")
        for over, count, names in ordering[["over", "datasets", "names"]].itertuples(index=False)
        if count > 1 and names != name_of_mean(averaged)
    }
    rows += titles
    return {
        name: facts[name].unstack("system").reindex(index=rows, columns=systems).rename(titles).rename_axis(metric)
        for name in ("value", "text", "signs", "best", "alike")
    }


def averaged_rows(grid: GridSummary) -> list[str]:
    """Return the averaged rows: supplied, without MS MARCO (a training set), and each dataset once."""
    return [row for row in grid.counted_once if grid.datasets[row].corpus != "msmarco"]


def name_of_mean(datasets: Iterable[str]) -> str:
    """Join the names of averaged datasets: the key by which seeds.csv and the tables of means meet."""
    return ", ".join(sorted(datasets))


def mean_name(grid: GridSummary) -> str:
    """Name the row of means by its datasets or their number, and by the rows that it leaves out.

    Parts of an averaged row are not left out.
    """
    averaged = averaged_rows(grid)
    parts = {part for row in averaged for part in grid.datasets[row].mean_of}
    within = {*averaged, *parts, *grid.slices}
    missing = [row for row in grid.rows if row not in within]
    over = ", ".join(averaged) if len(averaged) < 4 else f"{len(averaged)} datasets"
    return f"mean of {over}" + (f" (without {', '.join(missing)})" if missing else "")


def shown_scores(scores: pd.DataFrame, grid: GridSummary) -> pd.DataFrame:
    """Select the scores of the grid's rows and columns, without parts of averaged datasets and single seeds."""
    return scores[scores["dataset"].isin(list(grid.rows)) & scores["system"].isin(list(grid.systems))]


def common_notes(grid: GridSummary, answers: Answers) -> list[str]:
    """Return the notes on values that all tables of a grid have."""
    grid = ordered(grid, answers)
    scores = answers.scores
    notes = [seed_note(grid), DEVIATION] if grid.seeds else []
    notes += slice_notes(grid, answers)
    if grid.trained_on:
        notes.append(f"{_TRAINED}: the system was trained on the dataset, so the value is not zero-shot.")
    if grid.training_unknown:
        systems = ", ".join(system for system in grid.systems if system in grid.training_unknown)
        notes.append(
            f"{_MAYBE_TRAINED}: it is not known whether the system was trained on the dataset, so zero-shot means "
            f"leave the system out ({systems})."
        )
    notes += [
        f"{DECLINED}: {system} has no score on {row}, which its publisher declines: {reason}"
        for system, of_system in grid.declined.items()
        for row, reason in of_system.items()
    ]
    notes += [f"{DECLINED}: {system} {reason}." for system, reason in grid.left_out.items()]
    return [*notes, *flaw_notes(scores, grid), *filter(None, [precision_note(scores, grid)])]


def seed_note(grid: GridSummary) -> str:
    """Return a sentence that names the systems with seeds and their numbers, or an empty string."""
    numbers = ", ".join(f"{system} ({len(members)})" for system, members in grid.seeds.items())
    return f"Mean over seeds (seeds.csv): {numbers}." if numbers else ""


def slice_notes(grid: GridSummary, answers: Answers) -> Iterator[str]:
    """Yield how the means treat slices, and what each slice can tell of the grid's first metric."""
    if grid.slices:
        yield "A row with a colon is a slice, some queries of a dataset. It counts in no mean over datasets."
    pairs = answers.pairs[answers.pairs["metric"] == grid.metrics[0]]
    for name in grid.slices:
        if power := comparisons.power_on(name, pairs[pairs["dataset"] == name]):
            yield f"{power}."


def flaw_notes(scores: pd.DataFrame, grid: GridSummary) -> list[str]:
    """Return a sentence per warning about finished cells, grouping systems with the same warning."""
    shown = shown_scores(scores, grid)
    flawed = (shown["status"] == DONE) & (shown["detail"] != "")
    alike = shown[flawed].drop_duplicates(_CELL).groupby(["dataset", "detail"], sort=False)["system"]
    return [f"{FLAW} {', '.join(systems)} on {dataset}: {detail}." for (dataset, detail), systems in alike]


def precision_note(scores: pd.DataFrame, grid: GridSummary) -> str:
    """Return a note on scores that were not computed in float32, or an empty string."""
    shown = shown_scores(scores, grid)
    shown = shown[shown["precision"] != ""].drop_duplicates(["system", "dataset"])
    whole = Counter(shown["system"])
    notes = []
    for precision, cells in shown[shown["precision"] != "float32"].groupby("precision"):
        of_systems = cells.groupby("system", sort=False)["dataset"].agg(list).items()
        names = []
        for name, datasets in of_systems:
            everywhere = len(datasets) == whole[str(name)]
            names.append(str(name) if everywhere else f"{name} ({', '.join(datasets)})")
        notes.append(f"Computed in {precision}: {', '.join(names)}.")
    return " ".join(notes)


def write_wide(table: Mapping[str, pd.DataFrame], notes: Sequence[str], folder: Path) -> bool:
    """Write one metric's table (``wide``) as CSV, Markdown and LaTeX; the best of each row is bold in the last two.

    Unchanged files are not written. Returns whether any file was written.
    """
    groups = [", ".join(table["alike"].columns[row]) for row in table["alike"].to_numpy()]
    plain = table["value"].assign(**{BEST_COLUMN: groups})
    texts = {"csv": plain.to_csv(lineterminator="\n"), "md": _markdown(table, notes), "tex": _latex(table, notes)}
    changed = [files.replace(folder / f"{plain.index.name}.{suffix}", text) for suffix, text in texts.items()]
    return any(changed)


def _rows(table: Mapping[str, pd.DataFrame], bold: str, escape: Callable[[str], str] = str) -> Iterator[list[str]]:
    """Yield the header and the rows of a table as texts."""
    texts = table["text"]
    yield [escape(name) for name in (written(str(texts.index.name)), *texts)]
    best = table["best"].astype(bool)
    cells = texts.mask(best, texts.map(bold.format)) + table["signs"].map(escape)
    yield from ([escape(name), *of_row] for name, *of_row in cells.itertuples())


def _markdown(table: Mapping[str, pd.DataFrame], notes: Sequence[str]) -> str:
    head, *rows = _rows(table, "**{}**")
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text + (f"\n{' '.join(notes)}\n" if notes else "")


def _latex(table: Mapping[str, pd.DataFrame], notes: Sequence[str]) -> str:
    head, *rows = (" & ".join(row) + r" \\" for row in _rows(table, r"\textbf{{{}}}", in_latex))
    begin = rf"\begin{{tabular}}{{l{'r' * len(table['text'].columns)}}}"
    lines = [begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
    if notes:  # below the table, where LaTeX breaks lines
        lines.append(rf"\par\smallskip{{\footnotesize {in_latex(' '.join(notes))}\par}}")
    return "\n".join(lines) + "\n"
