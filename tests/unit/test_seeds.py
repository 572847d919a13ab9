"""Systems that run once per seed: their members, shared artifacts, and their tables."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import finished
import numpy as np
import pandas as pd
import pytest
from graph import records, settings
from helpers import tracked_configuration

from beirgrid import config
from beirgrid.config.entries import SeededSystem
from beirgrid.core import paths
from beirgrid.core.errors import ConfigError
from beirgrid.graph.grid import Grid
from beirgrid.graph.summaries import Summary
from beirgrid.page.render import render
from beirgrid.results import cells, table_files
from beirgrid.results.answer_files import write_answers
from beirgrid.results.answers import Answers
from beirgrid.results.summary import Cell, DatasetSummary, GridSummary
from beirgrid.stages.aggregate import work as aggregate
from beirgrid.tools import reporting

_TAUGHT = {"recipe": "gpl", "base": "minilm-tsdae", "derive": ["titles"], "teacher": "demo-reranker", "seed": 7}
SYSTEMS = {
    "adapted": {"retriever": "adapted", "seeds": 3},
    "bm25+adapted": {"fusion": "rrf", "of": ["bm25", "adapted"], "seeds": 3},
    "minilm-genq+ce": {"first_stage": "minilm-genq", "reranker": "demo-reranker", "seeds": 2},
}


@pytest.fixture
def raw() -> dict[str, Any]:
    """The tracked configuration with systems that have seeds, on SciFact."""
    merged = tracked_configuration()
    adapted = {"family": "dense", "similarity": "cosine", "max_length": 256, "note": "told", "train": _TAUGHT}
    merged["models"]["adapted"] = adapted
    merged["systems"] |= copy.deepcopy(SYSTEMS)
    merged["grid"] = {"systems": ["bm25", *SYSTEMS], "datasets": ["scifact"]}
    return merged


@pytest.fixture
def grid(raw) -> Grid:
    return Grid(config.load(raw))


# The configuration and the jobs ---------------------------------------------------------------------------------------


def test_a_system_has_a_member_per_seed(grid):
    assert grid.config.systems["adapted"] == SeededSystem(members=tuple(f"adapted.seed{i}" for i in (1, 2, 3)))
    assert [system for system, _ in grid.cells] == [
        *("bm25", "adapted.seed1", "adapted.seed2", "adapted.seed3"),
        *("bm25+adapted.seed1", "bm25+adapted.seed2", "bm25+adapted.seed3"),
        *("minilm-genq+ce.seed1", "minilm-genq+ce.seed2"),
    ]
    assert grid.system("bm25+adapted.seed2").parts == ("bm25", "adapted.seed2")
    reranked = grid.system("minilm-genq+ce.seed2")
    assert (reranked.first_stage, reranked.reranker) == ("minilm-genq.seed2", "demo-reranker.seed2")


def test_every_model_that_is_trained_for_a_member_has_another_seed(grid):
    models = ["adapted", "adapted.seed2", "adapted.seed3"]
    assert [grid.retriever(f"adapted.seed{i}") for i in (1, 2, 3)] == models
    assert [grid.training(f"{model}@scifact").seed for model in models] == [7, 8, 9]
    bases = [grid.training(model).base for model in models]
    assert bases == ["minilm-tsdae", "minilm-tsdae.seed2", "minilm-tsdae.seed3"]
    assert [grid.training(base).seed for base in bases] == [1, 2, 3]
    assert {grid.training(base).base for base in bases} == {"minilm"}
    assert grid.training("adapted.seed2").teacher == "demo-reranker.seed2"
    first, second = (settings(grid, "adapt", model=f"{model}@scifact")["recipe"] for model in models[:2])
    assert {key for key in first if first[key] != second[key]} == {"seed"}


def test_a_query_tower_that_is_trained_has_another_seed_too(raw):
    tower = {"family": "dense", "similarity": "cosine", "train": {"recipe": "mlm", "base": "minilm", "seed": 1}}
    raw["models"] |= {"tower": tower, "two": {**raw["models"]["minilm"], "query_model": "tower"}}
    raw["systems"]["two"] = {"retriever": "two", "seeds": 2}
    raw["grid"]["systems"] = ["two"]
    grid = Grid(config.load(raw))
    assert [grid.training(grid.query_model(system)).seed for system, _ in grid.cells] == [1, 2]


def test_without_seeds_a_system_does_the_jobs_of_its_first_member(grid, raw):
    del raw["systems"]["adapted"]["seeds"], raw["systems"]["bm25+adapted"]["seeds"]
    plain = Grid(config.load(raw))
    own = {paths.RUN_RECORD.format(system=name, dataset="scifact") for name in ("adapted", "adapted.seed1")}
    planned = ((plain, "adapted"), (grid, "adapted.seed1"))
    first, second = (set(records(of, name, "scifact")) - own for of, name in planned)
    assert first == second


def test_the_summary_has_the_systems_as_columns(grid):
    summary = GridSummary.model_validate_json(Summary(grid).as_json({}))
    assert summary.systems == ("bm25", *SYSTEMS)
    assert summary.baseline == "bm25"
    assert summary.seeds["minilm-genq+ce"] == ("minilm-genq+ce.seed1", "minilm-genq+ce.seed2")
    assert (summary.families["bm25"], summary.families["adapted"]) == ("lexical", "dense")
    assert {cell.system for cell in summary.cells} == {system for system, _ in grid.cells}
    assert [note.systems for note in summary.notes if note.note == "told"] == [("adapted", "bm25+adapted")]
    metrics = [cell.scores for cell in summary.cells if cell.system in summary.seeds["adapted"]]
    assert metrics[:2] == [f"results/metrics/adapted.seed{i}/scifact.json" for i in (1, 2)]


@pytest.mark.parametrize(
    ("keys", "names"),
    [({"path": "m-s{seed}"}, ["m-s1", "m-s2"]), ({"paths": ["first", "m-s42"]}, ["first", "m-s42"])],
)
def test_each_member_has_the_folder_of_its_own_training(raw, tmp_path, monkeypatch, keys, names):
    monkeypatch.chdir(tmp_path)
    for name in names:
        Path(name).mkdir()
    raw["models"] |= {"mine": {"family": "dense", "similarity": "cosine", **keys}}
    raw["systems"] |= {
        "mine": {"retriever": "mine", "seeds": 2},
        "mine+ce": {"first_stage": "mine", "reranker": "ms-marco-minilm", "seeds": 2},
    }
    raw["grid"]["systems"] = ["bm25", "mine+ce"]
    grid = Grid(config.load(raw))
    stages = [grid.system(f"mine+ce.seed{i}").first_stage for i in (1, 2)]
    models = [grid.retriever(stage) for stage in stages]
    assert models == ["mine", "mine.seed2"]
    assert [settings(grid, "fetch_model", model=model)["entry"]["path"] for model in models] == [
        str(tmp_path / name) for name in names
    ]
    assert {grid.system(f"mine+ce.seed{i}").reranker for i in (1, 2)} == {"ms-marco-minilm"}
    # The folder alone: the keys of the encoder are those of a model with one folder.
    one = {**raw, "models": {**raw["models"], "mine": {"family": "dense", "similarity": "cosine", "path": names[1]}}}
    one["systems"] = {"bm25": raw["systems"]["bm25"], "mine": {"retriever": "mine"}}
    one["grid"] = {"systems": ["mine"], "datasets": ["scifact"]}
    plain = Grid(config.load(one))
    read = [
        settings(of, "encode_dense", model=model, corpus="scifact", shard=0)
        for of, model in ((plain, "mine"), (grid, models[1]))
    ]
    assert read[0] == read[1]


@pytest.mark.parametrize(
    ("keys", "system", "message"),
    [
        ({"path": "m-s{seed}"}, {}, "systems.mine: models.mine.path has {seed}, so it needs seeds: how many there are"),
        ({"paths": ["a", "b"]}, {}, "systems.mine.seeds: models.mine.paths names 2 folders, so it needs seeds: 2"),
        (
            {"paths": ["a", "b"]},
            {"seeds": 3},
            "systems.mine.seeds: models.mine.paths names 2 folders, so it needs seeds: 2",
        ),
        ({"path": "m-s{seed}"}, {"seeds": 3}, "models.mine.seed3.path: there is no folder {here}/m-s3"),
        (
            {"paths": ["a", "b"], "path": "a"},
            {},
            "models.mine: the key 'paths' does not go with path: one of them says",
        ),
        ({"paths": ["a", "a"]}, {}, "models.mine.paths: 'a' is listed twice"),
    ],
)
def test_folders_that_do_not_fit_the_seeds_are_refused_in_one_line(raw, tmp_path, monkeypatch, keys, system, message):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "m-s1", "m-s2"):
        Path(name).mkdir()
    raw["models"]["mine"] = {"family": "dense", "similarity": "cosine", **keys}
    raw["systems"]["mine"] = {"retriever": "mine", **system}
    raw["grid"] = {"systems": ["mine"], "datasets": ["scifact"]}
    with pytest.raises(ConfigError) as refused:
        config.load(raw)
    [_, line] = str(refused.value).splitlines()
    assert message.replace("{here}", str(tmp_path)) in line


_NOT_RANDOM = "does not depend on a seed: the workflow trains none of its models, and none has a folder for each"


@pytest.mark.parametrize(
    ("name", "system", "message"),
    [
        ("minilm", {"retriever": "minilm", "seeds": 3}, f".seeds: 'minilm' {_NOT_RANDOM}"),
        ("mine", {"run": "{dataset}.trec", "seeds": 3}, f".seeds: 'mine' {_NOT_RANDOM}"),
        ("d2q", {"retriever": "bm25", "expansion": "doct5query", "seeds": 2}, f".seeds: 'd2q' {_NOT_RANDOM}"),
        ("adapted", {"retriever": "adapted", "seeds": 1}, ".seeds: Input should be greater than"),
        ("bm25+adapted", {"fusion": "rrf", "of": ["bm25", "adapted"]}, ".seeds: its part 'adapted' has 3 seeds, so it"),
        ("adapted.seed2", {"retriever": "minilm"}, ": seeds need this name; rename the entry"),
    ],
)
def test_seeds_that_make_no_sense_are_refused_in_one_line(raw, name, system, message):
    raw["systems"][name] = system
    with pytest.raises(ConfigError) as refused:
        config.load(raw)
    [_, line] = str(refused.value).splitlines()
    assert f"systems.{name}{message}" in line


# The tables -----------------------------------------------------------------------------------------------------------

MEMBERS = ("s.seed1", "s.seed2", "s.seed3")


def write_cell(system: str, dataset: str, values: np.ndarray) -> Cell:
    """Write a cell with these values."""
    return finished.write_cell(system, dataset, pd.DataFrame({"ndcg@10": values}, finished.QUERIES))


@pytest.fixture
def seeded(tmp_path, monkeypatch) -> tuple[GridSummary, dict[str, np.ndarray]]:
    """A baseline and a system with three seeds on the datasets x and y and on their mean, all done; values by cell."""
    monkeypatch.chdir(tmp_path)
    numbers = np.random.default_rng(0)
    values = {f"{system} {name}": numbers.random(12) for name in "xy" for system in ("base", *MEMBERS)}
    cells = [write_cell(*name.split(), of_cell) for name, of_cell in values.items()]
    both = {"both": DatasetSummary(mean_of=("x", "y"))}
    columns = {"systems": ("base", "s"), "seeds": {"s": MEMBERS}}
    summary = finished.summary(cells, both, name="test", rows=("x", "both"), **columns)
    return summary, values


def spread(values: dict[str, np.ndarray], datasets: str, members: Iterable[str] = MEMBERS) -> tuple[Any, Any]:
    """Return mean and deviation, over members, of their means over datasets (a letter each)."""
    levels = [np.mean([values[f"{member} {name}"].mean() for name in datasets]) for member in members]
    return pytest.approx(np.mean(levels)), pytest.approx(np.std(levels, ddof=1))


def answer(grid: GridSummary) -> Answers:
    """Return the tables of what is there."""
    return aggregate.compute(grid, cells.find(grid), ())


def row(table: pd.DataFrame, system: str, dataset: str) -> pd.Series:
    (found,) = (of for _, of in table.iterrows() if (of["system"], of["dataset"]) == (system, dataset))
    return found


def test_tables_have_mean_and_deviation_beside_the_values_of_the_seeds(seeded):
    grid, values = seeded
    found = answer(grid)
    of_x = row(found.seeds, "s", "x")
    assert (of_x["mean"], of_x["deviation"]) == spread(values, "x")
    assert (of_x["seeds"], of_x["of"]) == (3, 3)
    both = spread(values, "xy")
    assert row(found.seeds, "s", "both")["deviation"] == both[1]
    for member in MEMBERS:
        assert row(found.scores, member, "x")["value"] == pytest.approx(values[f"{member} x"].mean())
    assert row(found.scores, "s", "both")["value"] == both[0]
    for name in ("s", *MEMBERS):
        cell = row(found.scores, name, "x")
        assert cell["low"] < cell["value"] < cell["high"]
        assert cell["queries"] == 12


@pytest.fixture
def several(seeded) -> tuple[GridSummary, dict[str, np.ndarray]]:
    """The same systems on x, y and a dataset over MS MARCO, which the main table's mean leaves out."""
    grid, values = seeded
    values |= {f"{system} m": np.random.default_rng(9).random(12) for system in ("base", *MEMBERS)}
    cells = [write_cell(system, "m", values[f"{system} m"]) for system in ("base", *MEMBERS)]
    datasets = {name: DatasetSummary(corpus=corpus) for name, corpus in (("y", "y"), ("m", "msmarco"), ("x", "x"))}
    changes = {"rows": tuple(datasets), "datasets": datasets, "cells": (*grid.cells, *cells)}
    return grid.model_copy(update=changes), values


