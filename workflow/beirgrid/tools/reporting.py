"""``beirgrid report``: write tables and page of a grid from its finished cells, at any time and after each run.

It prints at most 40 lines: main table, verdicts, failures, the answer, and the report's path.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from ..analysis.dataset_scores import EvaluatedDataset
from ..analysis.tables import compare_across
from ..config.load import merged
from ..core import files, paths
from ..core.errors import BeirgridError, DataError, column_lines, quantity, show, warn, wrapped
from ..execution import events
from ..graph.grid import Grid
from ..graph.job import run as run_job
from ..graph.summaries import PUBLISHED, Summary
from ..measures import written
from ..page.answer import Answer, all_published, answer
from ..results import cells, published, results_folder, summary, table_files
from ..results.answers import DONE, FAILED, NOT_JUDGED, REPLACED, Answers, typed, verdict_counts
from ..results.summary import GridSummary
from ..stages.aggregate import work as aggregate
from ..stages.report.work import illustrated
from .why import outdated

LINES = 40
# Fewest lines of the table, including its header.
_LEAST = 4
# Signs of values that the table shows; the page has others.
_SIGNS = ("†", table_files.FLAW)
# Most datasets whose planned differences are printed; the page has those of more.
_DATASETS = 6
_COUNTED = {verdict: verdict for verdict in ("reproduced", "close", "deviates")}
_COUNTED |= {published.OTHER_COMMIT: "not reproduced, but measured on another commit"}
_COUNTED |= {published.OTHER_PROTOCOL: "not judged, because they follow another protocol"}


def report(
    *,
    grid: Annotated[str, "name of the grid; without it, all grids of the folder"] = "",
    directory: results_folder.Directory = Path(),
    written: Annotated[bool, "print the summary of the tables that a run has written, and write nothing"] = False,
) -> None:
    """Write the tables and the page of a grid from its finished cells, and print a summary.

    Raises:
        BeirgridError: no such grid was run in the folder.
    """
    directory, grid = results_folder.working_folder(directory, grid)
    os.chdir(directory)
    summaries = sorted(Path().glob(paths.GRID_SUMMARY.format(grid=grid or "*")))
    if not summaries:
        raise BeirgridError("no grid was run in this folder (--directory names another)")
    for path in summaries:
        try:
            of_grid = summary.read(path)
            name = path.parent.name
            if of_grid.name != name:  # a copied folder: the other grid's tables and page would be overwritten
                raise DataError(f"{path} is of the grid {of_grid.name!r}: only the grid {name!r} may have this folder")
            answers = table_files.read(of_grid, path.parent / "tables") if written else refresh(of_grid)
            show(*outdated(Path(), name), *outline(of_grid, answers, Path(paths.REPORT.format(grid=name)).absolute()))
        except DataError as error:
            if len(summaries) == 1:
                raise
            warn(f"the grid {path.parent.name} is left out: {error}")


def refresh(grid: GridSummary) -> Answers:
    """Write the tables and the page of a grid, and return what the tables have.

    Tables or a page that change are no longer those of the run's own record, so the record goes: the next run makes it
    again.
    """
    folder = Path(paths.GRID_FOLDER.format(grid=grid.name))
    page = Path(paths.REPORT.format(grid=grid.name))
    failures, running = _last_run()
    with files.locked(folder / aggregate.LOCK):
        answers = aggregate.compute(grid, cells.find(grid, failures, running=running), PUBLISHED)
        of_tables, of_page = (Path(path.format(grid=grid.name)) for path in (paths.TABLES_RECORD, paths.REPORT_RECORD))
        if table_files.write(answers, grid, of_tables.parent):
            of_tables.unlink(missing_ok=True)
        if files.replace(page, illustrated(grid, answers, page.parent)):
            of_page.unlink(missing_ok=True)
    return answers


def analyse(
    *,
    grid: Annotated[Path, "summary of the grid, grid.json"],
    output: Annotated[Path, "folder of the grid, with its tables"],
    record: Annotated[Path, "record to write, .json"],
) -> None:
    """Compute the BEIR paper's analyses from the runs of a grid. Unfinished cells are skipped with a warning.

    Raises:
        DataError: an input is missing or damaged.
    """
    given = {"outputs": {"record": str(record)}, "options": {"grid": str(grid), "output": str(output)}}
    run_job("analyse", json.dumps(given).encode())


def _last_run() -> tuple[dict[str, str], bool]:
    """Return the failure messages of the last run by missing output, and whether the run is still active."""
    try:
        run = events.read(events.EVENTS)
    except BeirgridError:
        return {}, False
    return {file: job.failure for job in run.in_state("failed") for file in job.outputs}, run.alive is not False


def outline(grid: GridSummary, answers: Answers, page: Path, width: int = 0) -> Iterator[str]:
    """Yield the lines of a summary, for a terminal of this width; that of this process unless given."""
    width = width or shutil.get_terminal_size((120, 24)).columns
    flaws = table_files.flaw_notes(answers.scores, grid)
    notes = [table_files.seed_note(grid), *([] if all_published(answers) else _verdicts(answers.verdicts))]
    more = f" More such notes in the tables: {len(flaws) - 1}." if flaws[1:] else ""
    notes += [*_unfinished(grid, answers.scores), *(f"{flaw}{more}" for flaw in flaws[:1])]
    below = ["", *_answer(answer(grid, answers), max(width, 60)), *(_cut(line, width) for line in notes if line)]
    below.append(f"Report: {page}")
    left = max(LINES - len(below) - 1, _LEAST)
    yield from _table(grid, answers, width, left)
    yield from below


def _table(grid: GridSummary, answers: Answers, width: int, most: int) -> Iterator[str]:
    """Yield the main table in at most so many lines: with systems as columns, as rows, or its first row alone."""
    table = table_files.wide(answers, grid, grid.metrics[0])
    shown = table["text"] + table["signs"].map(lambda signs: "".join(sign for sign in signs if sign in _SIGNS))
    shown = shown.iloc[[-1, *range(len(shown) - 1)]]  # the mean that orders the systems stands first
    for form in (shown, shown.T, shown.head(1).T):
        lines = form.rename_axis(index=None, columns=written(str(shown.index.name))).to_string().splitlines()
        if len(lines[0]) <= width and len(lines) <= most:
            break
    yield from lines if len(lines) <= most else [*lines[: most - 1], f"… and {len(lines) - most + 1} more systems"]
    if "†" in "".join(lines):
        yield f"†: open {'or equivalent to' if grid.margin else 'against'} the best of its dataset"


def _answer(said: Answer, width: int) -> Iterator[str]:
    """Yield the answer, the table of planned differences, and a line for each thing to know."""
    for sentence in said.sentences:
        yield from wrapped(sentence, width)
    yield from _differences([list(row) for row in said.differences], width)
    for note in (*said.caveats, *said.more):
        yield from wrapped(note, width)


def _differences(rows: list[list[str]], width: int) -> list[str]:
    """Return planned differences as lines, pairs side by side or one below the other; nothing if neither fits."""
    if not rows:
        return []
    beside = [*column_lines(rows, [True] * len(rows[0]))]
    below: list[str] = []
    for pair in range(1, len(rows[0])):
        below += column_lines([[row[0], row[pair]] for row in rows], [True, True])
    for lines in (beside, below):
        differences = [line for line in lines if not line.startswith(" ")]
        widest = max(map(len, lines))
        if len(differences) <= _DATASETS and widest <= width:
            return lines
    return []


def _verdicts(verdicts: pd.DataFrame) -> Iterator[str]:
    """Yield how many scores agree with published values, and how many with this project's own recorded ones."""
    for recorded, what in ((False, "Published values"), (True, "Values recorded by beirgrid")):
        numbers = verdict_counts(verdicts, recorded=recorded)
        counts = [f"{numbers[verdict]} {said}" for verdict, said in _COUNTED.items() if verdict in numbers]
        if counts:
            yield f"{what}: {', '.join(counts)}."


