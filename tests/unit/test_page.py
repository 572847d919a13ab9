"""The page as text: its size, its steps, its figures. tests/browser opens it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pages
import pytest
import yaml
from helpers import ROOT

from beirgrid import config
from beirgrid.core import files
from beirgrid.data.summary import GridSummary
from beirgrid.graph.grid import Grid
from beirgrid.graph.inputs import Inputs
from beirgrid.graph.records import Records
from beirgrid.graph.summary import Summary
from beirgrid.page import grid as grids
from beirgrid.page import steps
from beirgrid.page.render import render

LICENSED = ("bioasq", "signal1m", "trec-news", "robust04")


@pytest.fixture
def paper(tmp_path, monkeypatch) -> GridSummary:
    """The paper's grid, with all of its records; commands are as long as the longest of the demo."""
    monkeypatch.chdir(tmp_path)
    raw = {}
    for name in ("config", "datasets", "systems", "grids/paper"):
        raw.update(yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text()))
    for name in LICENSED:
        raw["corpora"][raw["datasets"][name]["corpus"]]["path"] = str(pages.folder(tmp_path / name))
    loaded = Grid(config.load(raw))
    summary = GridSummary.model_validate_json(Summary(loaded, Records(loaded, Inputs(loaded))).as_json({}))
    for cell in summary.cells:
        for path in [*cell.records, cell.scores]:
            if not Path(path).exists():
                pages.record(Path(path), f"python -m beirgrid {path} {'x' * 500}")
    return summary


def test_the_papers_page_has_all_steps_in_at_most_three_megabytes(paper):
    page = render(paper, pages.tables(paper))
    assert len(page.encode()) <= 3e6
    assert len(paper.systems) * len(paper.rows) >= 190
    for cell in paper.cells:
        assert f"python -m beirgrid {cell.scores} " in page
        assert f"python -m beirgrid {cell.records[-1]} " in page


def test_families_are_those_of_the_models(paper):
    found = {name: paper.families[name] for name in ("bm25", "colbert", "bm25+ce", "sparta", "tas-b")}
    assert found == {
        "bm25": "lexical",
        "colbert": "late-interaction",
        "bm25+ce": "cross-encoder",
        "sparta": "sparse",
        "tas-b": "dense",
    }


def test_shards_are_one_step_and_shared_steps_are_told_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shards = [pages.record(Path(f"embeddings/{n}.json"), f"encode {n}", stage="encode") for n in range(3)]
    own = pages.record(Path("runs/bm25/trec-covid.json"), stage="retrieve")
    grid = pages.grid(2, 1, records=(*shards, own, "missing.json"))
    Path("damaged.json").write_text("{")
    found = steps.collect(grid)
    assert [(step.stage, step.shards, step.seconds, step.command) for step in found.steps] == [
        ("encode", 3, 4.5, "encode 0"),
        ("retrieve", 1, 1.5, "python -m beirgrid index dense --output x"),
    ]
    assert found.of_cell == {("bm25", "trec-covid"): [0, 1], ("bm25-flat", "trec-covid"): [0, 1]}


def test_shades_go_from_the_worst_to_the_best(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    grid = pages.grid(5, 1, ("ndcg@10", "hole@10"))
    answers = pages.tables(grid)
    for table in grids.tables(grid, answers):
        values = answers.scores.query("metric == @table.metric").set_index("system")["value"]
        shades = {system: cells[-1].shade for system, cells in table.rows}
        best, worst = (values.idxmax(), values.idxmin())[:: -1 if table.metric == "hole@10" else 1]
        assert (shades[best], shades[worst]) == (grids.SHADES, 0)
        assert [cells[-1].best for system, cells in table.rows if system == best] == [True]


def test_figures_stand_in_the_page_with_their_captions(monkeypatch, tmp_path):
    """As images: what an SVG holds cannot become part of the page."""
    monkeypatch.chdir(tmp_path)
    grid = pages.grid(2, 2)
    folder = Path("results/grids/grid/figures")
    files.write_json(folder / "captions.json", {"depth": "Depth <of> reranking", "absent": "No file"})
    (folder / "depth.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    page = render(grid, pages.tables(grid))
    assert re.search(r'<img src="data:image/svg\+xml;base64,[\w+/=]+" alt="Depth &lt;of&gt; reranking">', page)
    assert "<figcaption>Depth &lt;of&gt; reranking</figcaption>" in page
    assert "alert(1)" not in page
    assert "No file" not in page


def test_data_of_the_script_cannot_end_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    grid = pages.grid(2, 2)
    answers = pages.tables(grid)
    answers.significance["note"] = "</script><script>alert(1)</script>"
    packed = re.search(r'<script type="text/plain" id="data">([\w+/=]+)</script>', render(grid, answers))[1]
    row = json.loads(gzip.decompress(base64.b64decode(packed)))["tables"]["baseline"]["rows"]["ndcg@10"][0]
    assert row[-1] == "</script><script>alert(1)</script>"