def test_a_mean_over_datasets_has_the_deviation_of_the_means_of_the_seeds(several, tmp_path):
    grid, values = several
    found = answer(grid)
    for mean_of, names in (("x, y", "xy"), ("m, x, y", "mxy")):
        (over,) = found.seeds[found.seeds["mean_of"] == mean_of].to_dict("records")
        assert (over["mean"], over["deviation"]) == spread(values, names)
        assert (over["dataset"], over["seeds"], over["of"]) == ("", 3, 3)
    assert set(found.seeds["mean_of"]) == {"", "x, y", "m, x, y"}
    table = table_files.wide(found, grid, "ndcg@10")
    shown = (table["text"]["s"] + table["signs"]["s"]).str.replace("†", "")
    shown_of = {names: [one.expected for one in spread(values, names)] for names in ("x", "xy", "mxy")}
    assert shown["mean of y, x (without m)"] == "{:.4f} ± {:.4f}".format(*shown_of["xy"])
    assert shown["x"] == "{:.4f} ± {:.4f}".format(*shown_of["x"])
    table_files.write(found, grid, tmp_path)
    assert f" ± {shown_of['xy'][1]:.4f} |" in (tmp_path / "ndcg@10.md").read_text()
    assert rf" $\pm$ {shown_of['xy'][1]:.4f} " in (tmp_path / "ndcg@10.tex").read_text()
    page = render(grid, found)
    for names in ("x", "mxy"):  # the page's mean is over all datasets
        assert "{:.4f}<small>± {:.4f}</small>".format(*shown_of[names]) in page


