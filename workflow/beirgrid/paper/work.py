"""Stage analyse: compute the BEIR paper's analyses from the runs of a grid."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import pyarrow as pa

from ..collections import collection
from ..collections import qrels as judgements
from ..core import files, paths, provenance
from ..core.errors import warn
from ..core.progress import Progress
from ..core.provenance import Made
from ..measures import per_query
from ..results import efficiency, table_files
from ..results.answer_files import guarded
from ..results.answers import DONE, against_baseline
from ..results.cells import Cells, find
from ..results.summary import Cell, GridSummary, SummaryFile
from ..runs import runs
from . import figures, published, words

# Depth of the length analysis, and the cut-off of hole@k.
TOP = 10
# Tables to write, {name}.csv.
TABLES = ("against_baseline", "trade_offs", "holes", "lengths", "length_histogram", "overlap", "map", "paper")
# Table written by the command ``latency``, if it was run.
LATENCY = "latency.csv"
METRICS = ("hole", "hole_corpus", "ndcg", "ndcg_judged")
HOLE_COLUMNS = ["dataset", "system", "k", *METRICS, "queries"]


def analyse(
    *,
    grid: SummaryFile,
    output: Annotated[Path, "folder of the grid, with its tables"],
) -> Made:
    """Compute the BEIR paper's analyses from the runs of a grid. Unfinished cells are skipped with a warning.

    Raises:
        DataError: an input is missing or damaged.
    """
    folder = output / "tables"
    answers = table_files.read(grid, folder)
    cells = find(grid)
    done = list(_finished_cells(grid, cells))
    latency = efficiency.read_latency(folder / LATENCY) if (folder / LATENCY).is_file() else None
    overlap = words.overlaps(_word_counts(grid))
    tables = {
        **_with_means(grid, *_measure(grid, done)),
        "overlap": overlap,
        "map": words.places(overlap),
        "against_baseline": against_baseline(answers.across),
        "trade_offs": efficiency.trade_offs(answers, grid, latency),
    }
    tables["lengths"] = words.with_similarity(tables["lengths"], _similarities(grid, done, cells))
    tables["paper"] = published.beside(grid, tables["holes"], answers.efficiency, latency)
    for name in TABLES:
        files.write_text(folder / f"{name}.csv", guarded(tables[name]).to_csv(index=False, lineterminator="\n"))
    drawn = figures.draw(grid, answers, tables)
    figures.write(drawn, output / "figures")
    facts = {"cells": len(done), "figures": list(drawn), "scores": files.sha256(folder / "scores.csv")}
    return Made(facts, outputs=[*(folder / f"{name}.csv" for name in TABLES), output / "figures"])


def _similarities(grid: GridSummary, done: Sequence[Cell], cells: Cells) -> dict[str, str]:
    """Return how each dense system compares vectors, from the record of its search."""
    owners = {member: system for system, members in grid.seeds.items() for member in members}
    similarities = {}
    for cell in done:
        if grid.families.get(owners.get(cell.system, cell.system)) == "dense":
            record = cells[cell.system, cell.dataset].steps[cell.records[-1]]
            settings = record["settings"]
            # Earlier versions recorded the model's keys among the settings.
            similarities[cell.system] = settings.get("model", settings).get("similarity", "")
    return similarities


def _finished_cells(grid: GridSummary, cells: Cells) -> Iterator[Cell]:
    """Yield the finished cells, and warn of the others."""
    for cell in grid.cells:
        status, detail, *_ = cells[cell.system, cell.dataset]
        if status == DONE:
            yield cell
        else:
            warn(f"{cell.system} on {cell.dataset} is left out: it is {status}{f' ({detail})' if detail else ''}")


def _measure(grid: GridSummary, done: Sequence[Cell]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the holes of each run, and the length of each document (``words.lengths``). Runs are read one by one."""
    progress = Progress("analyse", len(done), "runs")
    unjudged = []
    measured = []
    for dataset in dict.fromkeys(cell.dataset for cell in done):
        qrels = judgements.read(provenance.artifact(paths.QRELS.format(dataset=dataset)))
        top: dict[str, dict[str, list[str]]] = {}
        for cell in (cell for cell in done if cell.dataset == dataset):
            run = runs.read(provenance.artifact(paths.RUN.format(system=cell.system, dataset=dataset)))
            top[cell.system] = {query: ranking.ids[:TOP] for query, ranking in run.items()}
            about = {"dataset": dataset, "system": cell.system, "k": TOP, "queries": len(qrels)}
            unjudged.append(about | holes(run, qrels, TOP))
            progress.add(1)
        counts = _count_words(grid.datasets[dataset].corpus, top, qrels)
        measured.append(words.lengths(dataset, top, qrels, counts))
    measured = measured or [words.lengths("", {}, {}, {})]
    return pd.DataFrame(unjudged, columns=HOLE_COLUMNS), pd.concat(measured, ignore_index=True)


