"""The tables of a running grid: cells that are done, pending, failed or not supplied, and damaged files."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import re
import threading
import time
from pathlib import Path
from typing import Any

import finished
import numpy as np
import pages
import pandas as pd
import pytest
from graph import settings
from helpers import main, python, quick_first, run_work

from beirgrid.config.load import merged
from beirgrid.core import files, paths, provenance
from beirgrid.core.errors import DataError
from beirgrid.execution import events
from beirgrid.graph.grid import Grid
from beirgrid.graph.rules import Rules
from beirgrid.graph.summaries import Summary
from beirgrid.results import cells as grid_cells
from beirgrid.results import table_files
from beirgrid.results.answer_files import from_csv, guarded, read_answers, to_csv, write_answers
from beirgrid.results.answers import Answers, typed
from beirgrid.results.scores import load_scores
from beirgrid.results.summary import Cell, DatasetSummary, GridSummary
from beirgrid.stages.aggregate.work import aggregate, compute
from beirgrid.stages.report import work as report
from beirgrid.tools.reporting import LINES, PUBLISHED, outline, refresh

QUERIES = [f"q{i}" for i in range(8)]
UNANSWERED = "1 of 8 queries has no documents and counts 0"
SUMMARY, TABLES, RECORD, PAGE, PAGE_RECORD = (
    Path(pattern.format(grid="test"))
    for pattern in (paths.GRID_SUMMARY, paths.TABLES, paths.TABLES_RECORD, paths.REPORT, paths.REPORT_RECORD)
)


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|'/c calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "'=1", "''@x", "'", "'x", "-"]
)
def test_a_text_that_a_spreadsheet_would_run_is_read_as_it_was_written(text):
    table = typed("scores", pd.DataFrame({"system": "a", "dataset": "d", "metric": "m", "detail": [text, "plain"]}))
    written = to_csv("scores", table)
    assert from_csv("scores", io.StringIO(written)).equals(table)
    cells = [cell for row in csv.reader(io.StringIO(written)) for cell in row]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r")]


@pytest.mark.parametrize("text", ["-1", "+0.5", "-1e-3", "-inf"])
def test_a_number_in_a_text_stays_a_number(text):
    assert list(guarded(pd.DataFrame({"id": [text]}))["id"]) == [text]
    numbers = pd.DataFrame({"value": [-0.5, 1.0]})
    assert guarded(numbers).equals(numbers)


def write_cell(system: str, dataset: str, level: float, queries: list[str] = QUERIES, **keys: Any) -> Cell:
    """Write a cell with the mean ``level``."""
    values = level + np.linspace(-0.1, 0.1, len(queries))
    table = pd.DataFrame({"ndcg@10": values, "p@5": values / 2}, queries)
    return finished.write_cell(system, dataset, table, not_judged=0.25, **keys)


@pytest.fixture
def grid(tmp_path, monkeypatch) -> GridSummary:
    """Two systems on two datasets and on a third that is not supplied; every cell is done."""
    monkeypatch.chdir(tmp_path)
    levels = {("a", "x"): 0.3, ("a", "y"): 0.4, ("b", "x"): 0.5, ("b", "y"): 0.8}
    cells = [write_cell(*cell, level) for cell, level in levels.items()]
    for name in "xy":
        qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"{query}\td\t1\n" for query in QUERIES)
        files.write_text(paths.QRELS.format(dataset=name), qrels)
    absent = {"z": DatasetSummary(not_supplied=("/data/z",))}
    settings = {path: finished.SETTINGS for cell in cells for path in (cell.scores, *cell.records)}
    summary = finished.summary(cells, absent, name="test", metrics=("ndcg@10", "p@5"), settings=settings)
    save(summary)
    return summary


def _without_pictures(grid: GridSummary, answers: Answers, _: Path) -> str:
    return report.render(grid, answers)


def save(grid: GridSummary) -> None:
    files.write_text(SUMMARY, grid.model_dump_json())


def cell(answers: Answers, system: str, dataset: str) -> pd.Series:
    """Return the row of ndcg@10 of a cell."""
    return answers.scores.set_index(["system", "dataset", "metric"]).loc[system, dataset, "ndcg@10"]


# Tables in memory and in files ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_tables_are_read_as_they_were_written(tmp_path):
    numbers = [0.1 + 0.2, math.nan, 0.1, 1 / 3, 5e-324, 2.2250738585072011e-308, 1.7976931348623157e308, -0.0, 1e23]
    scores = pd.DataFrame({"system": "NA", "dataset": "2019", "metric": "ndcg@10", "value": numbers})
    others = [None] * 7
    scores = scores.assign(queries=[5, None, *others], detail=[None, 'a "line", cut', *others])
    across = pd.DataFrame({"system": ["a", "b"], "wins": [1.0, math.nan], "mean": [1 / 3, 2 / 3]})
    answers = pages.answers_of(scores=scores, across=across)
    assert write_answers(answers, tmp_path)
    assert not write_answers(answers, tmp_path)
    for written, read in zip(answers, read_answers(tmp_path), strict=True):
        pd.testing.assert_frame_equal(written, read, check_exact=True)
    assert read_answers(tmp_path).scores["value"].to_numpy().tobytes() == np.array(numbers).tobytes()
    plain = pd.read_csv(tmp_path / "scores.csv")
    assert plain["value"].tolist()[0] == 0.1 + 0.2
    assert plain["value"].dtype == plain["low"].dtype == "float64"
    (tmp_path / "costs.csv").write_text("system\nx\n")
    with pytest.raises(DataError, match=r"costs\.csv is damaged \(its columns must be system,dataset,stage"):
        read_answers(tmp_path)


# A finished grid ------------------------------------------------------------------------------------------------------


def test_the_report_command_makes_tables_and_page(grid, capsys):
    assert main(["report"]) == 0
    answers = read_answers(TABLES)
    assert cell(answers, "b", "y").value == pytest.approx(0.8)
    assert cell(answers, "b", "y").low < 0.8 < cell(answers, "b", "y").high
    assert cell(answers, "b", "y").not_judged == 0.25
    assert pd.read_csv(TABLES / "scores.csv")["value"].dtype == "float64"
    against = answers.significance.set_index(["dataset", "metric", "system"])
    # Eight equal differences: of the 256 sign patterns, two are as extreme.
    assert against.loc[("x", "ndcg@10", "b"), "p_randomisation"] == 2 / 256
    assert set(answers.across["names"]) == {"x, y"}
    said = capsys.readouterr().out
    assert "25 % of b's top ten are not judged and count as not relevant" in " ".join(said.split())
    assert "mean of x, y (without z)" in said
    assert f"Report: {Path.cwd() / PAGE}" in said
    assert PAGE.is_file()


@pytest.mark.slow
def test_rules_make_the_same_tables_and_a_page_that_analyses_change_is_made_again_by_the_next_run(grid):
    main(["report"])
    partial = {path.name: path.read_bytes() for path in TABLES.iterdir()}
    run_work(aggregate, RECORD, grid=grid, published=tuple(PUBLISHED), output=TABLES)
    assert {path.name: path.read_bytes() for path in TABLES.iterdir() if path.name != RECORD.name} == partial
    run_work(report.report, PAGE_RECORD, grid=grid, tables=TABLES, output=PAGE)
    figures = PAGE.parents[1] / "figures"
    files.write_text(figures / "depth.svg", "<svg xmlns='http://www.w3.org/2000/svg'></svg>")
    files.write_json(figures / "captions.json", {"depth": "By depth"})
    main(["report"])
    assert "By depth" in PAGE.read_text()
    assert not PAGE_RECORD.exists()
    assert not list(provenance.mismatches(RECORD, provenance.read_record(RECORD)))  # the tables have not changed
    shown = PAGE.read_bytes()
    run_work(report.report, PAGE_RECORD, grid=grid, tables=TABLES, output=PAGE)  # the record's facts about the page
    assert PAGE.read_bytes() == shown
    write_cell("a", "y", 0.6)
    main(["report"])
    assert not RECORD.exists()
    assert not PAGE_RECORD.exists()


def test_tables_of_an_interrupted_aggregate_are_not_shown(grid, monkeypatch):
    """Some of its tables are new, the others belong to the previous run."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    given = {"grid": grid, "output": TABLES}
    run_work(aggregate, RECORD, **given)
    write_cell("a", "y", 0.6)
    with monkeypatch.context() as patch:
        patch.setattr(table_files, "write_wide", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_work(aggregate, RECORD, **given)
    assert pd.read_csv(TABLES / "ndcg@10.csv", index_col=0).loc["y", "a"] == pytest.approx(0.4)
    with pytest.raises(DataError, match=r"scores\.csv is damaged"):
        run_work(report.report, PAGE_RECORD, grid=grid, tables=TABLES, output=PAGE)
    assert not PAGE.exists()
    main(["report"])
    assert pd.read_csv(TABLES / "ndcg@10.csv", index_col=0).loc["y", "a"] == pytest.approx(0.6)
    assert not RECORD.exists()


@pytest.mark.slow
def test_a_metric_that_is_no_longer_asked_for_leaves_no_table(grid):
    main(["report"])
    (TABLES / "overlap.csv").write_text("of another command")
    save(grid.model_copy(update={"metrics": ("ndcg@10",)}))
    main(["report"])
    assert {path.stem for path in TABLES.iterdir()} == {*Answers._fields, "ndcg@10", "overlap"}
    assert set(read_answers(TABLES).pairs["metric"]) == {"ndcg@10"}


# Cells without a value ------------------------------------------------------------------------------------------------


def test_cells_say_what_they_wait_for(grid, capsys):
    Path(grid.cells[0].scores).unlink()
    for path in (grid.cells[3].scores, grid.cells[3].records[0]):
        Path(path).unlink()
    files.write_text("logs/job.log", "before\nbeirgrid stage fuse: error: no more disk\n\n")
    facts = {"jobs": {}, "config": {}, "pid": 1, "began": 1, "host": "elsewhere", "time": 1}
    job = {"id": 1, "rule": "fuse", "wildcards": {}, "logs": ["logs/job.log"], "outputs": [grid.cells[3].records[0]]}
    last_run = [
        {"event": "run", **facts},
        {"event": "job", **job, "since": 3, "state": "failed"},
        {"event": "over", "succeeded": False, "time": 4},
    ]
    files.write_text("results/status.jsonl", "".join(json.dumps(event) + "\n" for event in last_run))
    assert main(["report", "--grid", "test"]) == 0
    answers = read_answers(TABLES)
    assert (cell(answers, "a", "x").status, cell(answers, "a", "x").detail) == ("pending", "")
    failed = cell(answers, "b", "y")
    assert (failed.status, failed.detail) == ("failed", "logs/job.log: beirgrid stage fuse: error: no more disk")
    assert cell(answers, "a", "z").status == "not supplied"
    assert answers.scores.loc[answers.scores["status"] != "done", "value"].isna().all()
    assert answers.across["mean"].isna().all()
    assert set(answers.across["note"]) == {"no scores on x", "no scores on y"}
    said = capsys.readouterr().out
    (counts,) = (line for line in said.splitlines() if line.startswith("Of 6 cells: "))
    assert {*counts[12:-1].split(", ")} == {"2 done", "2 not supplied", "1 pending", "1 failed"}
    assert "Failed, 1 of them: logs/job.log: beirgrid stage fuse: error: no more disk" in said
    assert "pending" in PAGE.read_text()
    with pytest.raises(DataError, match="a on x has no scores"):
        run_work(aggregate, RECORD, grid=grid, output=TABLES)


def _put_files_of_b(*patterns: str) -> None:
    """Put files of b on x in the place of those of a."""
    for pattern in patterns:
        theirs, own = (Path(pattern.format(system=system, dataset="x")) for system in "ba")
        own.write_bytes(theirs.read_bytes())


def _another_corpus(cell: Cell) -> None:
    for path, corpus in ((cell.records[-1], "1" * 64), (cell.scores, "2" * 64)):
        record = json.loads(Path(path).read_text())
        given = {"path": "../../corpora/x/corpus.parquet", "bytes": 1, "sha256": corpus}
        record["inputs"] = {**record.get("inputs", {}), "corpus": [given]}
        Path(path).write_text(json.dumps(record))


def _cut(path: str, size: int) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[:size])


