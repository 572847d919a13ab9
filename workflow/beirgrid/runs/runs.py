"""Runs: ranked documents per query, in TREC format and canonical order.

Canonical order is that of trec_eval 9: scores compared as float32, highest first; ties by document id (as a string),
larger first. trec_eval 10 compares doubles. Files hold scores with nine digits, enough to restore a float32.
"""

from __future__ import annotations

import gzip
import zlib
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core import files
from ..core.errors import DataError, quoted, warn


class Ranking(NamedTuple):
    """The documents of one query: ``ids`` and float32 ``scores``, both [documents]."""

    ids: list[str]
    scores: np.ndarray


Run = dict[str, Ranking]
EMPTY = Ranking([], np.zeros(0, np.float32))

# The software whose order is ours, for records.
ORDER = "trec_eval 9"
_COLUMNS = 6
_INFINITE = 2.0**128 - 2.0**103  # the smallest number that rounds to infinity in float32


def canonical(
    query: str,
    ids: Iterable[str],
    scores: np.ndarray | list[float],
    depth: int | None = None,
    excluded: Collection[str] = (),
    candidates: Collection[str] | None = None,
) -> Ranking:
    """Return a ranking in canonical order, cut at ``depth``.

    Documents that are excluded are left out, and so are all but the candidates, if given. Higher scores are better.

    Raises:
        DataError: a score is not a finite float32.
    """
    ids = list(ids)
    with np.errstate(over="ignore"):  # refused below
        values = np.asarray(scores, np.float32)
    if not np.isfinite(values).all():
        worst = int((~np.isfinite(values)).argmax())
        number = "NaN" if np.isnan(values[worst]) else "more than float32 holds"
        raise DataError(f"query {quoted(query)}: the score of document {quoted(ids[worst])} is {number}")
    order = np.argsort(-values, kind="stable")
    if (values[order[1:]] == values[order[:-1]]).any():
        # The sort is stable: sorting by id and then by score leaves ties in id order.
        by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__, reverse=True))
        order = by_id[np.argsort(-values[by_id], kind="stable")]
    if excluded:
        order = order[[ids[i] not in excluded for i in order.tolist()]]
    if candidates is not None:
        order = order[[ids[i] in candidates for i in order.tolist()]]
    order = order[:depth]
    return Ranking([ids[i] for i in order.tolist()], values[order])


def reordered(query: str, ranking: Ranking, scores: Mapping[tuple[str, str], float], depth: int) -> Ranking:
    """Reorder the top ``depth`` of a ranking by new scores of (query, document).

    The other documents keep their order, with scores below the reordered ones.

    Raises:
        DataError: a document to reorder has no score.
    """
    top = ranking.ids[:depth]
    unscored = [document for document in top if (query, document) not in scores]
    if unscored:
        pair = f"query {quoted(query)} with document {quoted(unscored[0])}"
        raise DataError(f"no score for {pair}: run the grid again to score it")
    head = canonical(query, top, [scores[query, document] for document in top])
    rest = ranking.ids[depth:]
    floor = float(head.scores[-1]) if top else 0.0
    # Steps large enough for float32 at any logit's size, so that no ties reorder the rest.
    step = np.maximum(1.0, abs(floor)) / 1024
    below = np.float32(floor) - step * np.arange(1, len(rest) + 1, dtype=np.float32)
    return Ranking([*head.ids, *rest], np.concatenate([head.scores, below.astype(np.float32)]))


def write(path: str | Path, run: Run, tag: str) -> None:
    """Write a run as gzipped TREC lines, atomically and reproducibly to the byte.

    Raises:
        DataError: the tag is not one word.
    """
    if tag.encode().split() != [tag.encode()]:
        raise DataError(f"{quoted(tag)} cannot be the tag of a run: white space separates the columns")
    with (
        files.atomic(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0) as stream,
    ):
        for query, (ids, scores) in run.items():
            line = "{} Q0 %s %d %.9g {}\n".format(*(word.replace("%", "%%") for word in (query, tag)))
            columns = zip(ids, range(1, len(ids) + 1), scores.tolist(), strict=True)
            stream.write((line * len(ids) % tuple(chain.from_iterable(columns))).encode())


