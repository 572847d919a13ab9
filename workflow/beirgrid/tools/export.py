"""Export results: TREC runs, MTEB's JSON, YAML for model pages of the Hugging Face hub, and a table for a paper."""

from __future__ import annotations

import gzip
import math
import posixpath
import shutil
import string
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import yaml

from ..collections import qrels
from ..config.mteb_collections import ISO_639_1
from ..config.registry import tasks
from ..core import files, lineage, provenance
from ..core.checkout import full_version
from ..core.errors import BeirgridError, DataError, quantity, show, suggestion, warn
from ..measures import MAIN, USUAL, lower_is_better, metric_key, parse_metric, written
from ..results import comparisons, results_folder, scores, summary, table_files
from ..results.answers import REPLACED, Answers
from ..results.cells import precisions
from ..results.results_folder import Directory, Result
from ..results.summary import GridSummary
from ..results.table_files import in_latex
from ..runs import runs

Output = Annotated[Path, "folder to write; it must be new or empty"]
GridName = Annotated[str, "name of the grid; by default, all finished cells of the folder"]
# Name of the software in all exports.
SOFTWARE = f"beirgrid {full_version()}"


class ExportedCell(NamedTuple):
    """A finished cell: one system on one dataset."""

    result: Result
    scores: scores.Scores  # checked against the values per query
    evaluation: dict[str, Any]  # the record of the evaluation
    records: list[dict[str, Any]]  # of the steps before the evaluation, in order

    @property
    def qrels(self) -> Path:
        """The qrels in BEIR's layout, after checking them against their record."""
        return provenance.artifact(self.result.qrels)

    @property
    def precisions(self) -> str:
        """The precisions of the models in the steps; empty without a model."""
        return ", ".join(sorted(precisions(self.records)))