def holes(run: runs.Run, qrels: Mapping[str, Mapping[str, int]], k: int = 10) -> dict[str, float]:
    """Compute both shares of holes in the top k, nDCG@k, and nDCG@k of judged documents only.

    ``hole`` counts documents not judged for the query, ``hole_corpus`` documents judged for no query of the dataset
    (the kind of the paper's Table 4). ``ndcg_judged`` is an estimate: it leaves the holes out, where the paper's
    annotators filled them.
    """
    needed = {}  # documents on which the four metrics depend: the top k, and judged documents below
    for query, judged in qrels.items():
        ranking = run.get(query, runs.EMPTY)
        places = [place for place, document in enumerate(ranking.ids) if place < k or document in judged]
        needed[query] = runs.Ranking([ranking.ids[place] for place in places], ranking.scores[places])
    values = per_query(needed, qrels, [f"{name}@{k}" for name in METRICS])
    return {name: float(values[f"{name}@{k}"].mean()) for name in METRICS}


def _count_words(
    corpus: str, top: Mapping[str, Mapping[str, Sequence[str]]], qrels: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Count the words of each retrieved or judged document."""
    ids = {document for of_query in top.values() for documents in of_query.values() for document in documents}
    ids |= {document for grades in qrels.values() for document in grades}
    path = provenance.artifact(paths.CORPUS.format(corpus=corpus))
    return {document.id: len(document.full_text.split()) for document in collection.pick_documents(path, ids)}


def _with_means(grid: GridSummary, unjudged: pd.DataFrame, measured: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of holes and lengths, with the averaged datasets whose parts are all analysed."""
    of_dataset = dict(list(measured.groupby("dataset")))
    holes = [unjudged]
    of_lengths = [measured]
    for row, entry in grid.datasets.items():
        if entry.mean_of and {*entry.mean_of} <= {*of_dataset}:
            holes.append(_mean_holes(unjudged, row, entry.mean_of))
            of_lengths.append(words.together(row, [of_dataset[part] for part in entry.mean_of]))
    whole = pd.concat(holes, ignore_index=True)[HOLE_COLUMNS]
    lengths = pd.concat(of_lengths, ignore_index=True)
    return {"holes": whole, "lengths": words.describe(lengths), "length_histogram": words.histogram(lengths)}


def _mean_holes(table: pd.DataFrame, row: str, parts: Sequence[str]) -> pd.DataFrame:
    """Average the holes of datasets, unweighted, for each system that has all of them."""
    groups = table[table["dataset"].isin(list(parts))].groupby(["system", "k"], sort=False)
    means = groups[list(METRICS)].mean().assign(dataset=row, queries=groups["queries"].sum())
    return means[groups.size() == len(parts)].reset_index()


def _word_counts(grid: GridSummary) -> dict[str, pa.Table]:
    """Return the words of each row with an available corpus. A shared corpus is counted once."""
    count = functools.cache(lambda corpora: words.count_words([provenance.artifact(path) for path in corpora]))
    counts = {}
    for row in (row for row in grid.rows if row not in grid.slices):
        parts = grid.datasets[row].mean_of or (row,)
        corpora = tuple(paths.CORPUS.format(corpus=grid.datasets[part].corpus) for part in parts)
        if all(Path(corpus).is_file() for corpus in corpora):
            counts[row] = count(corpora)
        else:
            warn(f"the words of {row} are not counted: {corpora[0]} is missing")
    return counts