# What is done to the cell of a on x, and what is told of it.
DAMAGES = [
    (lambda cell: write_cell("a", "x", 0.9, QUERIES[:4]), "queries, but not the 8 in the qrels of x"),
    (lambda cell: write_cell("a", "x", 0.9, list("01234567")), "queries, but not the 8 in the qrels of x"),
    (lambda cell: write_cell("a", "x", 0.9, settings="f" * 16), "was made with other settings than the grid has now"),
    (
        lambda _: _put_files_of_b(paths.METRICS, paths.PER_QUERY),
        "a/x.run.gz and results/metrics/a/x.json do not belong together: each has another run",
    ),
    (
        lambda _: _put_files_of_b(paths.RUN, paths.RUN_RECORD),
        "results/runs/a/x.run.gz is another one than results/metrics/a/x.json was made from",
    ),
    (_another_corpus, "do not belong together: each has another corpus"),
    (lambda cell: _cut(cell.per_query, -30), "x.per-query.parquet is damaged"),
    (lambda cell: _cut(cell.scores, 40), "x.json is not a record of beirgrid (content: Invalid JSON"),
    (lambda cell: _cut("results/runs/a/x.run.gz", 50), "x.run.gz is damaged: it has 50 bytes"),
    (lambda cell: Path(cell.per_query).unlink(), "x.per-query.parquet is missing"),
]


