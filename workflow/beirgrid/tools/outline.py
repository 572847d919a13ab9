"""Summarise a finished run in at most 25 lines: main table, verdicts, failures, the answer, and the report's path."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ..config.metric_names import written
from ..page.answer import all_published, answer
from ..results import table_files
from ..results.answers import DONE, FAILED, NOT_JUDGED, NOT_SUPPLIED, PENDING, Answers, verdict_counts
from ..results.published import OTHER_COMMIT, OTHER_PROTOCOL
from ..results.summary import GridSummary
from .text import aligned

LINES = 25
# Most and fewest lines of the table, including its header, and most lines on failures.
_TABLE, _LEAST, _FAILED = 16, 4, 3


def outline(grid: GridSummary, answers: Answers, page: Path, width: int) -> Iterator[str]:
    """Yield the lines."""
    notes = [" ".join(table_files.seed_notes(grid)), *([] if all_published(answers) else _verdicts(answers.verdicts))]
    notes += [*_unfinished(grid, answers.scores), *_flaws(grid, answers.scores)]
    said = textwrap.wrap(
        " ".join(answer(grid, answers)), max(width, 60), break_long_words=False, break_on_hyphens=False
    )
    below = ["", *(_cut(line, width) for line in notes if line), *said, f"Report: {page}"]
    left = max(LINES - len(below) - 1, _LEAST)
    yield from _table(table_files.wide(answers, grid, grid.metrics[0]), grid.metrics[0], width, left)
    yield from below


def _table(table: table_files.Wide, metric: str, width: int, lines: int) -> Iterator[str]:
    """Yield the metric's table with as many systems and rows as fit. Many systems become rows."""
    lines = min(lines, _TABLE)
    shown = table.shown.where(~table.group | (table.group.sum(axis=1) < 2).to_numpy()[:, None], table.shown + "†")
    shown = shown.where(~table.flawed, shown + table_files.FLAW)
    if _width(shown) > width and len(shown.columns) < lines:
        shown = shown.T
    if _width(shown) > width or len(shown) >= lines:
        shown = table.shown.tail(1).T
    rows = _lines(written(metric), shown)
    left = len(rows) - lines
    yield from rows if left <= 0 else [*rows[: lines - 1], f"… and {left + 1} more systems"]
    if table.group.to_numpy().any():
        yield "†: not distinguishable from the best of its dataset"


def _width(shown: pd.DataFrame) -> int:
    return max(map(len, _lines("", shown)))


def _lines(metric: str, shown: pd.DataFrame) -> list[str]:
    """Return a table as lines of text with aligned columns."""
    rows = [[metric, *map(str, shown.columns)]]
    rows += [[str(name), *row] for name, row in zip(shown.index, shown.to_numpy(), strict=True)]
    return list(aligned(rows, [True, *(False for _ in shown.columns)]))


def _verdicts(verdicts: pd.DataFrame) -> Iterator[str]:
    """Yield how many scores agree with published values, and how many with this project's own recorded ones."""
    for recorded, what in ((False, "published values"), (True, "values recorded by this project")):
        found = verdict_counts(verdicts, recorded=recorded)
        counts = [f"{found[name]} {name}" for name in ("reproduced", "close", "deviates") if name in found]
        if OTHER_COMMIT in found:
            counts.append(f"{found[OTHER_COMMIT]} not reproduced, but measured on another commit")
        if OTHER_PROTOCOL in found:
            counts.append(f"{found[OTHER_PROTOCOL]} not judged, because they follow another protocol")
        if counts or not recorded:
            yield f"Against {what}: {', '.join(counts) or 'no finished cell has one'}."


def _unfinished(grid: GridSummary, scores: pd.DataFrame) -> Iterator[str]:
    """Yield the number of cells without a value, and the logs of failed ones."""
    cells = scores[scores["metric"] == grid.metrics[0]]
    run = [
        not grid.datasets[dataset].mean_of and system not in grid.seeds
        for system, dataset in zip(cells["system"], cells["dataset"], strict=True)
    ]
    own = cells[run]
    counts = own["status"].value_counts()
    if counts.get(PENDING):
        yield f"Pending: {counts[PENDING]} of {len(own)} cells ({counts.get(DONE, 0)} are done)."
    if counts.get(NOT_SUPPLIED):
        missing = dict.fromkeys(own.loc[own["status"] == NOT_SUPPLIED, "dataset"])
        yield f"Not supplied: {', '.join(missing)}."
    if counts.get(NOT_JUDGED):
        missing = dict.fromkeys(own.loc[own["status"] == NOT_JUDGED, "dataset"])
        yield f"Not judged, so without scores: {', '.join(missing)} (beirgrid set pool says what to judge)."
    if counts.get(FAILED):
        reasons = own.loc[own["status"] == FAILED, "detail"].value_counts()
        yield f"Failed: {counts[FAILED]} of {len(own)} cells."
        lines = [f"  {number} {'cell' if number == 1 else 'cells'}: {why}" for why, number in reasons.items()]
        # One further reason takes no more lines than "1 other reason".
        few = len(lines) <= _FAILED + 1
        yield from lines if few else [*lines[:_FAILED], f"  and {len(lines) - _FAILED} other reasons"]


def _flaws(grid: GridSummary, scores: pd.DataFrame) -> Iterator[str]:
    """Yield the first warning about scores, and the number of the others."""
    notes = table_files.flaw_notes(scores, grid)
    if notes:
        others = len(notes) - 1
        more = "one more such note" if others == 1 else f"{others} more such notes"
        yield notes[0] + (f" The tables have {more}." if others else "")


def _cut(line: str, width: int) -> str:
    """Shorten a line in the middle to two lines of the terminal."""
    most = max(2 * width, 60)
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 2 + 3 :]}"
