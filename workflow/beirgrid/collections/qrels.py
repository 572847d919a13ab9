"""Read qrels: graded judgements of documents per query, in BEIR's or TREC's layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..core import files
from ..core.errors import DataError, quoted, warn
from . import lines

# Largest absolute relevance grade.
MAX_GRADE = 100
# Columns of qrels without a header. BEIR has tabs between them, TREC any white space.
_BEIR = ["query-id", "corpus-id", "score"]
_TREC = ["query-id", "iteration", "corpus-id", "score"]
_WHOLE = "[+-]?0*[0-9]{1,3}"
# As in trec_eval 10, a line that begins with # is a comment, but a judgement is none: its query's id begins with #.
_COMMENT = re.compile(rf"#(?!\S+\s.*\s{_WHOLE}\s*$|\t[^\t]+\t{_WHOLE}\s*$)")


class Judgement(NamedTuple):
    """One line of qrels. Grades above 0 are relevant; ``place`` is file and line.

    Attributes:
        changed: whether the collection lists the document among those whose relevance an instruction changes.
    """

    query: str
    document: str
    grade: int
    place: str
    changed: bool = False


# Query id to document id to grade.
Qrels = dict[str, dict[str, int]]
# Query id to the documents whose relevance an instruction changes, where the collection lists them.
Changes = dict[str, set[str]]


def judgements(path: Path) -> Iterator[Judgement]:
    """Yield the judgements of a qrels file, plain or gzipped, in BEIR's or TREC's layout, without comments.

    Raises:
        DataError: names file and line: a line does not match the layout, or a grade is no number.
    """
    names: list[str] = []
    separator = None
    for line, place in lines.read(path):
        if _COMMENT.match(line):
            continue
        if not names:
            if names := _header(line, place):
                separator = "\t" if "\t" in line else None
                continue
            is_trec = line.count("\t") != 2 and len(line.split()) == 4
            names, separator = (_TREC, None) if is_trec else (_BEIR, "\t")
        fields = line.split(separator)
        if len(fields) != len(names):
            between = ", with tabs between" if separator else ""
            raise DataError(f"{place}: expected the columns {', '.join(names)}{between}; got {quoted(line)}")
        row = dict(zip(names, fields, strict=True))
        if not re.fullmatch(_WHOLE, row["score"]):
            raise DataError(f"{place}: the score {quoted(row['score'])} is not a whole number (of up to three digits)")
        yield Judgement(row["query-id"], row["corpus-id"], int(row["score"]), place, row.get("changed") == "1")


@dataclass
class ByQuery:
    """Judgements by query. If a pair has several grades, the last counts; ``overruled`` is the number of such pairs."""

    grades: Qrels = field(default_factory=dict)
    changes: Changes = field(default_factory=dict)
    overruled: int = 0

    def add(self, judgement: Judgement) -> None:
        """Add a judgement.

        Raises:
            DataError: an id cannot be in a run, or the grade is not valid.
        """
        query, document, grade, place, changed = judgement
        lines.check_id(query, place)
        lines.check_id(document, place)
        if abs(grade) > MAX_GRADE:
            raise DataError(f"{place}: {grade} is not a relevance grade (at most {MAX_GRADE})")
        of_query = self.grades.setdefault(query, {})
        self.overruled += of_query.get(document, grade) != grade
        of_query[document] = grade
        if changed:
            self.changes.setdefault(query, set()).add(document)


def read(path: str | Path) -> Qrels:
    """Return query id to document id to grade. If a pair has several grades, the last counts, with a warning.

    Raises:
        DataError: the file is missing, damaged or empty, or a line cannot be read.
    """
    return read_with_changes(path)[0]


def read_with_changes(path: str | Path) -> tuple[Qrels, Changes]:
    """Return what ``read`` does, and query id to the documents whose column ``changed`` is 1; no query without it."""
    judged = ByQuery()
    with files.reading(path):
        for judgement in judgements(Path(path)):
            judged.add(judgement)
    if not judged.grades:
        raise DataError(f"{path} has no judgements. {files.REMEDY}")
    if judged.overruled:
        warn(f"{path}: {overruling(judged.overruled)}")
    return judged.grades, judged.changes


def overruling(pairs: int) -> str:
    """Return a sentence that says how many pairs of a query and a document have several grades."""
    return f"qrels judge {pairs} (query, document) pairs again with another grade; the last one counts"


def _header(line: str, place: str) -> list[str]:
    """Return the names of the columns in the header of a qrels file; empty if the first line is a judgement."""
    names = [name.strip().lower().replace("_", "-") for name in line.split("\t" if "\t" in line else None)]
    if not {*names} & {*_BEIR} or re.fullmatch(_WHOLE, names[-1]):
        return []
    if any(names.count(name) != 1 for name in _BEIR):
        raise DataError(f"{place}: the header {quoted(line)} does not name each of {', '.join(_BEIR)} once")
    return names