@pytest.mark.parametrize(("damage", "message"), quick_first(DAMAGES))
def test_damaged_and_foreign_files_are_never_a_number(grid, damage, message, monkeypatch):
    monkeypatch.setattr("beirgrid.tools.reporting.illustrated", lambda *_: "")  # takes most of the time; not read here
    damage(grid.cells[0])
    assert main(["report"]) == 0
    found = cell(read_answers(TABLES), "a", "x")
    assert found.status == "failed"
    assert message in found.detail
    assert math.isnan(found.value)
    assert "| x | **0.5000** | failed |" in (TABLES / "ndcg@10.md").read_text()
    assert not RECORD.exists()
    with pytest.raises(DataError) as refused:
        run_work(aggregate, RECORD, grid=grid, output=TABLES)
    assert message in str(refused.value)


@pytest.mark.parametrize(("kept", "said"), [("a" * 16, ""), (finished.SETTINGS, ": model.max_length 256 → 128")])
def test_a_cell_that_another_grid_replaced_says_so_and_is_no_failure(grid, kept, said, monkeypatch, capsys):
    """``kept`` is the digest of the settings of the record that the other grid has kept."""
    monkeypatch.setattr("beirgrid.tools.reporting.illustrated", _without_pictures)
    path = Path(grid.cells[0].records[-1])

    def asked(place: Path, length: int, key: str) -> None:
        settings = {"stage": "fuse", "settings": {"model": {"max_length": length}}}
        files.write_json(place, {**json.loads(path.read_text()), "settings_key": key, "job": settings})

    asked(Path(paths.REPLACED.format(grid="test"), path.relative_to("results")), 256, kept)
    write_cell("a", "x", 0.9)
    asked(path, 128, "f" * 16)
    other = grid.model_copy(update={"name": "other", "settings": {str(path): "f" * 16}})
    files.write_text(paths.GRID_SUMMARY.format(grid="other"), other.model_dump_json())
    assert main(["report", "--grid", "test"]) == 0
    found = cell(read_answers(TABLES), "a", "x")
    assert (found.status, found.detail) == ("replaced", f"replaced by grid other{said}")
    assert "| x | **0.5000** | replaced |" in (TABLES / "ndcg@10.md").read_text()
    printed = capsys.readouterr().out
    assert f"No scores, 1 of them: replaced by grid other{said}\n" in printed
    assert "delete" not in printed
    assert re.search(
        rf"1 replaced</summary>\s*<ul><li>a on x: <code>replaced by grid other{said}</code>", PAGE.read_text()
    )
    assert main(["export", "table", "--grid", "test"]) == 0
    table, warned = capsys.readouterr()
    assert re.search("^a .*& replaced &", table, re.MULTILINE)
    assert f"a on x has no score: replaced by grid other{said}. To compute it, run the grid test again" in warned
    told = f"a on x was replaced by grid other: {path} has other settings than this grid asks for"
    with pytest.raises(DataError, match=re.escape(told)):
        load_scores("test")
    assert main(["show", "a", "x", "--directory", "results/grids/test"]) == 1
    assert main(["compare", "test:a", "test:b", "--datasets", "x"]) == 2
    assert capsys.readouterr().err.count(told) == 2
    for place in ("other", "."):  # the grid that made them, and no grid in particular
        assert 0.9 in load_scores(place)["value"].to_list()
    whole = grid_cells.combined({"x": grid_cells.CellState("replaced", ""), "y": grid_cells.CellState("done", "")})
    assert whole == ("replaced", "lacks x (replaced)")


