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
from markupsafe import Markup, escape

from ..config.metric_names import written
from ..core.checkout import CHECKOUT
from ..core.version import dated_version
from ..results import table_files as data_tables
from ..results.answers import Answers, verdict_counts
from ..results.published import SCORE_IS_PUBLISHED
from ..results.summary import GridSummary
from . import about, analyses, sections, steps, texts
from . import matrix as grids
from .answer import all_published, answer

TEMPLATES = CHECKOUT / "workflow" / "report"
# What the signs behind a value mean. Notes below the table explain the others.
SIGNS = [
    ("°", "not distinguishable from the best (randomised Tukey HSD test, 0.05)"),
    ("✓", "reproduced a published value"),
    ("≈", "close (within twice the tolerance)"),
    ("✗", "deviates (above or below)"),
]
# DataTables with its buttons (MIT licence), in the Python package that ships it.
LIBRARY_PACKAGE, LIBRARY = "itables", "itables/html/dt_bundle.js"


def render(
    grid: GridSummary,
    answers: Answers,
    pictures: Sequence[analyses.Figure] = (),
    documents: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return the page of a grid as HTML.

    Args:
        grid: the grid's summary, which names the records and the grid's folder with figures and analyses.
        answers: the tables of the grid.
        pictures: figures of these tables.
        documents: documents of queries, as ``page.documents`` returns them.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "large": large, "written": written}
    environment.globals["filled"] = sections.filled
    grid = data_tables.ordered(grid, answers)
    arranged = steps.collect(grid, answers.steps)
    by_metric = [
        sections.against_baseline(grid, answers),
        sections.over_datasets(grid, answers),
        sections.two_systems(grid),
        sections.over_seeds(grid, answers),
        sections.not_run_here(grid, answers),
        about.leaderboard(grid, answers),
    ]
    pairs, whole = sections.pairs(grid, answers)
    by_metric = [table.without_empty() for table in by_metric]
    baseline, across, pair, seeds, not_run, systems = by_metric
    tables = grids.tables(grid, answers)
    data = {
        "systems": grid.systems,
        "datasets": grid.rows,
        "families": grid.families,
        "cells": _cells(grid, answers, arranged),
        "tables": {table.name: table._asdict() for table in by_metric},
        "baseline": sections.baseline_of(answers),
        "compare": grid.compare,
        "pairs": pairs,
        "zeroShot": sections.zero_shot_means(grid, answers),
        "zeroShotSaid": bool(grid.trained_on or grid.training_unknown),
    }
    return environment.get_template("index.html.j2").render(
        version=dated_version(),
        grid=grid,
        answer=answer(grid, answers),
        all_published=all_published(answers),
        significant=len(answers.significance) > 0,
        tasks=sorted({grid.datasets[row].task for row in grid.rows} - {""}),
        domains=sorted({grid.datasets[row].domain for row in grid.rows} - {""}),
        tables=tables,
        marks=set[str]().union(*(table.marks for table in tables)),
        signs=SIGNS,
        counts=grids.counts(grid, answers),
        failures=grids.failures(grid, answers),
        notes=data_tables.notes(grid, answers.scores),
        baseline_name=sections.baseline_of(answers),
        baseline=baseline,
        across=across,
        pair=pair,
        seeds=seeds,
        systems=systems,
        not_run=not_run if len(answers.published) else None,
        verdicts=sections.verdicts(answers),
        verdict_columns=list(sections.VERDICT_COLUMNS),
        verdict_names=[name for name in reversed(grids.VERDICTS) if name not in ("", SCORE_IS_PUBLISHED)],
        published_counts=verdict_counts(answers.verdicts, recorded=False),
        recorded_counts=verdict_counts(answers.verdicts, recorded=True),
        datasets=about.datasets(grid, answers),
        steps=arranged.steps,
        analyses=analyses.read(grid.name, answers.scores),
        pictures=pictures,
        per_query=_packed(sections.per_query(grid, answers)),
        documents=_packed(dict(documents)),
        all_pairs=whole,
        data=_packed(data),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),  # noqa: S704, a file of the package
        script=Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),  # noqa: S704
        library=_compressed(_library()),
        library_version=importlib.metadata.version(LIBRARY_PACKAGE),
    )


def large(sentence: str) -> Markup:
    """Escape a sentence and enlarge its first value."""
    parts = re.split(r"((?<![\w.])[+-]?\d\.\d{4}(?!\d))", sentence, maxsplit=1)
    return Markup("").join(Markup("<b>{}</b>").format(part) if n % 2 else escape(part) for n, part in enumerate(parts))


def breakable(name: str) -> Markup:
    """Escape a name and allow line breaks after ``-``, ``_``, ``+``, ``@`` and ``.``."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[-_+@.])", name))


def _packed(content: Any) -> str:
    """Pack content for the page's script as JSON."""
    return _compressed(json.dumps(content).encode())


def _compressed(content: bytes) -> str:
    """Compress bytes by gzip in base64, so that no text in them can end an HTML element."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")


def _library() -> bytes:
    return Path(str(importlib.metadata.distribution(LIBRARY_PACKAGE).locate_file(LIBRARY))).read_bytes()


def _cells(grid: GridSummary, answers: Answers, arranged: steps.Steps) -> dict[str, dict[str, Any]]:
    """Return the content of each cell's dialog, by system and dataset: queries, precision, cost, steps, components."""
    rows = answers.scores.drop_duplicates(["system", "dataset"])
    cells: dict[str, dict[str, Any]] = {system: {} for system in grid.systems}
    for row in texts.rows(rows[rows["system"].isin(list(grid.systems)) & rows["dataset"].isin(list(grid.rows))]):
        numbers = arranged.of_cell.get((row.system, row.dataset), [])
        cells[row.system][row.dataset] = {
            "queries": texts.count(row.queries),
            "precision": row.precision,
            "cost": _cost([arranged.steps[number] for number in numbers]),
            "steps": numbers,
            "parts": list(grid.datasets[row.dataset].mean_of),
        }
    return cells


def _cost(of_cell: list[steps.ShownStep]) -> str:
    """Phrase the time and memory of a cell's steps."""
    if not of_cell:
        return ""
    seconds, memory = sum(step.seconds for step in of_cell), max(step.peak_memory_mb for step in of_cell)
    return f"{seconds:.1f} s in all steps, including shared steps; at most {memory:.0f} MB of memory"
