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
from ..results.summary import GridSummary
from . import about, analyses, sections, steps, texts
from . import matrix as grids
from .answer import all_published, answer

TEMPLATES = CHECKOUT / "workflow" / "report"
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
    environment.filters |= {"breakable": breakable, "written": written}
    environment.globals["filled"] = sections.filled
    grid = data_tables.ordered(grid, answers)
    found = steps.collect(grid, answers.steps)
    by_metric = [
        sections.best_groups(grid, answers),
        sections.against_baseline(grid, answers),
        sections.over_datasets(grid, answers),
        sections.two_systems(grid),
        sections.over_seeds(grid, answers),
        sections.not_run_here(grid, answers),
        about.leaderboard(grid, answers),
    ]
    pairs, whole = sections.pairs(grid, answers)
    analysed = analyses.read(grid.name, answers.scores)
    by_metric = [table.without_empty() for table in by_metric]
    groups, baseline, across, pair, seeds, not_run, systems = by_metric
    return environment.get_template("index.html.j2").render(
        version=dated_version(),
        grid=grid,
        answer=str(answer(grid, answers)),
        all_published=all_published(answers),
        significant=len(answers.significance) > 0,
        tasks=sorted({grid.datasets[row].task for row in grid.rows} - {""}),
        domains=sorted({grid.datasets[row].domain for row in grid.rows} - {""}),
        tables=grids.tables(grid, answers),
        counts=grids.counts(grid, answers),
        failures=grids.failures(grid, answers),
        precision=data_tables.precision_note(answers.scores, grid),
        flaws=data_tables.flaw_notes(answers.scores, grid),
        training_notes=[*data_tables.training_notes(grid), *data_tables.tuning_notes(grid)],
        seed_notes=[*data_tables.seed_notes(grid), *([data_tables.DEVIATION] if grid.seeds else [])],
        baseline_name=sections.baseline_of(answers),
        groups=groups,
        baseline=baseline,
        across=across,
        pair=pair,
        seeds=seeds,
        systems=systems,
        not_run=not_run if len(answers.published) else None,
        verdicts=sections.verdicts(answers),
        published_counts=verdict_counts(answers.verdicts, recorded=False),
        recorded_counts=verdict_counts(answers.verdicts, recorded=True),
        costs=sections.costs(answers),
        spent=sections.SPENT,
        datasets=about.datasets(grid, answers),
        steps=found.steps,
        analyses=analysed,
        pictures=pictures,
        figures=_packed(
            json.dumps({figure.name: figure.packed() for figure in [*pictures, *analysed.figures]}).encode()
        ),
        per_query=_packed(json.dumps(sections.per_query(grid, answers)).encode()),
        documents=_packed(json.dumps(dict(documents)).encode()),
        all_pairs=whole,
        data=_packed(
            json.dumps(
                {
                    "systems": list(grid.systems),
                    "datasets": list(grid.rows),
                    "families": grid.families,
                    "cells": _cells(grid, answers, found),
                    "tables": {table.name: table._asdict() for table in by_metric},
                    "baseline": sections.baseline_of(answers),
                    "compare": list(grid.compare),
                    "pairs": pairs,
                    "zeroShot": sections.zero_shot_means(grid, answers),
                }
            ).encode()
        ),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),  # noqa: S704, a file of the package
        script=Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),  # noqa: S704
        library=_packed(_library()),
        library_version=importlib.metadata.version(LIBRARY_PACKAGE),
    )


def breakable(name: str) -> Markup:
    """Escape a name and allow line breaks after ``-``, ``_``, ``+``, ``@`` and ``.``."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[-_+@.])", name))


def _packed(content: bytes) -> str:
    """Pack content for the page's script: gzip in base64, so that no text in it can end an HTML element."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")


def _library() -> bytes:
    return Path(str(importlib.metadata.distribution(LIBRARY_PACKAGE).locate_file(LIBRARY))).read_bytes()


def _cells(grid: GridSummary, answers: Answers, found: steps.Steps) -> dict[str, dict[str, Any]]:
    """Return the content of each cell's dialog, by system and dataset: queries, precision, cost, steps, components."""
    rows = answers.scores.drop_duplicates(["system", "dataset"])
    cells: dict[str, dict[str, Any]] = {system: {} for system in grid.systems}
    for row in texts.rows(rows[rows["system"].isin(list(grid.systems)) & rows["dataset"].isin(list(grid.rows))]):
        numbers = found.of_cell.get((row.system, row.dataset), [])
        cells[row.system][row.dataset] = {
            "queries": texts.count(row.queries),
            "precision": row.precision,
            "cost": _cost([found.steps[number] for number in numbers]),
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
