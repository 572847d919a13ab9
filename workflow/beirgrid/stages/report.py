"""Stage report: one self-contained HTML page of a grid: scores, verdicts, costs, and the steps behind each cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from ..core import files, provenance
from ..core.errors import DataError
from ..core.version import __version__
from ..data import tables as grid_tables
from ..data.answers import FAILED, NOT_SUPPLIED, PENDING, Answers, read_answers
from ..data.entries import from_json
from ..data.published import OTHER_PROTOCOL
from ..data.summary import GridSummary

TEMPLATES = Path(__file__).parents[2] / "report"
# The strongest first.
VERDICTS = ("deviates", "close", "reproduced", OTHER_PROTOCOL, "no reference", FAILED, PENDING, NOT_SUPPLIED)


def page(
    *,
    grid: Annotated[GridSummary, from_json(GridSummary), "summary of the grid, JSON"],
    tables: Annotated[Path, "folder of the tables that aggregate wrote"],
    output: Annotated[Path, "HTML page to write"],
    record: Annotated[Path, "record to write, .json"],
) -> None:
    """Write the page of a grid.

    Args:
        grid: summary of the grid, which names the records to read.
        tables: folder of the tables that aggregate wrote.
        output: HTML page to write.
        record: record to write.

    Raises:
        DataError: a table or a record is missing or damaged.
    """
    with provenance.record("report", record, {}, [output]) as facts:
        for name in Answers._fields:
            provenance.artifact(tables / f"{name}.csv")
        files.write_text(output, render(grid, read_answers(tables)))
        facts["bytes"] = files.size(output)


def render(grid: GridSummary, answers: Answers) -> str:
    """Return the page as HTML."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    scores, verdicts = answers.scores, answers.verdicts
    return environment.get_template("index.html.j2").render(
        version=__version__,
        grid=grid,
        notes=_notes(grid),
        averaged=grid_tables.averaged_rows(grid),
        precision=grid_tables.precision_note(scores, grid),
        queries=scores.groupby("dataset")["queries"].first().dropna().astype(int).to_dict(),
        relevant=_relevant(grid),
        tables=[_table(answers, grid, metric) for metric in grid.metrics],
        verdicts=_verdict_rows(verdicts),
        counts={name: int((verdicts["verdict"] == name).sum()) for name in VERDICTS},
        costs=_cost_rows(answers.costs),
        cells=_cells(grid),
    )


def _notes(grid: GridSummary) -> dict[str, str]:
    """Return for each dataset the counts of fetch that a reader should know."""
    notes = {}
    for name, entry in grid.datasets.items():
        if entry.not_supplied:
            notes[name] = f"not supplied: there is no folder {', '.join(entry.not_supplied)}"
        if not (records := _records(entry.corpus_record, entry.dataset_record)):
            continue
        corpus, dataset = (record["facts"] for record in records)
        counts = {
            "documents without text": corpus["empty_documents"],
            "duplicate documents dropped": corpus["duplicates_dropped"],
            "duplicate queries dropped": dataset["duplicates_dropped"],
            "judged documents not in the corpus": dataset["unknown_documents"],
            "queries without relevant documents": dataset["queries_without_relevant"],
            "judgements overruled": dataset["overruled_judgements"],
            "queries that are documents and do not find themselves": dataset["own_documents_dropped"],
            "queries with the id of another document": dataset["same_ids_kept"],
        }
        notes[name] = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return notes


def _relevant(grid: GridSummary) -> dict[str, float]:
    """Return for each dataset with queries of its own its relevant documents per query."""
    relevant = {}
    for name, entry in grid.datasets.items():
        for record in _records(entry.dataset_record):
            relevant[name] = record["facts"]["relevant"] / record["facts"]["queries"]
    return relevant


def _records(*paths: str) -> list[dict[str, Any]]:
    """Return records, or none of them if one cannot be read: its step is not done, or the tables say what is wrong."""
    try:
        return [provenance.read_record(path) for path in paths]
    except DataError:
        return []


def _table(answers: Answers, grid: GridSummary, metric: str) -> dict[str, Any]:
    """Return one metric's rows: per cell the value, whether it is the row's best, and its worst verdict."""
    wide, verdicts = grid_tables.wide(answers, grid, metric), answers.verdicts
    rank = {name: number for number, name in enumerate(VERDICTS[::-1])}
    worst: dict[tuple[str, str], str] = {}
    of_metric = verdicts[verdicts["metric"] == metric]
    for system, dataset, verdict in zip(of_metric["system"], of_metric["dataset"], of_metric["verdict"], strict=True):
        worst[system, dataset] = max(worst.get((system, dataset), NOT_SUPPLIED), verdict, key=rank.__getitem__)
    rows = []
    for dataset, shown in zip(map(str, wide.shown.index), wide.shown.to_numpy(), strict=True):
        best = grid_tables.best(metric, shown)
        cells = [
            {"value": text, "best": text == best, "verdict": worst.get((system, dataset), "")}
            for system, text in zip(wide.shown.columns, shown, strict=True)
        ]
        rows.append({"dataset": dataset, "cells": cells})
    return {"metric": metric, "rows": rows, "notes": wide.notes}


def _verdict_rows(verdicts: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the verdicts that have a published value, deviations first."""
    judged = verdicts[verdicts["published"].notna()].copy()
    order = {name: number for number, name in enumerate(VERDICTS)}
    judged = judged.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    return [{str(name): value for name, value in row.items()} for row in judged.to_dict("records")]


def _cost_rows(costs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one row per system and stage, summed over datasets; shared records count once."""
    rows = []
    for (system, stage), steps in costs.groupby(["system", "stage"], sort=False):
        steps = steps.drop_duplicates("record")
        rates = steps.dropna(subset="rate")
        rows.append(
            {
                "system": system,
                "stage": stage,
                "jobs": len(steps),
                "seconds": f"{steps['seconds'].sum():.1f}",
                "rate": f"{rates['rate'].mean():,.1f} {rates['unit'].iloc[0]}" if len(rates) else "",
                "size": _megabytes(steps["bytes"].sum()) if stage in ("index", "fetch", "train") else "",
                "memory": f"{steps['peak_memory_mb'].max():,.0f} MB",
                "device": ", ".join(sorted(set(steps["device"]))),
            }
        )
    return rows


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _cells(grid: GridSummary) -> list[dict[str, Any]]:
    """Return for each cell the steps behind it, in order, with settings and commands."""
    records: dict[str, list[dict[str, Any]]] = {}
    cells = []
    for cell in grid.cells:
        steps = []
        for path in cell.records:
            if path not in records:
                records[path] = _records(path)
            for record in records[path]:
                settings = {key: value for key, value in record["settings"].items() if key != "files"}
                steps.append({**record, "path": path, "settings": json.dumps(settings, ensure_ascii=False)})
        cells.append({"system": cell.system, "dataset": cell.dataset, "steps": steps})
    return cells