def _unfinished(grid: GridSummary, scores: pd.DataFrame) -> Iterator[str]:
    """Yield the numbers of cells by their states if some are not done, and the most frequent reason of failures."""
    means = [row for row in grid.rows if grid.datasets[row].mean_of]
    left_out = scores["dataset"].isin(means) | scores["system"].isin(list(grid.seeds))
    cells = scores[(scores["metric"] == grid.metrics[0]) & ~left_out]
    counts = cells["status"].value_counts()
    if {*counts.index} - {DONE}:
        states = ", ".join(f"{number} {status}" for status, number in counts.items())
        yield f"Of {quantity(len(cells), 'cell')}: {states}."
    if names := ", ".join(cells.loc[cells["status"] == NOT_JUDGED, "dataset"].unique()):
        yield f"Not judged, so without scores: {names} (beirgrid set pool says what to judge)."
    for status, said in ((FAILED, "failed"), (REPLACED, "no scores")):
        reasons = cells.loc[cells["status"] == status, "detail"].value_counts()
        if len(reasons):
            others = f"; {len(reasons) - 1} more reasons are in scores.csv" if len(reasons) > 1 else ""
            yield f"{said.capitalize()}, {reasons.iloc[0]} of them: {reasons.index[0]}{others}"


def _cut(line: str, width: int) -> str:
    """Shorten a line in the middle to two lines of the terminal."""
    most = max(2 * width, 60)
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 2 + 3 :]}"


