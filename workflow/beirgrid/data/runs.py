"""Runs: ranked documents per query, in TREC format and canonical order.

Canonical order is trec_eval's: scores compared as float32, highest first; of equal scores the
larger document id (as a string) first. Files hold scores with nine digits, which float32 survives.
"""

from __future__ import annotations

import gzip
import zlib
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core import files
from ..core.errors import DataError


class Ranking(NamedTuple):
    """The documents of one query: ``ids`` and float32 ``scores``, both [documents]."""

    ids: list[str]
    scores: np.ndarray


Run = dict[str, Ranking]
EMPTY = Ranking([], np.zeros(0, np.float32))

# The first and the last line of a header of ir_metadata (Breuer et al., 2022), as words.
METADATA_START, METADATA_END = [b"#", b"ir_metadata.start"], [b"#", b"ir_metadata.end"]
_INFINITE = 2.0**128 - 2.0**103  # the least number that float32 rounds to infinity


def canonical(
    query: str,
    ids: Iterable[str],
    scores: np.ndarray | list[float],
    depth: int | None = None,
    excluded: Collection[str] = (),
) -> Ranking:
    """Return a ranking in canonical order without the ``excluded`` documents, cut at ``depth``.

    Raises:
        DataError: a score is NaN.
    """
    ids = list(ids)
    values = np.asarray(scores, np.float32)
    if np.isnan(values).any():
        raise DataError(f"query {query!r}: the score of document {ids[int(np.isnan(values).argmax())]!r} is NaN")
    # Python's sort is stable: sorting by id and then by score leaves ties in id order.
    by_id = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)
    order = [by_id[i] for i in np.argsort(-values[by_id], kind="stable")]
    order = [i for i in order if ids[i] not in excluded][:depth]
    return Ranking([ids[i] for i in order], values[order])


def reordered(query: str, ranking: Ranking, scores: Mapping[tuple[str, str], float], depth: int) -> Ranking:
    """Return a ranking with its top ``depth`` in the order of other scores, and the rest as it was.

    The rest gets scores below the reordered documents, in the ranking's order.

    Args:
        query: the query's id.
        ranking: a first stage's ranking.
        scores: score by (query, document).
        depth: documents to reorder.

    Raises:
        DataError: a document to reorder has no score.
    """
    top = ranking.ids[:depth]
    unscored = [document for document in top if (query, document) not in scores]
    if unscored:
        raise DataError(f"no score for query {query!r} with document {unscored[0]!r}: run the grid again, to score it")
    head = canonical(query, top, [scores[query, document] for document in top])
    rest = ranking.ids[depth:]
    floor = float(head.scores[-1]) if top else 0.0
    # Steps that float32 can tell apart at any logit's size, so that ties do not reorder the rest.
    below = np.float32(floor) - np.maximum(1.0, abs(floor)) * np.arange(1, len(rest) + 1, dtype=np.float32) / 1024
    return Ranking([*head.ids, *rest], np.concatenate([head.scores, below.astype(np.float32)]))


def write(path: str | Path, run: Run, tag: str) -> None:
    """Write a run as gzipped TREC lines, atomically. The same run gives the same bytes."""
    with (
        files.atomic(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0) as stream,
    ):
        for query, (ids, scores) in run.items():
            lines = (
                f"{query} Q0 {document} {rank} {score:.9g} {tag}\n"
                for rank, (document, score) in enumerate(zip(ids, scores.tolist(), strict=True), start=1)
            )
            stream.write("".join(lines).encode())


class Line(NamedTuple):
    """One line of a run file, and its number."""

    query: str
    document: str
    score: float
    number: int


def lines(path: str | Path) -> Iterator[Line]:
    """Yield the lines of a TREC run (gzipped or plain).

    As in trec_eval, ASCII white space separates the columns, and the second and the fourth one mean nothing. A header
    of ir_metadata is skipped.

    Raises:
        DataError: naming file and line, for lines that are not TREC format or not UTF-8, scores that float32 does not
            hold, or an empty or truncated file.
    """
    opener = gzip.open if str(path).endswith(".gz") else open
    number, header = 0, False
    try:
        if not Path(path).stat().st_size:
            raise EOFError("it has no bytes")
        with opener(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                fields = (line.removeprefix(BOM_UTF8) if number == 1 else line).split()
                if header or (number == 1 and fields == METADATA_START):
                    header = fields != METADATA_END
                    continue
                first, _, second, _, text, _ = fields
                query, document, score = first.decode(), second.decode(), float(text)
                if not abs(score) < _INFINITE or b"_" in text:  # Python reads 1_000 as a number
                    raise DataError(f"{path}:{number}: the score {text.decode()} is not a number that float32 holds")
                yield Line(query, document, score, number)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 (byte {error.object[error.start]:#04x})") from None
    except ValueError:
        raise DataError(f"{path}:{number}: not a TREC run line (query Q0 document rank score tag)") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: truncated or corrupt after line {number} ({error}). {files.REMEDY}") from None


def read(path: str | Path) -> Run:
    """Read a TREC run (gzipped or plain) into canonical order; queries keep the file's order.

    Raises:
        DataError: naming file and line, for what ``lines`` refuses, and documents that are ranked twice for a query.
    """
    collected: dict[str, dict[str, float]] = {}
    for query, document, score, number in lines(path):
        documents = collected.setdefault(query, {})
        if document in documents:
            raise DataError(f"{path}:{number}: document {document!r} is ranked twice for query {query!r}")
        documents[document] = score
    return {
        query: canonical(query, documents, np.fromiter(documents.values(), np.float32, len(documents)))
        for query, documents in collected.items()
    }