def test_a_seed_that_lacks_a_dataset_has_no_mean_over_the_datasets(several):
    grid, values = several
    Path(paths.METRICS.format(system="s.seed2", dataset="x")).unlink()
    found = answer(grid)
    (over,) = found.seeds[found.seeds["mean_of"] == "x, y"].to_dict("records")
    assert (over["mean"], over["deviation"]) == spread(values, "xy", ("s.seed1", "s.seed3"))
    assert (over["seeds"], over["of"]) == (2, 3)
    table = table_files.wide(found, grid, "ndcg@10")
    assert table["text"].loc["mean of y, x (without m)", "s"] == "incomplete"
    known = {"y": True, "m": True, "x": False, "mean of y, x (without m)": False, "mean of 3 datasets": False}
    assert table["signs"]["s"].str.contains("±").to_dict() == known


def test_a_system_with_seeds_is_tested_by_its_mean_for_each_query(seeded):
    grid, values = seeded
    found = answer(grid)
    assert set(found.pairs["system"]) | set(found.pairs["other"]) == {"base", "s"}
    mean = np.mean([values[f"{member} x"] for member in MEMBERS], axis=0)
    differences = mean - values["base x"]
    signs = 1 - 2 * ((np.arange(2**12)[:, None] >> np.arange(12)) & 1)  # every sign pattern
    extreme = np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9
    assert row(found.significance, "s", "x")["p_randomisation"] == pytest.approx(extreme.mean())
    table = table_files.wide(found, grid, "ndcg@10")
    assert list(table["value"]) == ["s", "base"]  # the best first
    assert table["value"].loc["x", "s"] == pytest.approx(mean.mean())
    assert "Mean over seeds (seeds.csv): s (3)." in table_files.common_notes(grid, found)
    assert set(found.costs["system"]) == {"base", *MEMBERS}
    assert found.costs["stage"].value_counts().to_dict() == {"fuse": 8, "evaluate": 8}


