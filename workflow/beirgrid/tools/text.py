"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator


def table_lines(columns: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yield the lines of a table: columns of words flush left, columns with numbers flush right."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    words = [not any(cell.lstrip("+-")[:1].isdigit() for cell in column) for column in zip(*rows, strict=True)]
    yield from column_lines([columns, ["-" * width for width in widths], *rows], words)


def column_lines(rows: list[list[str]], words: list[bool]) -> Iterator[str]:
    """Yield rows of cells as lines: columns of ``words`` flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, words, strict=True)
        yield "  ".join(cell.ljust(width) if left else cell.rjust(width) for cell, width, left in cells).rstrip()
