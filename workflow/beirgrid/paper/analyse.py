"""Stage analyse: compute the BEIR paper's analyses from the runs of a grid."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import pandas as pd

from ..collections import collection
from ..collections import qrels as judgements
from ..config.metric_names import lower_is_better
from ..core import files, paths, provenance
from ..core.errors import warn
from ..core.progress import Progress
from ..core.provenance import Record
from ..page import depth, drawing
from ..page.figures import depth_curves
from ..pipeline.analyse import ANALYSE
from ..results import efficiency, table_files
from ..results.answers import against_baseline, guarded
from ..results.cells import Cells, find
from ..results.summary import Cell, GridSummary, SummaryFile
from ..runs import runs
from . import extremes, figures, lengths, term_overlap
from .holes import HOLE_COLUMNS, holes

# Depth of the length analysis, and the cut-off of hole@k.
TOP = 10
# Tables to write, {name}.csv.
TABLES = (
    *("against_baseline", "trade_offs", "holes", "depth", "lengths", "length_histogram"),
    *("overlap", "vocabulary", "map", "queries"),
)
# Table written by the command ``latency``, if it was run.
LATENCY = "latency.csv"


def analyse(
    *,
    grid: SummaryFile,
    output: Annotated[Path, "folder of the grid, with its tables"],
    record: Record,
) -> None:
    """Compute the BEIR paper's analyses from the runs of a grid. Unfinished cells are skipped with a warning.

    Raises:
        DataError: an input is missing or damaged.
    """
    folder = output / "tables"
    outputs = [*(folder / f"{name}.csv" for name in TABLES), output / "figures"]
    with provenance.record(ANALYSE, record, {"top": TOP, "queries": extremes.MOST}, outputs) as facts:
        answers = table_files.read(grid, folder)
        cells = find(grid)
        done = dict(_finished_cells(grid, cells))
        vocabularies = _vocabularies(grid)
        overlap = term_overlap.overlaps(vocabularies)
        latency = efficiency.read_latency(folder / LATENCY) if (folder / LATENCY).is_file() else None
        against = against_baseline(answers.across)
        tables = {
            **_tables(grid, _datasets(grid, done), _dense_systems(done, cells)),
            "against_baseline": against,
            "trade_offs": efficiency.trade_offs(answers.efficiency, against, grid.metrics[0], latency, grid.seeds),
            "overlap": overlap,
            "vocabulary": term_overlap.word_counts(vocabularies),
            "map": term_overlap.places(overlap),
        }
        for name in TABLES:
            files.write_text(folder / f"{name}.csv", guarded(tables[name]).to_csv(index=False, lineterminator="\n"))
        drawn = draw(grid, tables)
        figures.write(drawn, output / "figures")
        facts.update(cells=len(done), figures=list(drawn), scores=files.sha256(folder / "scores.csv"))


def draw(grid: GridSummary, tables: Mapping[str, pd.DataFrame]) -> dict[str, drawing.DrawnFigure]:
    """Draw the figures for which a grid has data, by name."""
    holes, curves, measured, histogram = (
        tables[name][tables[name]["dataset"].isin(list(grid.rows))]
        for name in ("holes", "depth", "lengths", "length_histogram")
    )
    with drawing.style():
        drawn: dict[str, drawing.DrawnFigure | None] = {}
        against = tables["against_baseline"]
        others = against[(against["system"] != against["baseline"]) & against["wins"].notna()]
        if (others["datasets"] > 1).any():
            drawn["wins"] = figures.wins(against, grid.metrics[0])
        if len(curves):
            drawn["depth"] = depth_curves(curves)
        if len(holes):
            drawn |= {"holes": figures.hole_rates(holes), "ndcg_judged": figures.judged_only(holes)}
            drawn["lengths_retrieved"] = figures.retrieved_lengths(measured, histogram)
            drawn["lengths_similarity"] = figures.similarity_lengths(measured, histogram)
            drawn["lengths_judged"] = figures.judged_lengths(measured, histogram)
        if len(tables["overlap"]):
            drawn["overlap"] = figures.overlap_heatmap(tables["overlap"])
            domains = {name: entry.domain for name, entry in grid.datasets.items()}
            drawn["overlap_map"] = figures.overlap_map(tables["map"], domains)
    return {name: figure for name, figure in drawn.items() if figure}


class Analysed(NamedTuple):
    """The analyses of one dataset: tables by name, and lengths."""

    tables: dict[str, pd.DataFrame]
    lengths: dict[lengths.Group, lengths.GroupLengths]


def _finished_cells(grid: GridSummary, cells: Cells) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Yield the finished cells with their values per query, and warn of the others."""
    for cell in grid.cells:
        status, detail, per_query, _ = cells[cell.system, cell.dataset]
        if per_query is None:
            why = f"{status} ({detail})" if detail else status
            warn(f"{cell.system} on {cell.dataset} is left out: it is {why}")
        else:
            yield cell, per_query


def _datasets(grid: GridSummary, done: Mapping[Cell, pd.DataFrame]) -> dict[str, Analysed]:
    progress = Progress("analyse", len(done), "runs")
    datasets = dict.fromkeys(cell.dataset for cell in done)
    return {
        dataset: _dataset(grid, dataset, {cell: done[cell] for cell in done if cell.dataset == dataset}, progress)
        for dataset in datasets
    }


