"""The report's analyses, if they were made: figures and tables."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ..core import files, paths, provenance
from ..results.answer_files import to_csv, unguarded
from . import texts
from .drawing import FORMATS
from .texts import Shown

# Tables to show if they exist, with their captions.
CAPTIONS = {
    "efficiency": "Size, time and memory of each system on each dataset, from the records of its steps",
    "agreement": "Agreement of systems on datasets without judgements: mean over the queries of the share of common "
    "documents of the top 10. Pool to a depth: the pairs of a query and a document that one would have to judge",
    "latency": "Time per query, one query at a time after a warm-up, on the named hardware",
    "holes": "Retrieved documents without a judgement, and nDCG of judged documents alone",
    "lengths": "Lengths of retrieved and of relevant documents, in words",
    "overlap": "Weighted Jaccard similarity of the vocabularies",
    "paper": "Values of the BEIR paper's Tables 3, 4 and 10, with those of this grid (here)",
}
# Columns of names, which may look like numbers.
NAMES = ("system", "dataset", "other")
# Most rows of a table that are shown.
MOST_ROWS = 1000


class Figure(NamedTuple):
    """A figure: the contents of its files by their suffix; that of ``svg`` is shown."""

    name: str
    caption: str
    files: Mapping[str, bytes]

    @property
    def uris(self) -> dict[str, str]:
        """The files as addresses of their contents, by suffix. No script runs in an image."""
        types = {"svg": "image/svg+xml", "pdf": "application/pdf", "png": "image/png"}
        return {
            suffix: f"data:{types[suffix]};base64,{base64.b64encode(content).decode('ascii')}"
            for suffix, content in self.files.items()
        }


class Analyses(NamedTuple):
    """The analyses on the page, tables by their captions. ``outdated`` ones are of other scores than the page's."""

    figures: list[Figure]
    tables: dict[str, Shown]
    outdated: bool


def read(grid: str, scores: pd.DataFrame) -> Analyses:
    """Read the analyses of the named grid, for a page with these scores; missing ones are omitted.

    Raises:
        DataError: a file is damaged.
    """
    folder = Path(paths.GRID_FOLDER.format(grid=grid))
    record = Path(paths.ANALYSES_RECORD.format(grid=grid))
    digest = hashlib.sha256(to_csv("scores", scores).encode()).hexdigest()
    outdated = record.is_file() and provenance.read_record(record)["facts"].get("scores") != digest
    return Analyses(list(_figures(folder / "figures")), dict(_tables(folder / "tables")), outdated)


def _figures(folder: Path) -> Iterator[Figure]:
    """Yield the figures of a folder in the order of ``captions.json``."""
    captions = folder / "captions.json"
    if captions.is_file():
        with files.reading(captions):
            named = files.read_json(captions)
        for name, caption in named.items():
            made = {suffix: path for suffix in FORMATS if (path := folder / f"{name}.{suffix}").is_file()}
            if "svg" in made:
                yield Figure(name, caption, {suffix: path.read_bytes() for suffix, path in made.items()})


def _tables(folder: Path) -> Iterator[tuple[str, Shown]]:
    """Yield captions and tables."""
    for name, caption in CAPTIONS.items():
        path = folder / f"{name}.csv"
        if not path.is_file():
            continue
        with files.reading(path):
            table = unguarded(pd.read_csv(path, dtype=dict.fromkeys(NAMES, str), keep_default_na=False, na_values=[""]))
        if len(table) > MOST_ROWS:
            caption += f". The first {MOST_ROWS:,} rows of {len(table):,} in tables/{name}.csv"
        if len(table):
            yield caption, texts.shown(name, {"": table.head(MOST_ROWS)}, list(map(str, table)), default=_short)


def _short(number: float) -> str:
    """Format a number with four significant digits, and all digits before the point; empty without one."""
    return texts.number(number, ".0f" if abs(number) >= 1000 or float(number).is_integer() else ".4g")