def lines(path: str | Path) -> Iterator[tuple[str, str, float, int]]:
    """Yield query, document and score of each line of a TREC run (gzipped or plain), with the line's number.

    As in trec_eval, ASCII white space separates the columns, and columns 2 and 4 are ignored. Comments are skipped.

    Raises:
        DataError: names file and line: a line is not in TREC format or not UTF-8, a score does not fit float32, or the
            file is empty or truncated.
    """
    opener = gzip.open if str(path).endswith(".gz") else open
    number = 0
    try:
        if not Path(path).stat().st_size:
            raise EOFError("it is empty")
        with files.errors_with_name(path), opener(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                fields = (line.removeprefix(BOM_UTF8) if number == 1 else line).split()
                if _is_comment(fields):
                    continue
                if b"\r" in line.rstrip(b"\r\n"):
                    raise DataError(f"{path}:{number}: a carriage return within a line; lines end in LF or in CRLF")
                first, _, second, _, text, _ = fields
                if first.startswith(BOM_UTF8) or second.startswith(BOM_UTF8):
                    raise DataError(f"{path}:{number}: a byte order mark before an id: was a file appended? Remove it")
                query = first.decode()
                document = second.decode()
                score = float(text)
                if not abs(score) < _INFINITE or b"_" in text:  # Python would accept 1_000
                    number_text = quoted(text.decode())
                    raise DataError(f"{path}:{number}: the score {number_text} is not a number that float32 holds")
                yield query, document, score, number
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 (byte {error.object[error.start]:#04x})") from None
    except ValueError:
        raise DataError(f"{path}:{number}: not a TREC run line (query Q0 document rank score tag)") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: truncated or corrupt after line {number} ({error}). {files.REMEDY}") from None


def _is_comment(fields: list[bytes]) -> bool:
    """Tell whether a line begins with #, as a comment does in trec_eval 10, and is no row of a query whose id does."""
    if not fields or not fields[0].startswith(b"#"):
        return False
    return len(fields) != _COLUMNS or (fields[0] == b"#" and fields[1] not in (b"Q0", b"0"))


def read(path: str | Path) -> Run:
    """Read a TREC run (gzipped or plain) into canonical order. Queries keep the file's order.

    Warns if the scores look like distances, or are one for all documents of a query.

    Raises:
        DataError: names file and line: as for ``lines``, or a document is ranked twice for a query.
    """
    collected: dict[str, dict[str, float]] = {}
    for query, document, score, number in lines(path):
        documents = collected.setdefault(query, {})
        if document in documents:
            twice = f"document {quoted(document)} is ranked twice for query {quoted(query)}"
            raise DataError(f"{path}:{number}: {twice}")
        documents[document] = score
    scores = {
        query: np.fromiter(documents.values(), np.float32, len(documents)) for query, documents in collected.items()
    }
    several = [of_query for of_query in scores.values() if len(of_query) > 1]
    if several and all((of_query == of_query[0]).all() for of_query in several):
        warn(
            f"all documents of a query have one score in {path}, so they are ordered by their ids, whatever their "
            "ranks say, as in trec_eval. Write scores that fall with the rank"
        )
    if several and _ascend(several):
        warn(
            f"the scores of {path} ascend from line to line, and the highest score counts as the best. If the "
            "scores are distances, put a minus sign before each",
        )
    return {query: canonical(query, documents, scores[query]) for query, documents in collected.items()}


def ordered_by_doubles(path: str | Path, run: Run) -> Run:
    """Return the rankings, with float64 scores, of the queries of a run file that trec_eval 10 orders otherwise.

    Args:
        run: what ``read`` returned for the file. It is read again if scores are equal as float32.
    """
    tied = {query for query, (_, scores) in run.items() if (scores[1:] == scores[:-1]).any()}
    doubles: dict[str, dict[str, float]] = {}
    for query, document, score, _ in lines(path) if tied else ():
        if query in tied:
            doubles.setdefault(query, {})[document] = score
    changed = {}
    for query, scores in doubles.items():
        pairs = sorted(((score, document) for document, score in scores.items()), reverse=True)
        ids = [document for _, document in pairs]
        if ids != run[query].ids:
            changed[query] = Ranking(ids, np.array([score for score, _ in pairs]))
    return changed


def read_top(path: str | Path, queries: Iterable[str], depth: int) -> dict[str, list[str]]:
    """Read the first documents of some queries, in the order of a file that ``write`` wrote.

    Raises:
        DataError: the file is damaged.
    """
    tops: dict[bytes, list[str]] = {query.encode(): [] for query in queries}
    with files.reading(path), gzip.open(path, "rb") as stream:
        for line in stream:
            documents = tops.get(line[: line.index(b" ")])
            if documents is not None and len(documents) < depth:
                documents.append(line.split()[2].decode())
    return {query.decode(): documents for query, documents in tops.items()}


def _ascend(of_queries: Iterable[np.ndarray]) -> bool:
    """Tell whether the scores of every query ascend in file order."""
    return all(scores[0] < scores[-1] and (np.diff(scores) >= 0).all() for scores in of_queries)