def finished_cells(directory: Path, grid: str, output: Path) -> list[ExportedCell]:
    """Return the finished cells, after checking runs and scores against their records.

    Raises:
        DataError: no cell is finished, a file is damaged, or the output is not empty.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise DataError(f"--output: {output} is not an empty folder; name a new one")
    results = results_folder.find(directory, grid)
    ancestry = lineage.Ancestry()
    cells = [_read(result, ancestry) for result in results.cells.values() if result.scores.is_file()]
    if not cells:
        raise DataError(f"{grid or directory} has no finished cell")
    if waiting := len(results.cells) - len(cells):
        warn(f"export leaves out {waiting:,} unfinished cells")
    return cells


def _read(result: Result, ancestry: lineage.Ancestry) -> ExportedCell:
    of_cell, _ = scores.read_cell(result, ancestry=ancestry)
    lineage.check({"run": provenance.artifact(result.run), "scores": result.scores}, ancestry=ancestry)
    records = list(map(provenance.read_record, result.records))
    return ExportedCell(result, of_cell, provenance.read_record(result.scores), records)


# TREC

# The header of ir_metadata (Breuer et al., 2022) is YAML in comments.
_START = "# ir_metadata.start\n"
_END = "# ir_metadata.end\n"
_REPOSITORY = "https://github.com/beirgrid/beirgrid"
Metadata = Annotated[
    bool,
    "begin each run with system, commit and hashes as comments in the form of ir_metadata, which trec_eval 10 and "
    "beirgrid skip, and trec_eval 9, pytrec_eval and ranx refuse",
]


def export_trec(
    *, output: Output, directory: Directory = Path(), grid: GridName = "", metadata: Metadata = False
) -> None:
    """Write the runs of a grid to ``runs/{dataset}/{system}.trec``, and qrels to ``qrels/{dataset}.txt``.

    Raises:
        DataError: there is no finished cell, a file is damaged, or the output is not empty.
    """
    cells = finished_cells(directory, grid, output)
    with files.atomic(output, directory=True) as folder:
        for cell in cells:
            path = folder / "runs" / cell.result.dataset / f"{cell.result.system}.trec"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream, gzip.open(cell.result.run, "rb") as lines:
                stream.write(_header(cell).encode() if metadata else b"")
                shutil.copyfileobj(lines, stream)
                # An empty file would look truncated.
                stream.write(b"" if stream.tell() else (_START + _END).encode())
        for dataset, cell in {cell.result.dataset: cell for cell in cells}.items():
            judgements = qrels.judgements(cell.qrels)
            text = (f"{query} 0 {document} {grade}\n" for query, document, grade, *_ in judgements)
            files.write_text(folder / "qrels" / f"{dataset}.txt", "".join(text))


def _header(cell: ExportedCell) -> str:
    """Return what made a run as a header of ir_metadata: system, commit, packages, and hashes of run and inputs."""
    made = provenance.record_of(cell.result.run)
    folder = f"runs/{cell.result.system}"
    inputs = [record.get("inputs", {}).values() for record in (made.record, cell.evaluation)]
    read = {entry["path"]: entry for entry in chain.from_iterable(chain.from_iterable(inputs))}
    # Version 0.2.0 recorded no hashes of large files.
    hashes = {
        posixpath.normpath(f"{folder}/{name}"): recorded.get("sha256")
        for name, recorded in {**made.outputs, **read}.items()
    }
    packages = made.record["packages"]
    about = {
        "tag": cell.result.system,
        "platform": {"software": {"libraries": {"python": [f"{name}=={packages[name]}" for name in packages]}}},
        "implementation": {"source": {"repository": _REPOSITORY, "commit": packages["beirgrid"].partition("+g")[2]}},
        "data": {
            "test collection": {"name": cell.result.dataset},
            "other": [{"name": name, "sha256": digest} for name, digest in hashes.items()],
        },
    }
    text = yaml.safe_dump(about, sort_keys=False, allow_unicode=True, width=math.inf)
    return f"{_START}{''.join(f'# {line}' for line in text.splitlines(keepends=True))}{_END}"


# mteb's JSON and the hub's YAML

# Languages as mteb writes them: ISO 639-3 (of several, the first) and script, by ISO 639-1 code.
_SCRIPTS = {"ar": "Arab", "fa": "Arab", "bn": "Beng", "hi": "Deva", "ja": "Jpan", "ko": "Hang", "ru": "Cyrl"}
_SCRIPTS |= {"uk": "Cyrl", "te": "Telu", "th": "Thai", "zh": "Hans"}
_LANGUAGES = {two: f"{three}-{_SCRIPTS.get(two, 'Latn')}" for three, two in reversed(ISO_639_1.items())}
_NOT_MTEB = f"computed by {SOFTWARE}, not by mteb"


def export_mteb(*, output: Output, directory: Directory = Path(), grid: GridName = "") -> None:
    """Write scores as JSON in the form of MTEB's results, to ``beirgrid__{system}/{version}/{task}.json``.

    Raises:
        DataError: there is no finished cell, a file is damaged, ndcg@10 was not computed, or the output is not empty.
    """
    cells = finished_cells(directory, grid, output)
    with files.atomic(output, directory=True) as folder:
        for cell in cells:
            place = folder / f"beirgrid__{cell.result.system}" / full_version()
            files.write_json(place / f"{task_of(cell)}.json", task_result(cell))
            about = {"name": f"beirgrid/{cell.result.system}", "revision": full_version(), "note": _NOT_MTEB}
            files.write_json(place / "model_meta.json", about)


def task_of(cell: ExportedCell) -> str:
    """Return mteb's task name, or the dataset's own name."""
    task = tasks().get(cell.result.dataset)
    return task.name if task else cell.result.dataset


def task_result(cell: ExportedCell) -> dict[str, Any]:
    """Return the scores of a cell as mteb's TaskResult. ``mteb_version`` is null; ``note`` explains it."""
    record = provenance.record_of(cell.qrels).record
    settings = provenance.entry_of(record)
    source = record["settings"].get("corpus_entry") or settings.get("source", {})
    revision = settings.get("revision") or source.get("revision") or f"sha256:{files.sha256(cell.qrels)}"
    values = {_metric(metric): value for metric, value in cell.scores.means.items() if metric != MAIN}
    about = {
        "main_score": main_score(cell),
        "hf_subset": "default",
        "languages": [_LANGUAGES.get(cell.result.language, "und-Zyyy")],
    }
    # Of all steps, those that cells share included.
    seconds = sum(record["seconds"] for record in cell.records) + cell.evaluation["seconds"]
    return {
        "dataset_revision": revision,
        "task_name": task_of(cell),
        "mteb_version": None,
        "note": "; ".join(filter(None, (_NOT_MTEB, scores.unanswered(cell.evaluation)))),
        "precision": cell.precisions,
        "date": cell.evaluation["finished"],
        "evaluation_time": float(round(seconds, 3)),
        "kg_co2_emissions": None,
        "scores": {_split(settings): [{**values, **about}]},
    }


def main_score(cell: ExportedCell) -> float:
    """Return the main metric of the dataset, nDCG@10 unless the grid computed another.

    Raises:
        DataError: nDCG@10 was not computed.
    """
    for metric in (MAIN, USUAL):
        if metric in cell.scores.means:
            return cell.scores.means[metric]
    raise DataError(f"{cell.result.scores} has no {USUAL}, the main score of retrieval tasks: add it to metrics")