@pytest.mark.parametrize(
    ("lost", "lacking", "said"),
    quick_first(
        [
            (4, [], "4 of 8 queries have no documents and count 0"),
            (1, [], UNANSWERED),
            (4, [4], "t0 lacks 4 of 8 judged queries; 4 of 8 queries have no documents and count 0"),
            (0, [4], "t0 lacks 4 of 8 judged queries"),  # a fusion with a run that has them
            (1, [4, 2], f"t0 lacks 4 of 8 judged queries; t1 lacks 2 of 8 judged queries; {UNANSWERED}"),
            (0, [0], ""),
        ]
    ),
)
def test_queries_that_count_0_are_told_beside_the_number(grid, lost, lacking, said, monkeypatch):
    monkeypatch.setattr("beirgrid.tools.reporting.illustrated", _without_pictures)
    before = [f"results/runs/t{i}.json" for i in range(len(lacking))]
    for path, number in zip(before, lacking, strict=True):
        facts = {"source": Path(path).stem, "queries": 8, "queries_lacking": number}
        files.write_json(path, finished.record("fetch_run", facts=facts))
    changed = write_cell("a", "x", 0.3, before=before, queries_without_documents=lost)
    save(grid.model_copy(update={"cells": (changed, *grid.cells[1:])}))
    assert main(["report"]) == 0
    answers = read_answers(TABLES)
    assert (cell(answers, "a", "x").status, cell(answers, "a", "x").detail) == ("done", said)
    mark, latex = ("§", r"\S{}") if said else ("", "")
    markdown, tex = ((TABLES / f"ndcg@10.{suffix}").read_text() for suffix in ("md", "tex"))
    assert f"| x | **0.5000** | 0.3000{mark} |" in markdown
    assert f"| mean of x, y (without z) | **0.6500** | 0.3500{mark} |" in markdown
    assert f" & 0.3000{latex} " in tex
    page = PAGE.read_text()
    if said:
        assert f"§ a on x: {said}." in markdown
        assert f'data-flaw="{said}"' in page
        assert f'data-flaw="x: {said}"' in page
    else:
        assert "§" not in markdown + tex
        assert "data-flaw" not in page


