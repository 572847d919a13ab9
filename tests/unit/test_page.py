"""The report as text: size, steps, figures. tests/browser opens it."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pages
import pandas as pd
import pytest
from helpers import ROOT, main, tracked_configuration, write_record

from beirgrid import config
from beirgrid.core import files, paths
from beirgrid.graph.grid import Grid
from beirgrid.graph.summaries import Summary
from beirgrid.page import drawing, sections, texts
from beirgrid.page.render import render
from beirgrid.paper.plan import Analyse
from beirgrid.results import answer_files
from beirgrid.results.summary import GridSummary
from beirgrid.stages.report import work as report


def images(page: str) -> list[str]:
    """Return the sources of the page's images."""
    return re.findall(r'<img src="data:image/svg\+xml;base64,([\w+/=]+)"', page)


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def paper(tmp_path) -> GridSummary:
    """The paper's grid."""
    raw = tracked_configuration("grids/paper")
    for name in ("bioasq", "signal1m", "trec-news", "robust04"):
        raw["corpora"][raw["datasets"][name]["corpus"]]["path"] = str(pages.folder(tmp_path / name))
    return GridSummary.model_validate_json(Summary(Grid(config.load(raw))).as_json({}))


@pytest.mark.slow
def test_the_papers_page_has_all_steps_and_figures_in_at_most_three_megabytes_beside_the_figures(paper):
    """Its commands are as long as the longest of the demo."""
    assert paper.name == "paper"
    for path in {path for cell in paper.cells for path in (*cell.records, cell.scores)}:
        pages.record(Path(path), f"python -m beirgrid {path} {'x' * 500}")
    for number in range(10):
        files.write_text(f"results/grids/paper/figures/f{number}.svg", "<svg xmlns='http://www.w3.org/2000/svg'></svg>")
    files.write_json("results/grids/paper/figures/captions.json", {f"f{number}": "A figure" for number in range(10)})
    page = render(paper, pages.tables(paper))
    assert len(page.encode()) - sum(map(len, images(page))) <= 3e6
    assert len(images(page)) == 10
    assert len(paper.systems) * len(paper.rows) >= 190
    for cell in paper.cells:
        assert f"python -m beirgrid {cell.scores} " in page
        assert f"python -m beirgrid {cell.records[-1]} " in page


def test_families_are_those_of_the_models(paper):
    families = {"bm25": "lexical", "colbert": "late-interaction", "bm25+ce": "cross-encoder", "sparta": "sparse"}
    assert families.items() | {("tas-b", "dense")} <= paper.families.items()


def test_steps_that_cells_share_are_told_once():
    shards = [pages.record(Path(f"embeddings/{n}.json"), f"encode {n}", stage="encode") for n in range(2)]
    own = pages.record(Path("runs/bm25/trec-covid.json"), stage="retrieve")
    grid = pages.grid(2, 1, records=(*shards, own, "missing.json"))
    page = render(grid, pages.tables(grid))
    assert re.findall(r"<summary>(\w+ [\w/-]+ \([\d.]+ s\))</summary>", page) == [
        "encode embeddings/0 (1.5 s)",
        "encode embeddings/1 (1.5 s)",
        "retrieve runs/bm25/trec-covid (1.5 s)",
    ]
    rows = [*zip(*pages.packed(page, "data")["steps"], strict=True)]
    assert rows == [(system, "trec-covid", number) for system in grid.systems for number in range(3)]


def test_the_best_is_marked_ranked_first_and_drawn_with_its_interval():
    grid = pages.grid(5, 1, ("ndcg@10", "hole@10"))
    answers = pages.tables(grid)
    for table in sections.metric_tables(grid, answers):
        values = answers.scores.query("metric == @table.metric").set_index("system")["value"]
        best, worst = (values.idxmax(), values.idxmin())[:: -1 if table.metric == "hole@10" else 1]
        rows = {row.system: row for row in table.rows}
        assert (rows[best].rank, rows[worst].rank) == ("1", "5")
        assert [row.system for row in table.rows if row.cells[0].best] == [best]
        span = values.max() - values.min() + 0.04
        low, at, high = map(float, rows[best].cells[0].bar)
        assert (high - low, at - low) == pytest.approx((4 / span, 2 / span), abs=0.11)