def test_a_missing_seed_shows_and_the_mean_says_what_it_is_over(seeded):
    grid, values = seeded
    Path(paths.METRICS.format(system="s.seed2", dataset="x")).unlink()
    found = answer(grid)
    whole, of_x = row(found.scores, "s", "x"), row(found.seeds, "s", "x")
    assert (whole["status"], whole["detail"]) == ("pending", "lacks s.seed2 (pending)")
    assert np.isnan(whole["value"])
    assert (of_x["mean"], of_x["deviation"]) == spread(values, "x", ("s.seed1", "s.seed3"))
    assert (of_x["seeds"], of_x["of"]) == (2, 3)
    assert row(found.scores, "s", "both")["detail"] == "lacks x (pending)"
    assert table_files.wide(found, grid, "ndcg@10")["text"].loc["x", "s"] == "pending"
    said = "\n".join(reporting.outline(grid, found, Path("page"), 120))
    assert "Of 8 cells: 7 done, 1 pending." in said
    assert "Mean over seeds (seeds.csv): s (3)." in said
    Path(paths.METRICS.format(system="s.seed3", dataset="x")).unlink()
    one = row(answer(grid).seeds, "s", "x")
    assert (one["mean"], one["seeds"]) == (pytest.approx(values["s.seed1 x"].mean()), 1)
    assert np.isnan(one["deviation"])
    Path(paths.METRICS.format(system="s.seed1", dataset="x")).unlink()
    none = row(answer(grid).seeds, "s", "x")
    assert none["seeds"] == 0
    assert np.isnan([none["mean"], none["deviation"]]).all()


def test_page_and_files_show_seeds_where_there_are_some(seeded):
    grid, _ = seeded
    found = answer(grid)
    page = render(grid, found)
    assert f"<small>± {row(found.seeds, 's', 'x')['deviation']:.4f}</small>" in page
    assert "Mean over seeds (seeds.csv): s (3)." in page
    write_answers(found, Path("tables"))
    assert set(table_files.read(grid, Path("tables")).scores["system"]) == {"base", "s", *MEMBERS}
    without = grid.model_copy(update={"systems": ("base",), "seeds": {}, "cells": (grid.cells[0], grid.cells[4])})
    assert "<small>±" not in render(without, answer(without))