# A page of published values, before anything has run

_CELL = ["system", "dataset", "metric"]


def write_published(configfile: Path, directory: Path) -> None:
    """Write the page of a grid with its published values, and print its summary."""
    grid = GridSummary.model_validate_json(Summary(Grid(merged([configfile]))).as_json({}))
    answers = published_tables(grid, published.read(PUBLISHED, grid.tolerances))
    page = directory / paths.REPORT.format(grid=grid.name)
    files.replace(page, illustrated(grid, answers, page.parent))
    show(*outline(grid, answers, page.absolute()))


def published_tables(grid: GridSummary, values: Iterable[published.Published]) -> Answers:
    """Return the tables of a grid whose scores are published values.

    Of several values of a cell, the first that follows the protocol is the score. The verdicts list all of them. There
    are no tests on a dataset, because nobody publishes the values of single queries. Each dataset counts as one query.
    """
    named = published.of_systems((value for value in values if not value.recorded), grid.published_as)
    table = pd.DataFrame([value._replace(system=system)._asdict() for system, value in named])
    for column, order in zip(_CELL, (grid.systems, grid.rows, grid.metrics), strict=True):
        table[column] = pd.Categorical(table[column], order)  # others are not of the grid
    table = table.dropna(subset=_CELL).assign(other=table["protocol"] != "")
    table = table.sort_values([*_CELL, "other"], kind="stable")
    table["detail"] = table["protocol"].str.rstrip(".")
    table["status"] = DONE
    scores = table.drop_duplicates(_CELL)
    verdicts = table.rename(columns={"value": "published"}).merge(scores[[*_CELL, "value"]], on=_CELL)
    verdicts = verdicts.assign(verdict=published.SCORE_IS_PUBLISHED, recorded=False)
    of_cell = scores.set_index(_CELL)["value"]
    systems = tuple(sorted(grid.systems))

    def scores_on(row: str) -> np.ndarray:
        of_systems = [[of_cell[system, row, metric] for metric in grid.metrics] for system in systems]
        return np.array([of_systems])

    datasets = [EvaluatedDataset(row, systems, grid.metrics, scores_on(row)) for row in grid.counted_once]
    training: dict[str, Any] = {"trained_on": grid.trained_on, "unknown": grid.training_unknown}
    across = compare_across(datasets, systems=grid.systems, baseline=grid.baseline or None, **training)
    made = {"scores": scores, "verdicts": verdicts, "across": across}
    return Answers(*(typed(name, made.get(name, pd.DataFrame())) for name in Answers._fields))
