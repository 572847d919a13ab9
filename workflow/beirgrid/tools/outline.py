"""What a run says at its end, in at most 25 lines: the main table, verdicts, what failed, and where the page is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from ..data import tables
from ..data.answers import DONE, FAILED, NOT_SUPPLIED, PENDING, Answers
from ..data.published import OTHER_PROTOCOL
from ..data.summary import GridSummary

LINES = 25
# Lines of the table, its head included, and of what failed.
_TABLE, _FAILED = 16, 3


def outline(grid: GridSummary, answers: Answers, page: Path, width: int) -> Iterator[str]:
    """Yield the lines.

    Args:
        grid: summary of the grid.
        answers: its tables.
        page: its page.
        width: columns of the terminal.
    """
    yield from _table(tables.wide(answers, grid, grid.metrics[0]), grid.metrics[0], width)
    yield ""
    yield from _verdicts(answers.verdicts)
    yield from (_cut(line, width) for line in _unfinished(grid, answers.scores))
    yield f"Page of the grid: {page}"


def _table(table: tables.Wide, metric: str, width: int) -> Iterator[str]:
    """Yield the metric's table: as many systems and rows as fit; systems are rows where there are many of them."""
    shown = table.shown.where(~table.group | (table.group.sum(axis=1) < 2).to_numpy()[:, None], table.shown + "†")
    if _width(shown) > width and len(shown.columns) < _TABLE:
        shown = shown.T
    if _width(shown) > width or len(shown) >= _TABLE:
        shown = table.shown.tail(1).T
    rows = _lines(metric, shown)
    left = len(rows) - _TABLE
    yield from rows if left <= 0 else [*rows[: _TABLE - 1], f"… and {left + 1} more systems"]
    if table.group.to_numpy().any():
        yield "†: not distinguishable from the best of its dataset"


def _width(shown: pd.DataFrame) -> int:
    return max(map(len, _lines("", shown)))


def _lines(metric: str, shown: pd.DataFrame) -> list[str]:
    """Return a table as lines of text with aligned columns."""
    rows = [[metric, *map(str, shown.columns)]]
    rows += [[str(name), *row] for name, row in zip(shown.index, shown.to_numpy(), strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _verdicts(verdicts: pd.DataFrame) -> Iterator[str]:
    """Yield how many scores agree with published values, and how many with this project's own recorded ones."""
    beside = verdicts[verdicts["published"].notna()]
    for recorded, what in ((False, "published values"), (True, "values recorded by this project")):
        found = beside.loc[beside["recorded"] == recorded, "verdict"].value_counts()
        counts = [f"{found[name]} {name}" for name in ("reproduced", "close", "deviates") if found.get(name)]
        if found.get(OTHER_PROTOCOL):
            counts.append(f"{found[OTHER_PROTOCOL]} not judged, as they follow another protocol")
        if counts or not recorded:
            yield f"Against {what}: {', '.join(counts) or 'none of a cell that is done'}."


def _unfinished(grid: GridSummary, scores: pd.DataFrame) -> Iterator[str]:
    """Yield how many cells have no value, and what to read of those that failed."""
    cells = scores[scores["metric"] == grid.metrics[0]]
    own = cells[[not grid.datasets[name].mean_of for name in cells["dataset"]]]
    counts = own["status"].value_counts()
    if counts.get(PENDING):
        yield f"Pending: {counts[PENDING]} of {len(own)} cells ({counts.get(DONE, 0)} are done)."
    if counts.get(NOT_SUPPLIED):
        missing = dict.fromkeys(own.loc[own["status"] == NOT_SUPPLIED, "dataset"])
        yield f"Not supplied: {', '.join(missing)}."
    if counts.get(FAILED):
        reasons = own.loc[own["status"] == FAILED, "detail"].value_counts()
        yield f"Failed: {counts[FAILED]} of {len(own)} cells."
        lines = [f"  {number} {'cell' if number == 1 else 'cells'}: {why}" for why, number in reasons.items()]
        yield from _few(lines)


def _few(lines: Iterable[str]) -> list[str]:
    lines = list(lines)
    return lines if len(lines) <= _FAILED else [*lines[:_FAILED], f"  and {len(lines) - _FAILED} other reasons"]


def _cut(line: str, width: int) -> str:
    """Return a line cut in its middle to two lines of the terminal: its ends say most."""
    most = max(2 * width, 60)
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 2 + 3 :]}"