def _dataset(grid: GridSummary, dataset: str, cells: Mapping[Cell, pd.DataFrame], progress: Progress) -> Analysed:
    """Analyse one dataset. Runs are read one at a time."""
    metric = grid.metrics[0]
    qrels = judgements.read(provenance.artifact(paths.QRELS.format(dataset=dataset)))
    texts = collection.read_queries(provenance.artifact(paths.QUERIES.format(dataset=dataset)))
    scores = pd.DataFrame({cell.system: per_query[metric] for cell, per_query in cells.items()})
    top: dict[str, dict[str, list[str]]] = {}
    unjudged, curves = [], [pd.DataFrame(columns=depth.DEPTH_COLUMNS)]
    for cell in cells:
        run = runs.read(provenance.artifact(paths.RUN.format(system=cell.system, dataset=dataset)))
        top[cell.system] = {query: ranking.ids[:TOP] for query, ranking in run.items()}
        about = {"dataset": dataset, "system": cell.system, "k": TOP, "queries": len(qrels)}
        unjudged.append(about | holes(run, qrels, TOP))
        if (curve := depth.of_cell(cell, qrels, grid.meant(metric, dataset))) is not None:
            curves.append(curve)
        progress.add(1)
    if not grid.datasets[dataset].show_text:
        texts = dict.fromkeys(texts, "")
    tables = {
        "holes": pd.DataFrame(unjudged, columns=HOLE_COLUMNS),
        "depth": pd.concat(curves, ignore_index=True),
        "queries": extremes.table(dataset, scores, texts, qrels, lower_is_better=lower_is_better(metric)),
    }
    words = _count_words(grid.datasets[dataset].corpus, top, qrels)
    return Analysed(tables, lengths.measure(top, qrels, words))


def _count_words(
    corpus: str, top: Mapping[str, Mapping[str, Sequence[str]]], qrels: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Count the words of each retrieved or judged document."""
    ids = {document for of_query in top.values() for documents in of_query.values() for document in documents}
    ids |= {document for grades in qrels.values() for document in grades}
    path = provenance.artifact(paths.CORPUS.format(corpus=corpus))
    return {document.id: len(document.full_text.split()) for document in collection.pick_documents(path, ids)}


def _dense_systems(done: Iterable[Cell], cells: Cells) -> dict[str, dict[str, str]]:
    """Return the similarity and model of each dense system. Models with the same files share the first one's name."""
    dense, models = {}, dict[str, str]()
    for cell in done:
        of_cell = cells[cell.system, cell.dataset].steps
        steps = [step for step in of_cell if Path(step.path).match("models/*/model.json")]
        if similarity := depth.settings_of(cell).get("similarity"):
            contents = json.dumps([step.record["facts"].get("files") for step in steps], sort_keys=True)
            name = Path(steps[0].path).parent.name if steps else cell.system
            dense[cell.system] = {"similarity": similarity, "model": models.setdefault(contents, name)}
    return dense


def _tables(
    grid: GridSummary, analysed: Mapping[str, Analysed], dense: Mapping[str, Mapping[str, str]]
) -> dict[str, pd.DataFrame]:
    """Concatenate the tables of all datasets, and add averaged datasets."""
    means = {row: entry.mean_of for row, entry in grid.datasets.items() if entry.mean_of}
    means = {row: parts for row, parts in means.items() if all(part in analysed for part in parts)}
    tables = {}
    for name, columns, keys in (
        ("holes", HOLE_COLUMNS, ["system", "k"]),
        ("depth", depth.DEPTH_COLUMNS, ["system", "first_stage", "metric", "depth"]),
        ("queries", extremes.QUERY_COLUMNS, []),
    ):
        table = pd.concat([pd.DataFrame(columns=columns), *(of.tables[name] for of in analysed.values())])
        of_means = [_mean_of(table, row, parts, keys) for row, parts in means.items() if keys]
        tables[name] = pd.concat([table, *of_means], ignore_index=True)[columns]
    measured = {dataset: of.lengths for dataset, of in analysed.items()}
    measured |= {row: lengths.together([measured[part] for part in parts]) for row, parts in means.items()}
    described = [lengths.describe(dataset, of) for dataset, of in measured.items()] or [lengths.describe("", {})]
    tables["lengths"] = pd.concat([of.summary for of in described], ignore_index=True)
    for name in ("similarity", "model"):
        tables["lengths"][name] = [dense.get(system, {}).get(name, "") for system in tables["lengths"]["system"]]
    tables["length_histogram"] = pd.concat([of.histogram for of in described], ignore_index=True)
    return tables


def _mean_of(table: pd.DataFrame, row: str, parts: Sequence[str], keys: list[str]) -> pd.DataFrame:
    """Average the rows of datasets with equal keys, unweighted, if every dataset has one."""
    groups = table[table["dataset"].isin(list(parts))].groupby(keys, sort=False)
    numbers = table.columns.difference(["dataset", *keys])
    means = groups[list(numbers)].mean().assign(dataset=row, queries=groups["queries"].sum())
    return means[groups.size() == len(parts)].reset_index()


def _vocabularies(grid: GridSummary) -> dict[str, term_overlap.Vocabulary]:
    """Return the vocabulary of each row with an available corpus. A shared corpus is counted once."""
    count = functools.cache(lambda corpora: term_overlap.count_words([provenance.artifact(path) for path in corpora]))
    vocabularies = {}
    for row in grid.rows:
        parts = grid.datasets[row].mean_of or (row,)
        corpora = tuple(paths.CORPUS.format(corpus=grid.datasets[part].corpus) for part in parts)
        if all(Path(corpus).is_file() for corpus in corpora):
            vocabularies[row] = count(corpora)
        else:
            warn(f"no vocabulary for {row}: {corpora[0]} is missing")
    return vocabularies
