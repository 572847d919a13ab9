"""Store judgements in an SQLite file in WAL mode, with a transaction per judgement. Nothing is ever overwritten."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from ..core.errors import BeirgridError, DataError
from .agreement import Pair
from .pools import draw

# Seconds without a judgement after which a judge's query goes to the next judge.
STALE = 1800
# Prefix of the judge names of models. Names of people have no colon.
MODEL = "model:"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS pool (query TEXT, document TEXT, shared INTEGER, PRIMARY KEY (query, document));
CREATE TABLE IF NOT EXISTS judgements (
    number INTEGER PRIMARY KEY AUTOINCREMENT, judge TEXT NOT NULL, query TEXT NOT NULL, document TEXT NOT NULL,
    grade INTEGER, reason TEXT NOT NULL DEFAULT '', at REAL NOT NULL, undone INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS by_pair ON judgements (query, document);
CREATE TABLE IF NOT EXISTS claims (query TEXT PRIMARY KEY, judge TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS texts (query TEXT, document TEXT, digest TEXT NOT NULL, PRIMARY KEY (query, document));
"""
# Clocks can be ahead, so claims can be of the future.
_WAITING = """
SELECT query, document, shared FROM pool
WHERE (shared OR NOT :person OR query NOT IN (
    SELECT query FROM claims WHERE judge <> :judge AND abs(:now - at) < :stale))
AND NOT EXISTS (
    SELECT 1 FROM judgements AS other
    WHERE other.query = pool.query AND other.document = pool.document AND NOT undone
    AND (other.judge = :judge OR (:person AND NOT shared AND other.judge NOT GLOB :model)))
"""
_KEEP = """
INSERT INTO texts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET digest = excluded.digest
WHERE NOT EXISTS (
    SELECT 1 FROM judgements WHERE query = excluded.query AND document = excluded.document AND NOT undone)
"""


class Grading(NamedTuple):
    """A judgement: a grade, or a skipped pair with the reason."""

    judge: str
    query: str
    document: str
    grade: int | None
    reason: str = ""


class JudgementStore:
    """The pool and the judgements of an evaluation set. Several processes may use the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction, which is committed to disk at the end of the block."""
        try:
            with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                connection.executescript(_SCHEMA)
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise BeirgridError(f"{self.path}: {error}. All judgements before this one are kept") from error
        except sqlite3.DatabaseError as error:
            raise DataError(f"{self.path} is damaged ({error})") from error

    def add_pool(self, pairs: Iterable[Pair], overlap: float = 0.0) -> int:
        """Add pairs to the pool, and return the number of new ones. Existing pairs and judgements are kept.

        Every judge judges the share ``overlap`` of the queries, chosen by a hash of their ids.
        """
        with self._connect() as connection:
            before = connection.total_changes
            rows = ((query, document, draw("shared", query) < overlap) for query, document in pairs)
            connection.executemany("INSERT OR IGNORE INTO pool (query, document, shared) VALUES (?, ?, ?)", rows)
            return connection.total_changes - before

    def pool(self) -> dict[Pair, bool]:
        """Return the pairs of the pool, if there is one, each with whether every judge judges it."""
        if not self.path.is_file():
            return {}
        with self._connect() as connection:
            rows = connection.execute("SELECT query, document, shared FROM pool")
            return {(query, document): bool(shared) for query, document, shared in rows}

    def judge(self, *judgements: Grading) -> None:
        """Store judgements, all or none, in place of earlier ones of the same judge and pair.

        Raises:
            DataError: the pool lacks one of the pairs.
        """
        now = time.time()
        with self._connect() as connection:
            for judgement in judgements:
                judge, query, document, _, _ = judgement
                known = connection.execute("SELECT 1 FROM pool WHERE query=? AND document=?", (query, document))
                if not known.fetchone():
                    raise DataError(f"the pool of {self.path} does not have document {document!r} of query {query!r}")
                connection.execute(
                    "INSERT INTO judgements (judge, query, document, grade, reason, at) VALUES (?, ?, ?, ?, ?, ?)",
                    (*judgement, now),
                )
                connection.execute("UPDATE claims SET at=? WHERE query=? AND judge=?", (now, query, judge))

    def undo(self, judge: str) -> Pair | None:
        """Undo a judge's last judgement; return its pair, or None if there is none."""
        with self._connect() as connection:
            number, *pair = connection.execute(
                "SELECT max(number), query, document FROM judgements WHERE judge=? AND undone=0", (judge,)
            ).fetchone()
            connection.execute("UPDATE judgements SET undone=1 WHERE number=?", (number,))
            return tuple(pair) if number else None

    def judgements(self) -> list[Grading]:
        """Return the current judgements, in order of time."""
        with self._connect() as connection:
            rows = connection.execute(
                "SELECT judge, query, document, grade, reason FROM judgements WHERE undone=0 ORDER BY number"
            )
            return list({row[:3]: Grading(*row) for row in rows}.values())

    def changed(self, texts: Mapping[Pair, str]) -> list[Pair]:
        """Return the pairs whose text was another one when they were judged; keep the texts of the others."""
        rows = [(*pair, hashlib.sha256(text.encode()).hexdigest()) for pair, text in sorted(texts.items())]
        with self._connect() as connection:
            connection.executemany(_KEEP, rows)
            kept = {*connection.execute("SELECT query, document, digest FROM texts")}
        return [row[:2] for row in rows if row not in kept]

    def next(self, judge: str) -> Pair | None:
        """Return a judge's next pair, or None if nothing is left.

        A judge gets all pairs of a query in a row, in an order that reveals neither system nor rank. A query that is
        not shared belongs to the judge who began it, until that judge pauses for half an hour.
        """
        with self._connect() as connection:
            claimed = {query for (query,) in connection.execute("SELECT query FROM claims WHERE judge=?", (judge,))}
            waiting = self._waiting(connection, judge)
            if not waiting:
                return None
            query, document, shared = min(waiting, key=lambda row: row[0] not in claimed)
            if not shared:
                connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (query, judge, time.time()))
            return query, document

    def waiting(self, judge: str) -> list[Pair]:
        """Return all pairs that wait for a judge, in the judge's order."""
        with self._connect() as connection:
            return [row[:2] for row in self._waiting(connection, judge)]

    def progress(self, judge: str) -> dict[str, int]:
        """Return how many pairs a judge has graded or skipped, and how many wait for the judge (or for any)."""
        of_judge = "SELECT DISTINCT query, document FROM judgements WHERE judge=? AND undone=0"
        with self._connect() as connection:
            judged = connection.execute(of_judge, (judge,)).fetchall()
            left = self._waiting(connection, judge)
            return {"judged": len(judged), "left": len(left)}

    @staticmethod
    def _waiting(connection: sqlite3.Connection, judge: str) -> list[tuple[str, str, bool]]:
        """Return the pairs that wait for a judge, in the judge's order, and whether all judges judge them.

        People share the pool, whatever a model judged. A model judges the whole pool.
        """
        values = {"judge": judge, "person": not judge.startswith(MODEL), "now": time.time()}
        rows = connection.execute(_WAITING, {**values, "stale": STALE, "model": f"{MODEL}*"}).fetchall()
        return sorted(rows, key=lambda row: (draw("query", row[0]), draw(judge, *row[:2])))
