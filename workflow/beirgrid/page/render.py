"""Render tables and records to one self-contained HTML page."""

from __future__ import annotations

import base64
import gzip
import importlib.metadata
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from ..core.checkout import CHECKOUT, full_version
from ..measures import written
from ..results import comparisons
from ..results import table_files as data_tables
from ..results.answers import Answers, verdict_counts
from ..results.summary import GridSummary
from . import analyses, sections, texts
from .answer import all_published, answer, gains

TEMPLATES = CHECKOUT / "workflow" / "report"
# What the signs behind a value mean. Notes below the table explain the others.
SIGNS = [
    ("°", "open against the best"),
    ("✓", "reproduced a published value"),
    ("≈", "close (within twice the tolerance)"),
    ("✗", "deviates (above or below)"),
]
# DataTables with its buttons (MIT licence), in the Python package that ships it.
LIBRARY_PACKAGE = "itables"
LIBRARY = "itables/html/dt_bundle.js"


def render(
    grid: GridSummary,
    answers: Answers,
    pictures: Sequence[analyses.Figure] = (),
    documents: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return the page of a grid as HTML, with its tables, their pictures, and ``retrieved.documents``."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "large": large, "written": written}
    grid = data_tables.ordered(grid, answers)
    steps = answers.costs.assign(number=pd.factorize(answers.costs["record"])[0])  # cells share some
    cells = data_tables.shown_scores(answers.scores, grid).drop_duplicates(["system", "dataset"])
    by_metric = {
        table.name: table
        for table in (
            sections.against_baseline(grid, answers),
            sections.over_datasets(grid, answers),
            texts.Shown("pair", sections.PAIR_COLUMNS, 1, [], {metric: [] for metric in grid.metrics}),
            sections.systems(grid, answers),
        )
    }
    pairs, whole = sections.pairs(grid, answers)
    library = importlib.metadata.distribution(LIBRARY_PACKAGE)
    data = {
        "systems": grid.systems,
        "families": grid.families,
        "cells": sections.values(cells[["system", "dataset", "queries", "precision"]]),
        "steps": sections.values(steps[["system", "dataset", "number"]]),
        "seeds": grid.seeds,
        "parts": {row: grid.datasets[row].mean_of for row in grid.rows}
        | {row: (of,) for row, of in grid.slices.items()},
        "tables": {name: table._asdict() for name, table in by_metric.items()},
        "baseline": sections.baseline_of(answers),
        "compare": grid.compare,
        "pairs": pairs,
        "zeroShot": sections.zero_shot(grid, answers),
        "zeroShotSaid": bool(grid.trained_on or grid.training_unknown),
    }
    return environment.get_template("index.html.j2").render(
        version=full_version(),
        finished=answers.costs["finished"].max()[:10] if len(answers.costs) else "",
        grid=grid,
        answers=answers,
        rows=[grid.datasets[row] for row in grid.rows],
        answer=answer(grid, answers),
        gains=gains(grid, answers),
        all_published=all_published(answers),
        tables=sections.metric_tables(grid, answers),
        signs=SIGNS,
        counts=sections.counts(grid, answers),
        failures=sections.failures(grid, answers),
        notes=data_tables.common_notes(grid, answers),
        baseline_name=data["baseline"],
        tests=comparisons.tests_of(grid, grid.metrics[0]),
        by_metric=by_metric,
        verdicts=sections.verdicts(answers),
        published_counts=verdict_counts(answers.verdicts, recorded=False),
        recorded_counts=verdict_counts(answers.verdicts, recorded=True),
        datasets=sections.datasets(grid, answers),
        steps=steps.drop_duplicates("number").to_dict("records"),
        analyses=analyses.read(grid.name, answers.scores),
        pictures=pictures,
        per_query=_archive(sections.per_query(grid, answers)),
        documents=_archive(dict(documents)),
        all_pairs=whole,
        data=_archive(data),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),  # noqa: S704, a file of the package
        script=Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),  # noqa: S704
        library=_gzip_text(Path(str(library.locate_file(LIBRARY))).read_bytes()),
        library_version=library.version,
    )


def large(sentence: str) -> Markup:
    """Escape a sentence and enlarge its first value."""
    parts = re.split(r"((?<![\w.])[+-]?\d\.\d{4}(?!\d))", sentence, maxsplit=1)
    return Markup("").join(Markup("<b>{}</b>").format(part) if n % 2 else escape(part) for n, part in enumerate(parts))


def breakable(name: str) -> Markup:
    """Escape a name and allow line breaks after ``-``, ``_``, ``+``, ``@`` and ``.``."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[-_+@.])", name))


def _archive(content: Any) -> str:
    """Pack content for the page's script as JSON."""
    return _gzip_text(json.dumps(content).encode())


def _gzip_text(content: bytes) -> str:
    """Compress bytes by gzip in base64, so that no text in them can end an HTML element."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")
