"""Read or sample the queries of an evaluation set: a whole file, or a sample of a query log by frequency."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..collections import lines
from ..collections.sources import json_lines
from ..core.errors import DataError, quantity, quoted, warn
from .documents import ROWS, Row, named_rows

_IDS = ("_id", "id", "query_id", "qid")
_TEXTS = ("query", "text", "q")
_COUNTS = ("count", "frequency", "n")
_PERSONAL = {
    "an e-mail address": re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+"),
    "a telephone number": re.compile(r"(?<![\w.])\+?\d[\d ()/-]{7,}\d(?![\w.])"),
    "an IBAN": re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"),
    "an IP address": re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"),
}


class SetQuery(NamedTuple):
    """A query of the set.

    Attributes:
        times: frequency in the log; 1 for a query of a file.
        stratum: ``head``, ``torso`` or ``tail`` by the frequency in the log; empty for a query of a file.
        source: id of the document from which a model wrote it; empty if no model did.
    """

    id: str
    text: str
    times: int = 1
    stratum: str = ""
    source: str = ""


def read(path: Path) -> list[SetQuery]:
    """Read queries from a file: JSON lines, CSV or TSV with a header, or plain text with a query per line.

    Raises:
        DataError: the file's ending is not known, a row has no query, or its id cannot be in a run. The message names
            file and line.
    """
    if lines.kind(path) not in _READERS:
        known = ", ".join(filter(None, _READERS))
        raise DataError(f"{path}: queries come from files that end in {known}, or in one of these and .gz")
    queries = []
    empty = 0
    for identifier, text, (row, place) in named_rows(_READERS[lines.kind(path)](path), _IDS, _TEXTS, _COUNTS, "q"):
        lines.check_id(identifier, place)
        if lines.kind(path) == ".csv":
            lines.check_line(text, "query", place)
        times = next((row[key] for key in _COUNTS if row.get(key) is not None), 1)
        if not re.fullmatch(r"[0-9]{1,12}", str(times)) or not int(str(times)):
            raise DataError(f"{place}: {times!r} is not a number of times")
        if query := " ".join(text.split()):
            queries.append(SetQuery(identifier, query, int(str(times))))
        else:
            empty += 1
    if empty:
        warn(f"{path}: {quantity(empty, 'row has', 'rows have')} no query")
    if not queries:
        raise DataError(f"{path} has no queries")
    return queries


def sample(log: Iterable[SetQuery], size: int, seed: int = 0) -> list[SetQuery]:
    """Sample queries from a log, equally from each stratum as far as possible.

    Queries sorted by frequency are the head until they have a third of the log's volume, the torso until two thirds,
    and the tail after that.

    Args:
        log: the queries of the log; the same words count as the same query.
        size: number of queries.
    """
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for query in log:
        words = query.text.casefold()
        counts[words] += query.times
        spelling.setdefault(words, query.text)
    volume = sum(counts.values())
    strata: dict[str, list[SetQuery]] = {}
    before = 0
    often_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    for number, (words, count) in enumerate(often_first, start=1):
        stratum = ("head", "torso", "tail")[min(2, 3 * before // volume)]
        strata.setdefault(stratum, []).append(SetQuery(f"q{number}", spelling[words], count, stratum))
        before += count
    chooser = random.Random(seed)  # noqa: S311 - sampling queries is not cryptography
    chosen: list[SetQuery] = []
    for at, stratum in enumerate(sorted(strata, key=lambda name: len(strata[name]))):
        share = (size - len(chosen)) // (len(strata) - at)
        chosen += chooser.sample(strata[stratum], min(share, len(strata[stratum])))
    return sorted(chosen, key=lambda query: int(query.id[1:]))


def personal(queries: Sequence[SetQuery]) -> dict[str, list[str]]:
    """Return the ids of queries that may contain personal data, by the kind of data."""
    suspects = {what: [query.id for query in queries if sort.search(query.text)] for what, sort in _PERSONAL.items()}
    return {what: names for what, names in suspects.items() if names}


def without_near_duplicates(queries: Iterable[SetQuery]) -> list[SetQuery]:
    """Leave out queries with the same words as an earlier one, in any order."""
    kept: dict[frozenset[str], SetQuery] = {}
    for query in queries:
        words = frozenset(re.findall(r"\w+", query.text.casefold())) or frozenset([query.text])
        kept.setdefault(words, query)
    return [*kept.values()]


def _plain(path: Path) -> Iterator[Row]:
    """Yield the lines of a text as rows; refuse a table, JSON or XML, whose ids and marks would be words of queries."""
    for number, (line, place) in enumerate(lines.read(path)):
        if "\t" in line or (number == 0 and line.lstrip().startswith(("{", "[{", '["', "<"))):
            kinds = "a table (.tsv, with names of its columns in the first line), or JSON lines (.jsonl)"
            raise DataError(f"{place}: in a text, each line is a query, but this is {quoted(line)}: save it as {kinds}")
        yield {"text": line}, place


_READERS: dict[str, Callable[[Path], Iterable[Row]]] = {
    **ROWS,
    ".json": json_lines,
    **dict.fromkeys((".txt", ".log", ""), _plain),
}