def _metric(name: str) -> str:
    metric = parse_metric(name)
    base = metric.measure.mteb or metric.measure.name
    return f"{base}_at_{metric.k}" if metric.k else base


def _split(settings: dict[str, Any]) -> str:
    """Return the entry's split, or the split at the end of an ir_datasets id."""
    last = str(settings.get("id", "")).rpartition("/")[2]
    return str(settings.get("split") or (last if last in ("dev", "test", "train") else "test"))


def export_huggingface(*, output: Output, directory: Directory = Path(), grid: GridName = "") -> None:
    """Write scores as the hub's YAML of evaluation results, a file per system and dataset of mteb, for model pages.

    Raises:
        DataError: there is no finished cell, a file is damaged, ndcg@10 was not computed, mteb has no such dataset, or
            the output is not empty.
    """
    cells = finished_cells(directory, grid, output)
    if unknown := sorted({cell.result.dataset for cell in cells} - tasks().keys()):
        warn(f"export leaves out datasets that mteb has not: {', '.join(unknown)}")
    exported = [cell for cell in cells if cell.result.dataset in tasks()]
    if not exported:
        raise DataError("no finished cell is on a dataset of mteb, whose names on the hub are known")
    with files.atomic(output, directory=True) as folder:
        for cell in exported:
            path = folder / cell.result.system / ".eval_results" / f"{cell.result.dataset}.yaml"
            content = eval_results(cell, tasks()[cell.result.dataset].hub)
            files.write_text(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def eval_results(cell: ExportedCell, hub_dataset: str) -> list[dict[str, Any]]:
    """Return the evaluation result of a cell in the hub's YAML form; the value is a percentage, as in mteb."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    metric = f"{cell.evaluation['settings'].get('main', USUAL)} × 100, computed by {SOFTWARE}, not by mteb"
    entry = EvalResultEntry(
        dataset_id=hub_dataset,
        task_id=task_of(cell),
        value=round(100 * main_score(cell), 5),
        date=cell.evaluation["finished"],
        notes=", ".join(filter(None, (metric, cell.precisions, scores.unanswered(cell.evaluation)))),
    )
    return eval_result_entries_to_yaml([entry])


# A table in LaTeX, with a row for each system

# How a score is written.
_SCORE = "{:.3f}".format
# What stands where there is none.
_NO_SCORE = "--"


def export_table(
    *,
    directory: Directory = Path(),
    grid: Annotated[str, "name of the grid, where the folder has several"] = "",
    metric: Annotated[str, "metric, such as nDCG@10 (default: the first of the grid)"] = "",
) -> None:
    """Print a table of a grid for a paper, in LaTeX: a row for each system, with superscripts, caption and label.

    Raises:
        BeirgridError: the folder has no such grid, or the grid has no such metric.
    """
    place = results_folder.only_grid(directory, grid)
    of_grid = summary.read(place)
    metric = metric_key(metric) if metric else of_grid.metrics[0]
    if metric not in of_grid.metrics:
        raise BeirgridError(f"the grid {of_grid.name} has no metric {metric!r}{suggestion(metric, of_grid.metrics)}")
    answers = table_files.read(of_grid, place.parent / "tables")
    lost = answers.scores[(answers.scores["status"] == REPLACED) & (answers.scores["metric"] == metric)]
    for system, dataset, detail in lost[["system", "dataset", "detail"]].itertuples(index=False):
        warn(f"{system} on {dataset} has no score: {detail}. To compute it, run the grid {of_grid.name} again")
    show(*latex(of_grid, answers, metric).splitlines())


def latex(grid: GridSummary, answers: Answers, metric: str) -> str:
    """Return the table of one metric in LaTeX, for the package booktabs."""
    cells, caption = _cells(grid, answers, metric)
    form = f"l{'r' * cells.shape[1]}"
    label = f"tab:{grid.name}-{metric}".replace("@", "-")
    table: str = cells.style.to_latex(
        column_format=form, position_float="centering", hrules=True, label=label, caption=in_latex(caption)
    )
    return f"% \\usepackage{{booktabs}}\n{table}"


def _cells(grid: GridSummary, answers: Answers, metric: str) -> tuple[pd.DataFrame, str]:
    """Return the texts of a table, systems × datasets, and its caption. Systems are in the order of the grid's tables.

    The superscripts of a score are the letters of the systems that it is significantly better than.
    """
    wide = table_files.wide(answers, grid, metric)
    lower = lower_is_better(metric)
    values = wide["value"]
    texts_of = wide["text"]
    systems = list(map(str, values))
    letters = dict(zip(systems, string.ascii_lowercase, strict=False)) if len(systems) <= 26 else {}
    pairs = answers.pairs[answers.pairs["metric"] == metric]
    better = _better(comparisons.verdicts(grid, pairs), lower=lower)
    queries = answers.scores.dropna(subset="queries").groupby("dataset")["queries"].first()
    columns = {}
    for row in map(str, values.index):
        scores = values.loc[row].dropna().map(_SCORE)
        best, second, *_ = [*sorted({*scores}, key=float, reverse=not lower), "", ""]
        texts = {system: REPLACED if texts_of.loc[row, system] == REPLACED else _NO_SCORE for system in systems}
        for system, score in zip(map(str, scores.index), scores, strict=True):
            than = "".join(letters[other] for other in letters if (system, other, row) in better)
            shape = r"\textbf{%s}" if score == best else r"\underline{%s}" if score == second else "%s"
            sign = in_latex(table_files.training_sign(grid, system, row))
            texts[system] = shape % score + sign + (f"$^{{{than}}}$" if than else "")
        columns[in_latex(f"{row} ({queries[row]})" if row in queries else row)] = texts
    cells = pd.DataFrame(columns).rename_axis(columns="system")
    cells = cells.rename(lambda name: in_latex(f"{name} ({letters[name]})" if letters else name))
    tests = comparisons.tests_of(grid, metric) if letters and len(pairs) else ""
    return cells, _caption(metric, len(systems), tests, table_files.common_notes(grid, answers))


def _better(pairs: pd.DataFrame, *, lower: bool) -> set[tuple[str, str, str]]:
    """Return (system, other, dataset) where the verdict is that the system is better than the other."""
    certain = pairs[pairs["verdict"] == comparisons.BETTER]
    ahead = (certain["difference"] < 0) if lower else (certain["difference"] > 0)
    named = zip(certain["system"], certain["other"], certain["dataset"], ahead, strict=True)
    return {(first, second, dataset) if wins else (second, first, dataset) for first, second, dataset, wins in named}


def _caption(metric: str, systems: int, tests: str, notes: Iterable[str]) -> str:
    """Return what a reader needs to know of the table: metric, queries, tests of its superscripts, signs."""
    sentences = [
        f"{written(metric)} of {quantity(systems, 'system')}.",
        "In parentheses: the number of queries.",
        "Bold: the best of a column. Underlined: the second best.",
    ]
    if tests:
        sentences.append(f"Superscripts: the systems that a system is significantly better than ({tests}).")
    return " ".join([*sentences, *notes])


def ranx_runs(grid: str | Path, dataset: str, systems: Sequence[str] = ()) -> tuple[Any, list[Any]]:
    """Return the qrels of a dataset and the runs of systems for ranx.

    Args:
        grid: the working folder of grids, its results folder, the folder of one grid, or the name of a grid of the
            working directory.
        systems: names of systems, or of the members of one with seeds; all that have scores unless given.

    Returns:
        a ``ranx.Qrels``, and a ``ranx.Run`` for each system, which has its name. Runs have the judged queries, those
        without documents too, as ``ranx.fuse`` and ``ranx.compare`` want it. ranx puts equal scores into an order of
        its own, so its metrics can differ from ours there.

    Raises:
        DataError: the grid has no such cell, or a file is damaged.

    Example:
        >>> qrels, runs = beirgrid.ranx_runs("demo", "demo", ["bm25", "minilm"])  # doctest: +SKIP
        >>> ranx.compare(qrels, runs, ["ndcg@10"])  # doctest: +SKIP
    """
    import ranx

    cells = results_folder.find(grid).cells
    of_dataset = {system: cell for (system, name), cell in cells.items() if name == dataset}
    if not of_dataset:
        raise DataError(f"{grid} has no dataset {dataset!r}{suggestion(dataset, {name for _, name in cells})}")
    if unknown := [system for system in systems if system not in of_dataset]:
        raise DataError(f"{grid} has no system {unknown[0]!r} on {dataset}{suggestion(unknown[0], of_dataset)}")
    chosen = [of_dataset[system] for system in systems or of_dataset]
    grades = qrels.read(provenance.artifact(chosen[0].qrels))
    found = []
    for cell in chosen:
        run = runs.read(provenance.artifact(cell.run))
        rankings = {query: run.get(query, runs.EMPTY) for query in grades}
        scores = {query: dict(zip(ids, of.tolist(), strict=True)) for query, (ids, of) in rankings.items()}
        found.append(ranx.Run(scores, name=cell.system))
    return ranx.Qrels(grades, name=dataset), found