def test_what_a_run_will_make_again_is_pending(grid):
    write_cell("a", "x", 0.9, settings="f" * 16)
    Path(grid.cells[1].per_query).unlink()
    found = grid_cells.find(grid, running=True)
    assert {cell: found.status for cell, found in found.items()} == {
        **{("a", "x"): "pending", ("a", "y"): "pending", ("b", "x"): "done", ("b", "y"): "done"}
    }


def test_a_mean_lacks_what_its_parts_lack(grid):
    datasets = {**grid.datasets, "both": DatasetSummary(mean_of=("x", "y"))}
    datasets["all"] = DatasetSummary(mean_of=("x", "z"), not_supplied=("/data/z",))
    save(grid.model_copy(update={"rows": ("both", "all"), "datasets": datasets}))
    Path(grid.cells[0].scores).unlink()
    main(["report"])
    answers = read_answers(TABLES)
    found = cell(answers, "a", "both")
    assert (found.status, found.detail) == ("pending", "lacks x (pending)")
    assert cell(answers, "b", "both").value == pytest.approx(0.65)
    assert cell(answers, "b", "both").low < 0.65 < cell(answers, "b", "both").high
    assert cell(answers, "b", "x").low < 0.5 < cell(answers, "b", "x").high  # a part, which is no row
    assert cell(answers, "b", "all").detail == "lacks z (not supplied)"
    assert set(answers.pairs["dataset"]) <= {"both"}


