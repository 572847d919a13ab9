"""Stage report: one self-contained HTML page of a grid: scores, verdicts, costs, how each was made."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from .. import __version__
from ..core import files, paths, provenance
from ..data.published import OTHER_PROTOCOL
from . import aggregate

TEMPLATES = Path(__file__).parents[2] / "report"
VERDICTS = ("reproduced", "close", "deviates", OTHER_PROTOCOL, "no reference", aggregate.NOT_SUPPLIED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid report``."""
    parser.add_argument("--grid", required=True, type=json.loads, help="summary of the grid, as JSON")
    parser.add_argument("--output", default=Path(paths.REPORT), type=Path, help="HTML page to write")
    parser.add_argument("--made", default=Path(paths.REPORT_MADE), type=Path, help="where to record what made it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the page from the tables and records of the grid."""
    with provenance.record("report", args.made, {}, [args.output]) as facts:
        page = render(args.grid)
        with files.atomic(args.output) as temporary:
            temporary.write_text(page, encoding="utf-8")
        facts["bytes"] = files.size(args.output)


def render(grid: dict[str, Any]) -> str:
    """Return the page as HTML."""
    import jinja2

    scores, verdicts, costs = _read(paths.SCORES), _read(paths.VERDICTS), _read(paths.COSTS)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("index.html.j2").render(
        version=__version__,
        grid=grid,
        notes=_notes(grid),
        averaged=aggregate.averaged_rows(grid),
        precision=aggregate.precision_note(scores, grid),
        queries=scores.groupby("dataset")["queries"].first().dropna().astype(int).to_dict(),
        relevant=_relevant(grid),
        tables=[_table(scores, verdicts, grid, metric) for metric in grid["metrics"]],
        verdicts=_verdict_rows(verdicts),
        counts={name: int((verdicts["verdict"] == name).sum()) for name in VERDICTS},
        costs=_cost_rows(costs),
        cells=_cells(costs),
    )


def _read(path: str) -> pd.DataFrame:
    """Read a table in which a dataset may be called 2019 or NA."""
    names = ["system", "dataset", "metric", "precision", "verdict", "source", "note", "protocol"]
    names += ["stage", "unit", "device", "record"]
    numbers = {"rate": "", "bytes": "", "published": "", "difference": "", "tolerance": ""}
    numbers |= dict.fromkeys(("value", "queries"), aggregate.NOT_SUPPLIED)
    with files.reading(provenance.artifact(path)):
        return pd.read_csv(path, dtype=dict.fromkeys(names, str), keep_default_na=False, na_values=numbers)


def _notes(grid: dict[str, Any]) -> dict[str, str]:
    """Return for each dataset what fetch counted that a reader should know."""
    notes = {}
    for name, facts in grid["datasets"].items():
        if "not_supplied" in facts:
            notes[name] = f"not supplied: there is no folder {', '.join(facts['not_supplied'])}"
        if {"mean_of", "not_supplied"} & set(facts):
            continue
        corpus = provenance.read_record(paths.CORPUS_MADE.format(corpus=facts["corpus"]))["facts"]
        dataset = provenance.read_record(paths.DATASET_MADE.format(dataset=name))["facts"]
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


def _relevant(grid: dict[str, Any]) -> dict[str, float]:
    """Return for each dataset with queries of its own its relevant documents per query."""
    relevant = {}
    for name, facts in grid["datasets"].items():
        if not {"mean_of", "not_supplied"} & set(facts):
            made = provenance.read_record(paths.DATASET_MADE.format(dataset=name))["facts"]
            relevant[name] = made["relevant"] / made["queries"]
    return relevant


def _table(scores: pd.DataFrame, verdicts: pd.DataFrame, grid: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return one metric's rows: per cell the value, whether it is the row's best, and its worst verdict."""
    wide = aggregate.wide(scores, grid, metric)
    order = (aggregate.NOT_SUPPLIED, "no reference", OTHER_PROTOCOL, "reproduced", "close", "deviates")
    rank = {name: number for number, name in enumerate(order)}
    worst: dict[tuple[str, str], str] = {}
    of_metric = verdicts[verdicts["metric"] == metric]
    for system, dataset, verdict in zip(of_metric["system"], of_metric["dataset"], of_metric["verdict"], strict=True):
        worst[system, dataset] = max(
            worst.get((system, dataset), aggregate.NOT_SUPPLIED), verdict, key=rank.__getitem__
        )
    rows = []
    for dataset, values in zip(map(str, wide.index), wide.to_numpy(), strict=True):
        shown = aggregate.shown(values)
        cells = [
            {"value": text, "best": text == aggregate.best(metric, shown), "verdict": worst.get((system, dataset), "")}
            for system, text in zip(wide.columns, shown, strict=True)
        ]
        rows.append({"dataset": dataset, "cells": cells})
    return {"metric": metric, "rows": rows}


def _verdict_rows(verdicts: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the verdicts that have a published value, deviations first."""
    judged = verdicts[verdicts["published"].notna()].copy()
    names = ("deviates", "close", "reproduced", OTHER_PROTOCOL, aggregate.NOT_SUPPLIED)
    order = {name: number for number, name in enumerate(names)}
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


def _cells(costs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return for each cell the steps that made it, in order, with settings and commands."""
    records: dict[str, dict[str, Any]] = {}
    cells = []
    for (system, dataset), steps in costs.groupby(["system", "dataset"], sort=False):
        made = []
        for path in steps["record"]:
            if path not in records:
                records[path] = provenance.read_record(path)
            record = records[path]
            settings = {key: value for key, value in record["settings"].items() if key != "files"}
            made.append({**record, "path": path, "settings": json.dumps(settings, ensure_ascii=False)})
        cells.append({"system": system, "dataset": dataset, "steps": made})
    return cells