def test_cells_of_systems_that_were_trained_on_the_dataset_are_marked():
    """Cells with unknown training data have a mark too; cells of systems with known other data have none."""
    training = {"trained_on": {"bm25-flat": ("nfcorpus",)}, "training_unknown": {"doct5query": ("nq",)}}
    grid = pages.grid(3, 3, ("ndcg@10",)).model_copy(update=training)
    (table,) = sections.metric_tables(grid, pages.tables(grid))
    cells = {
        (name, column.key): of for name, _, row in table.rows for column, of in zip(table.columns, row, strict=True)
    }
    assert [key for key, of in cells.items() if "‡" in of.marks] == [("bm25-flat", "nfcorpus")]
    assert [key for key, of in cells.items() if "?" in of.marks] == [("doct5query", "nq")]
    page = " ".join(render(grid, pages.tables(grid)).split())
    assert "‡: the system was trained on the dataset" in page
    assert "so zero-shot means leave the system out (doct5query)" in page


def test_a_dataset_may_have_the_name_of_a_set_of_datasets():
    text = pages.grid(2, 2, ("ndcg@10",)).model_dump_json().replace("trec-covid", "all")
    grid = GridSummary.model_validate_json(text)
    answers = pages.tables(grid)
    (table,) = sections.metric_tables(grid, answers)
    own = answers.scores.query("dataset == 'all'").set_index("system")["value"]
    over = answers.across.set_index("system")["mean"]
    assert [column.title for column in table.columns] == ["mean of 2", "all", "nfcorpus"]
    for row in table.rows:
        assert [cell.exact for cell in row.cells[:2]] == [f"{of[row.system]:.6f}" for of in (over, own)]


@pytest.mark.parametrize(("size", "offered"), [((1, 1), False), ((2, 1), True), ((1, 3), True)])
def test_filters_are_offered_where_there_is_a_choice(size, offered):
    grid = pages.grid(*size)
    assert ("<summary>Filter" in render(grid, pages.tables(grid))) is offered