def test_a_folder_without_grids_is_told(tmp_path, capsys):
    assert main(["report", "--directory", str(tmp_path)]) == 1
    assert "no grid was run in this folder" in capsys.readouterr().err


def test_one_damaged_grid_keeps_neither_the_scores_nor_the_report_of_another(grid, tmp_path, capsys):
    assert len(load_scores(tmp_path)) == 8
    files.write_text(other := paths.GRID_SUMMARY.format(grid="other"), "{")
    assert len(load_scores(tmp_path)) == 8
    assert f"warning: the grid other is left out: {tmp_path / other} is damaged" in capsys.readouterr().err
    assert main(["report"]) == 0
    said = capsys.readouterr()
    assert "warning: the grid other is left out: " in said.err
    assert "Report: " in said.out


# Beside a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_refresh_waits_for_another(grid):
    with files.locked(Path(paths.GRID_FOLDER.format(grid="test"), ".lock")):
        other = threading.Thread(target=refresh, args=[grid])
        other.start()
        time.sleep(0.5)
        assert not TABLES.exists()
    other.join()
    assert TABLES.exists()


def _recorded(*rules: str, failed: bool = False) -> None:
    """Follow a run of jobs of these rules to its end."""
    logger = logging.Logger("snakemake")
    logger.addHandler(recorder := events.Recorder("test", lambda: None))
    logger.info("stats", extra={"event": "run_info", "stats": dict.fromkeys(rules, 1)})
    for number, rule in enumerate(rules):
        job = {"rule_name": rule, "jobid": number, "wildcards": {}, "log": [], "output": []}
        logger.info("job", extra={"event": "job_info", **job})
        logger.info("done", extra={"event": "job_finished", "job_id": number})
    if failed:
        logger.error("one job failed", extra={"event": "error"})
    recorder.close()
    recorder.close()


@pytest.mark.parametrize(
    ("rules", "failed", "refreshed"),
    quick_first(
        [
            (["aggregate"], False, True),
            (["aggregate", "beir_report"], False, False),
            (["aggregate", "beir_report"], True, True),
            (["beir_report", "analyse_grid"], False, True),
        ]
    ),
)
def test_a_run_prints_its_tables_and_writes_them_unless_its_last_job_did(
    grid, rules, failed, refreshed, monkeypatch, capfd
):
    monkeypatch.setattr(events.sys, "executable", python())
    run_work(aggregate, RECORD, grid=grid, published=tuple(PUBLISHED), output=TABLES)
    _recorded(*rules, failed=failed)
    assert PAGE.is_file() == refreshed
    assert capfd.readouterr().out.count(f"Report: {PAGE.absolute()}") == 1
    run = events.read(events.EVENTS)
    assert run.over is not None
    assert run.over["succeeded"] == (not failed)


def test_the_tables_of_a_run_name_its_failed_cells(grid, monkeypatch, capfd):
    monkeypatch.setattr(events.sys, "executable", python())
    Path(grid.cells[0].per_query).write_bytes(b"")
    _recorded("evaluate", failed=True)
    assert "Failed, 1 of them: " in capfd.readouterr().out


def test_tables_that_cannot_be_written_do_not_disturb_the_run(grid, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setattr(events.sys, "executable", "/gone/python")
        _recorded("aggregate")
    files.write_text(SUMMARY, "{")
    _recorded("aggregate")
    assert "is not a summary of a grid" in capfd.readouterr().err


@pytest.mark.parametrize(("systems", "datasets", "width"), [(2, 3, 80), (17, 14, 120), (40, 30, 80), (7, 1, 100)])
def test_a_run_ends_in_40_lines(systems, datasets, width):
    grid = pages.grid(systems, datasets, ("ndcg@10",))
    states = {
        (system, row): ("failed" if (i + j) % 5 == 0 else "done", f"logs/{i}.log: line {j} " + "x" * 500)
        for i, system in enumerate(grid.systems)
        for j, row in enumerate(grid.rows)
    }
    lines = list(outline(grid, pages.tables(grid, states), Path("/home/index.html"), width))
    assert len(lines) <= LINES
    assert lines[-1] == "Report: /home/index.html"
    assert all(len(line) <= 2 * width for line in lines)
    assert any(line.startswith("Failed, ") for line in lines)
    assert sum(any(name in line for name in grid.systems) for line in lines) >= min(systems, 2) - 1


def test_all_that_a_run_has_to_say_at_its_end_fits_in_40_lines():
    grid = pages.grid(15, 15, ("ndcg@10",))
    states = {(system, "nq"): ("failed", f"log {i}") for i, system in enumerate(grid.systems[1:])}
    states |= {(system, "fiqa"): ("pending", "") for system in grid.systems[1:]}
    states |= {(system, "quora"): ("not supplied", "") for system in grid.systems[1:]}
    states |= {(system, "fever"): ("done", f"t lacks {i} queries") for i, system in enumerate(grid.systems)}
    tables = pages.tables(grid, states)
    recorded = pd.DataFrame([{"published": 0.1, "verdict": "reproduced", "recorded": True}])
    verdicts = typed("verdicts", pd.concat([tables.verdicts, recorded]))
    lines = list(outline(grid, tables._replace(verdicts=verdicts), Path("/home/index.html"), 160))
    assert len(lines) <= LINES
    for start in (
        "Published values: ",
        "Values recorded by beirgrid: ",
        "Of 225 cells: 183 done, 14 ",
        "Failed, 1 of them: log 0; 13 more reasons",
    ):
        assert any(line.startswith(start) for line in lines), start
    assert "§ bm25 on fever: t lacks 0 queries. More such notes in the tables: 14." in lines


# Cells that a publisher declines --------------------------------------------------------------------------------------


def test_a_declined_cell_says_so_and_takes_no_mean_over_common_datasets(grid):
    grid = grid.model_copy(
        update={
            "rows": ("x", "y", "w"),
            "datasets": {name: grid.datasets[name] for name in "xy"} | {"w": DatasetSummary(corpus="w")},
            "cells": (*grid.cells, write_cell("a", "w", 0.2)),
            "declined": {"b": {"w": "trained on it, says its card"}},
        }
    )
    answers = compute(grid, grid_cells.find(grid), [])
    assert cell(answers, "b", "w")[["status", "detail"]].tolist() == ["declined", "trained on it, says its card"]
    means = answers.across.query("metric == 'ndcg@10'").set_index(["over", "system"])["mean"]
    assert means["common"].to_dict() == pytest.approx({"a": 0.35, "b": 0.65})
    assert means["all", "a"] == pytest.approx(0.3)
    note = "declined: b has no score on w, which its publisher declines: trained on it, says its card"
    assert note in table_files.common_notes(grid, answers)
    page = report.render(grid, answers)
    assert 'class="none">declined</td>' in page
    assert note in page


def test_a_declined_cell_is_not_planned():
    """Nor those of systems with the model; other datasets over the same corpus run."""
    declined = {"names": ["scifact", "cqadupstack"], "reason": "trained on them"}
    systems = {"hybrid": {"fusion": "rrf", "of": ["bm25", "minilm"]}}
    rows = ["scifact", "nfcorpus", "cqadupstack"]
    entries = {"models": {"minilm": {"declined": declined}}, "systems": systems}
    grid = Grid(merged(more={**entries, "grid": {"systems": ["bm25", "minilm", "hybrid"], "datasets": rows}}))
    plain = Grid(merged(more={"systems": systems, "grid": {"systems": ["bm25", "minilm", "hybrid"], "datasets": rows}}))
    lacking = {(system, row) for system, row in plain.cells if system != "bm25" and row != "nfcorpus"}
    assert len(lacking) == 2 * 13
    assert {*plain.cells} - {*grid.cells} == lacking
    planned = [dict(job.wildcards) for job in Rules(grid, own_python=True).jobs if job.rule.startswith("encode")]
    assert {job["corpus"] for job in planned} == {"nfcorpus"}
    assert settings(grid, "encode_dense", **planned[0]) == settings(plain, "encode_dense", **planned[0])
    assert GridSummary.model_validate_json(Summary(grid).as_json({})).declined["hybrid"]["scifact"] == "trained on them"