def test_figures_stand_in_the_page_with_their_captions():
    """Figures are images, so the content of an SVG cannot become part of the page."""
    grid = pages.grid(2, 2)
    folder = Path("results/grids/grid/figures")
    files.write_json(folder / "captions.json", {"depth": "Depth <of> reranking", "absent": "No file"})
    (folder / "depth.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    page = render(grid, pages.tables(grid))
    assert base64.b64decode(images(page)[0]) == (folder / "depth.svg").read_bytes()
    assert 'alt="Depth &lt;of&gt; reranking">' in page
    assert len(images(page)) == 1
    assert "<figcaption>Depth &lt;of&gt; reranking <span" in page
    assert "alert(1)" not in page
    assert "No file" not in page


def test_a_report_has_pictures_of_its_numbers_without_any_analyses(tmp_path):
    """Of as many queries as there are; the names of systems are no markup."""
    grid = pages.grid(3, 4, ("ndcg@10",))
    values = {"bm25": [0.1, 0.5, 0.5], "bm25-flat": [0.2, 0.5, 0.1], "doct5query": [0.9, 0.5, 0.7]}
    per_query = pages.per_query(dict.fromkeys(grid.rows, values), ["q1", "q2", "q3"])
    answers = pages.tables(grid)._replace(per_query=per_query)
    page = report.illustrated(grid, answers, tmp_path)
    scores, curve = map(base64.b64decode, images(page))
    assert all(name in scores.decode() for name in grid.systems)
    assert "nDCG@10 on mean of 4, with 95 % intervals." in page
    for name, shown in (("scores", scores), ("by_query", curve)):
        assert (tmp_path / f"figures/{name}.svg").read_bytes() == shown
        for suffix in ("pdf", "png"):
            content = base64.b64encode((tmp_path / f"figures/{name}.{suffix}").read_bytes()).decode()
            assert re.search(
                rf'<a download="grid-{name}.{suffix}" href="data:[\w/]+;base64,{re.escape(content)}">', page
            )
    best, second = answers.across.sort_values("mean", ascending=False)["system"].iloc[:2]
    against = "bm25" if best != "bm25" else second
    above = sum(a > b for a, b in zip(values[best], values[against], strict=True))
    assert f"{above} higher, 1 equal, {2 - above} lower" in curve.decode()


def test_the_first_picture_has_the_planned_differences(tmp_path):
    grid = pages.grid(3, 6, ("ndcg@10",)).model_copy(update={"compare": ("doct5query", "bm25"), "title": "<My> models"})
    answers = pages.tables(grid)
    page = report.illustrated(grid, answers, tmp_path)
    first = base64.b64decode(next(iter(images(page)))).decode()
    assert all(f">{name}<" in first for name in (*grid.rows, "average", "doct5query minus bm25"))
    assert "<h1>&lt;My&gt; models</h1>" in page
    assert page.index("doct5query minus bm25 on average") < page.index("data:image/svg+xml") < page.index('id="grid"')


def test_planned_differences_on_one_dataset_are_one_panel_and_pictures_of_an_earlier_page_go(tmp_path):
    grid = pages.grid(3, 1, ("ndcg@10",))
    answers = pages.tables(grid)
    report.illustrated(grid, answers, tmp_path)
    own = tmp_path / "figures/mine.png"  # a reader's own file stays
    own.write_bytes(b"mine")
    page = report.illustrated(grid.model_copy(update={"compare": grid.systems}), answers, tmp_path)
    assert {path.name for path in own.parent.iterdir()} == {"mine.png", *(f"planned.{of}" for of in drawing.FORMATS)}
    picture = base64.b64decode(images(page)[0]).decode()
    _, *others = grid.systems
    assert picture.count(f">{grid.rows[0]}<") == 1
    assert all(f">bm25 minus {other}<" in picture for other in others)


def test_analyses_of_other_scores_say_so(tmp_path):
    pages.analyses(tmp_path, "A title")
    grid = pages.grid(2, 2)
    tables = pages.tables(grid)
    scores = tmp_path / "scores.csv"
    scores.write_text(answer_files.to_csv("scores", tables.scores))
    record = paths.ANALYSES_RECORD.format(grid=grid.name)
    write_record(Analyse(), record, settings={}, facts={"scores": files.sha256(scores)})  # as the stage writes it
    said = "These analyses were made from other scores than those above."
    assert said not in render(grid, tables)
    changed = tables.scores.assign(value=tables.scores["value"] / 2)
    assert said in render(grid, tables._replace(scores=changed))


def test_too_many_pairs_of_systems_are_left_out_and_the_page_says_so(monkeypatch):
    grid = pages.grid(3, 2)
    said = "This page has the pairs of nDCG@10 only"
    assert said not in render(grid, pages.tables(grid))
    monkeypatch.setattr(sections, "MOST_PAIRS", 6)  # there are 3 pairs, 2 datasets and 3 metrics
    page = render(grid, pages.tables(grid))
    pairs = pages.packed(page, "data")["pairs"]
    assert pairs[0] == ["ndcg@10"] * 6
    assert said in page


def test_data_of_the_script_cannot_end_it():
    grid = pages.grid(2, 2)
    answers = pages.tables(grid)
    answers.significance["note"] = "</script><script>alert(1)</script>"
    row = pages.packed(render(grid, answers), "data")["tables"]["baseline"]["rows"]["ndcg@10"][0]
    assert row[-1] == "</script><script>alert(1)</script>"


def test_published_values_are_a_page_without_a_run(capsys):
    assert main(["demo", "--published"]) == 0
    page = Path("results/grids/published/report/index.html").read_text()
    assert "<h1>published: 17 systems × 14 datasets</h1>" in page
    told = " ".join(capsys.readouterr().out.split())
    for said in ("All values are published ones: nothing was run here.", "qwen3-embedding has the highest nDCG@10"):
        assert said in page
        assert said in told
    shown = re.findall(r"<td[^>]*>(0\.\d{4})<", page.partition('<table class="grid"')[2].partition("</table>")[0])
    assert len(shown) == 17 * 14 + 17 + 15  # two systems have no zero-shot mean
    sources = pd.read_csv(ROOT / "config/published/beir_paper.csv").set_index(["system", "dataset", "metric"])["value"]
    of_bm25 = re.findall(r"<td[^>]*>(0\.\d{4})", page.partition(">bm25</th>")[2])
    assert of_bm25[2] == f"{sources['bm25', 'trec-covid', 'ndcg@10']:.4f}"
    for absent in ("published", "costs", "steps"):
        assert f'id="{absent}"' not in page
        assert f'href="#{absent}"' not in page
    figures = {f"scores.{suffix}" for suffix in ("svg", "pdf", "png")}
    assert {path.name for path in Path("results").rglob("*") if path.is_file()} == {"index.html", *figures}


def test_columns_that_are_empty_for_each_metric_are_hidden():
    columns = ["system", "family", "value", "low", "note"]
    rows = {"ndcg@10": [("bm25", "", 0.5, None, "")], "recall@100": [("bm25", "", None, 0.25, "late")]}
    tables = {metric: pd.DataFrame(of, columns=columns).assign(high=0.5) for metric, of in rows.items()}
    shown = texts.shown("x", tables, columns)
    assert (shown.columns, shown.texts) == (["system", "value", "interval", "note"], ["system", "note"])
    assert shown.rows == {
        "ndcg@10": [["bm25", "0.5000", "", ""]],
        "recall@100": [["bm25", "", "[0.2500, 0.5000]", "late"]],
    }
