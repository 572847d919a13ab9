"""Use the report in Chromium as a reader does: sort, filter, switch, open, compare, print, save."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata

import pages
import pandas as pd
import pytest

from beirgrid.measures import written
from beirgrid.page import drawing
from beirgrid.page.analyses import Figure
from beirgrid.results import comparisons
from beirgrid.results.answers import typed
from beirgrid.results.summary import GridSummary, ModelFacts

ALL_METRICS = ("ndcg@10", "recall@100", "recall@1000", "mrr@10", "map@1000", "p@10", "success@1", "hole@10")
# Cells that are not done.
STATES = {
    ("deepct", "fiqa"): ("failed", "logs/retrieve/deepct.log: MemoryError"),
    ("dpr", "nq"): ("pending", ""),
    ("bm25", "quora"): ("not supplied", "there is no folder quora"),
}

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)></textarea>\"'&</script><!--"


def values(page) -> dict[tuple[str, str], str]:
    """Return the texts of the shown table, by system and column."""
    rows = page.locator(".metric.chosen table tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.innerText))"
    )
    names = [name.replace("\n", "").strip(" ▲▼") for name in rows[0]]
    return {(row[0].replace("\n", ""), name): text for row in rows[1:] for name, text in zip(names, row, strict=True)}


def systems(page) -> list[str]:
    return page.locator(".metric.chosen tbody tr th").all_inner_texts()


def columns(page) -> list[str]:
    """Return the keys of the columns of the shown table."""
    return page.locator(".metric.chosen thead th[data-key]").evaluate_all("cells => cells.map(c => c.dataset.key)")


def cell(page, system: str, dataset: str):
    row = page.locator(".metric.chosen tbody tr", has=page.get_by_role("rowheader", name=system, exact=True))
    return row.locator("td").nth(columns(page).index(dataset)).get_by_role("button")


def open_section(page, title: str) -> None:
    page.get_by_role("heading", name=title, exact=True).click()


def ranked(grid: GridSummary) -> list[str]:
    """Return the systems by their mean in the first metric."""
    rows = pages.tables(grid).across.query("metric == @grid.metrics[0]")
    return list(rows.sort_values("mean", ascending=False)["system"])


def scores(tables, metric: str, dataset: str) -> dict[str, float]:
    return tables.scores.query("metric == @metric and dataset == @dataset").set_index("system")["value"].to_dict()


def texts(part) -> list[list[str]]:
    """Return the texts of the body of a table, row by row."""
    return [row.locator("th, td").all_inner_texts() for row in part.locator("tbody tr").all()]


def saved(page, part) -> tuple[str, list[list[str]]]:
    """Save a table as CSV, and return the name of the file and its rows."""
    with page.expect_download() as download:
        part.get_by_role("button", name="Save as CSV").click()
    text = download.value.path().read_text(encoding="utf-8-sig")
    return download.value.suggested_filename, [row for row in csv.reader(io.StringIO(text)) if row]


def test_a_click_on_a_dataset_sorts_the_systems_by_their_value(show, paper):
    page = show(paper)
    expected = scores(pages.tables(paper), "ndcg@10", "scifact")
    assert systems(page) == ranked(paper)
    header = page.locator(".metric.chosen th[data-key=scifact]")
    header.click()
    page.wait_for_selector("th[aria-sort=descending]")
    assert systems(page) == sorted(expected, key=expected.get, reverse=True)
    header.get_by_role("button").press("Enter")
    page.wait_for_selector("th[aria-sort=ascending]")
    assert systems(page) == sorted(expected, key=expected.get)


def test_another_metric_is_shown_in_every_table_in_the_same_order(show, paper):
    page = show(paper)
    page.locator(".metric.chosen th[data-key=nq]").click()
    page.wait_for_selector("th[aria-sort=descending]")
    page.get_by_role("combobox", name="Metric", exact=True).select_option("recall@100")
    expected = scores(pages.tables(paper), "recall@100", "nq")
    assert systems(page) == sorted(expected, key=expected.get, reverse=True)
    assert values(page)["tas-b", "nq"].startswith(f"{expected['tas-b']:.4f}")
    tests = pages.tables(paper).significance.query("metric == 'recall@100' and system == 'tas-b' and dataset == 'nq'")
    open_section(page, "Statistics")
    of_nq = page.locator("#baseline-table tbody tr", has=page.locator("td", has_text=re.compile("^nq$")))
    row = of_nq.filter(has=page.locator("th", has_text="tas-b"))
    assert f"{tests['difference'].iloc[0]:+.4f}" in row.inner_text()


def test_cells_show_differences_to_the_baseline_and_to_published_values(show, paper):
    page = show(paper)
    found = scores(pages.tables(paper), "ndcg@10", "fiqa")
    page.get_by_role("combobox", name="Show").select_option("baseline")
    assert values(page)["ance", "fiqa"].startswith(f"{found['ance'] - found['bm25']:+.4f}")
    pairs = pages.with_open_pairs(pages.tables(paper)).pairs.query(
        "metric == 'ndcg@10' and dataset == 'fiqa' and system == 'bm25'"
    )
    starred = {system for system in paper.systems if values(page)[system, "fiqa"].endswith("*")}
    assert starred == set(pairs.loc[pairs["p_tukey"] <= 0.05, "other"])
    assert values(page)["bm25", "fiqa"].startswith("–")
    page.get_by_role("combobox", name="Show").select_option("published")
    verdicts = pages.tables(paper).verdicts
    row = verdicts[(verdicts["metric"] == "ndcg@10") & verdicts["published"].notna()].iloc[0]
    assert values(page)[row["system"], row["dataset"]].startswith(f"{row['value'] - row['published']:+.4f}")
    page.get_by_role("combobox", name="Show").select_option("value")
    assert values(page)["ance", "fiqa"].startswith(f"{found['ance']:.4f}")


def test_filters_leave_what_matches(show, paper):
    page = show(paper)
    page.locator(".metric.chosen th[data-key=scifact]").click()  # filters hold in any order
    page.wait_for_selector("th[aria-sort=descending]")
    page.get_by_text("Filter", exact=True).click()
    page.get_by_role("combobox", name="Task").select_option("fact checking")
    facts = [name for name in paper.rows if paper.datasets[name].task == "fact checking"]
    assert columns(page) == facts
    page.get_by_role("combobox", name="Domain").select_option("science")
    assert columns(page) == [name for name in facts if paper.datasets[name].domain == "science"]
    page.get_by_role("combobox", name="Task").select_option("all")
    page.get_by_role("combobox", name="Domain").select_option("all")
    page.get_by_role("combobox", name="Family").select_option("sparse")
    expected = scores(pages.tables(paper), "ndcg@10", "scifact")
    order = sorted(paper.systems, key=expected.get, reverse=True)
    assert systems(page) == [name for name in order if paper.families[name] == "sparse"]
    page.get_by_role("combobox", name="Family").select_option("all")
    page.get_by_label("Search systems").fill("minilm")
    assert systems(page) == [name for name in order if "minilm" in name]


def test_a_cell_opens_with_all_that_is_known_of_it(show, tmp_path):
    record = pages.record(tmp_path / "index.json", "python -m beirgrid index dense --vectors 'a b.npy'")
    grid = pages.grid(3, 2, records=(record,))
    tables = pages.tables(grid)
    row = tables.verdicts[tables.verdicts["published"].notna()].iloc[0]
    page = show(grid, tables)
    page.get_by_role("combobox", name="Metric", exact=True).select_option(row["metric"])
    cell(page, row["system"], row["dataset"]).click()
    dialog = page.get_by_role("dialog")
    text = dialog.inner_text()
    assert f"{row['system']} on {row['dataset']}, {written(row['metric'])}" in text
    assert f"{row['value']:.6f}" in text
    assert f"[{row['value'] - 0.02:.4f}, {row['value'] + 0.02:.4f}]" in text
    assert "BEIR paper, Table 2" in text
    assert f"{row['published']:g}" in text
    assert "bfloat16" in text
    dialog.locator("summary").first.click()
    assert "90 MB of memory, finished 2026-11-21" in dialog.inner_text()
    dialog.get_by_role("button", name="Copy the command").first.click()
    assert page.evaluate("navigator.clipboard.readText()") == "python -m beirgrid index dense --vectors 'a b.npy'"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_deviations_over_seeds_stand_in_their_cells(show):
    grid = pages.grid(3, 2)
    members = ("bm25-flat.seed1", "bm25-flat.seed2")
    row = {"system": "bm25-flat", "dataset": "nfcorpus", "seeds": 2, "of": 2}
    levels = {"ndcg@10": (0.5, 0.01), "recall@100": (0.7, 0.02), "hole@10": (0.1, 0.03)}
    rows = [{**row, "metric": name, "mean": mean, "deviation": by} for name, (mean, by) in levels.items()]
    over = {"dataset": "", "mean_of": "nfcorpus, trec-covid", "mean": 0.65, "deviation": 0.0123}
    rows.append({**rows[1], **over})
    seeded = grid.model_copy(update={"seeds": {"bm25-flat": members}})
    page = show(seeded, pages.tables(grid)._replace(seeds=typed("seeds", pd.DataFrame(rows))))
    page.get_by_role("combobox", name="Metric", exact=True).select_option("recall@100")
    for column, deviation in (("nfcorpus", "0.0200"), ("all", "0.0123")):
        assert cell(page, "bm25-flat", column).locator("small").inner_text() == f"± {deviation}"
        cell(page, "bm25-flat", column).click()
        lines = page.get_by_role("dialog").locator("dl > *").all_inner_texts()
        assert lines[lines.index("deviation over seeds") + 1] == f"± {deviation}"
        page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Show").select_option("baseline")
    assert not page.locator(".metric.chosen small").first.is_visible()
    page.get_by_role("combobox", name="Show").select_option("value")
    assert page.locator(".metric.chosen small").first.is_visible()


def test_a_mean_has_the_name_of_its_column_in_its_dialog(show):
    grid = pages.grid(3, 2)
    tables = pages.tables(grid)
    page = show(grid, tables._replace(across=pd.concat([tables.across, tables.across.assign(over="zero-shot")])))
    cell(page, "bm25-flat", "zero-shot").click()
    assert page.get_by_role("dialog").locator("h2").inner_text() == "bm25-flat on mean of 2 (zero-shot), nDCG@10"


def test_captions_stay_texts(show, tmp_path):
    """They have names from other people."""
    pages.analyses(tmp_path, HOSTILE)
    page = show(pages.grid(3, 2))
    open_section(page, "Costs and analyses")
    page.wait_for_function("document.querySelector('figure img').naturalWidth === 9")
    assert page.locator("figure img").get_attribute("alt") == f"{HOSTILE}, by depth"
    assert page.locator("img").count() == 1
    assert texts(page.locator("#holes-table")) == [["2019", "bm25", "0.1235", "91607178"], ["2019", "dpr", "", ""]]


def test_a_cell_lists_its_queries_by_the_difference_to_another_system(show):
    """With counts of all queries, and as a file; texts stay texts."""
    grid = pages.grid(3, 2)
    queries = [HOSTILE, "q2", "q3", "q4"]
    values = {"bm25": [0.1, 0.5, 0.5, 0.25], "bm25-flat": [0.2, 0.5, 0.1, 0], "doct5query": [0.9, 0.5, 0.7, 0]}
    tables = pages.tables(grid)._replace(per_query=pages.per_query({"nfcorpus": values}, queries))
    rows = [[HOSTILE, "words", 2, "words", [1, 0, 3]], ["d2", "", None, "", [0, 1, 2]]]
    documents = {"nfcorpus": {"systems": ["bm25", "bm25-flat", "doct5query"], "queries": {HOSTILE: rows}}}
    page = show(grid, tables, documents=documents)
    cell(page, "bm25-flat", "nfcorpus").click()
    part = page.get_by_role("dialog").locator(".cell-list")
    told = "The largest losses first. Of 4 queries, 1 higher, 1 equal, 2 lower. Select a query for its documents."
    assert part.locator("p").inner_text() == told
    part.get_by_role("combobox").select_option("doct5query")
    assert part.locator("p").inner_text() == told.replace("1 higher, 1 equal", "0 higher, 2 equal")
    assert [row[:2] for row in texts(part)] == [[HOSTILE, "-0.7"], ["q3", "-0.6"], ["q4", "0"], ["q2", "0"]]
    name, lines = saved(page, part)
    assert (name, len(lines)) == ("bm25-flat-minus-doct5query-nfcorpus.csv", 5)
    part.get_by_role("button", name=HOSTILE).click()
    table = part.get_by_role("region", name="Documents of the query").locator("tr")
    assert [row.locator("th, td").all_inner_texts() for row in table.all()] == [
        ["document", "grade", "matching query words", "rank with bm25", "rank with bm25-flat", "rank with doct5query"],
        [f"{HOSTILE} words", "2", "words", "1", "–", "3"],
        ["d2", "not judged", "", "–", "1", "2"],
    ]


def test_a_single_system_lists_its_worst_queries_first(show):
    grid = pages.grid(1, 2)
    tables = pages.tables(grid)._replace(per_query=pages.per_query({"nfcorpus": {"bm25": [0.5, 0.1]}}, ["q1", "q2"]))
    documents = {"nfcorpus": {"systems": ["bm25"], "queries": {"q2": [["d", "", 1, "", [3]]]}}}
    page = show(grid, tables, documents=documents)
    cell(page, "bm25", "nfcorpus").click()
    part = page.get_by_role("dialog").locator(".cell-list")
    assert part.locator("p").inner_text() == "2 queries, the lowest values first. Select a query for its documents."
    assert not part.get_by_role("combobox").count()
    assert [row[:2] for row in texts(part)] == [["q2", "0.1"], ["q1", "0.5"]]
    part.get_by_role("button", name="q2").click()
    assert part.get_by_role("region", name="Documents of the query").locator("tbody td").all_inner_texts()[-1] == "3"


def test_cells_without_a_value_say_why(show, paper):
    page = show(paper, pages.tables(paper, STATES))
    found = values(page)
    for (system, dataset), (status, _) in STATES.items():
        assert found[system, dataset].replace("\n", " ") == status
    assert "1 pending, 1 failed, 1 not supplied" in page.locator("header").inner_text()
    assert "logs/retrieve/deepct.log: MemoryError" in page.locator("header").inner_text()
    assert found["deepct", "mean of 14"] == "incomplete"
    cell(page, "deepct", "fiqa").click()
    assert "logs/retrieve/deepct.log: MemoryError" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    cell(page, "deepct", "all").click()
    assert "no scores on fiqa" in page.get_by_role("dialog").inner_text()


def test_a_flaw_is_marked_and_told_in_its_cell(show):
    grid = pages.grid(3, 2)
    said = "1 of 300 queries has no documents and counts 0"
    page = show(grid, pages.tables(grid, {("bm25-flat", "nfcorpus"): ("done", said)}))
    marked = page.locator(".metric.chosen td[data-flaw]")
    assert marked.evaluate_all("cells => cells.map(c => c.dataset.marks.includes('§'))") == [True, True]  # a mean, too
    assert said in cell(page, "bm25-flat", "nfcorpus").get_attribute("title")
    cell(page, "bm25-flat", "nfcorpus").click()
    told = page.locator("#cell dl").inner_text()
    assert "flaw" in told
    assert said in told
    assert page.get_by_text(f"§ bm25-flat on nfcorpus: {said}.").count() == 1


def test_the_signs_of_a_cell_explain_themselves(show, paper):
    page = show(paper)
    shown = page.locator(".metric.chosen td[data-marks]")
    titles = shown.evaluate_all("cells => cells.map(c => [c.dataset.marks, c.querySelector('button').title])")
    known = {"°": "open against the best", "✓": "✓ reproduced", "≈": "≈ close", "✗": "✗ deviates"}
    assert set(known) <= set("".join(marks for marks, _ in titles))
    for marks, title in titles:
        assert all(known[sign] in title for sign in marks if sign in known), marks
        assert len(title.split("; ")) == len(marks)


def test_two_systems_are_compared_in_either_order(show, paper):
    page = show(paper)
    found = {system: scores(pages.tables(paper), "ndcg@10", "scidocs")[system] for system in ("ance", "dpr")}
    open_section(page, "Statistics")
    for first, second in (("ance", "dpr"), ("dpr", "ance")):
        page.get_by_role("combobox", name="System", exact=True).select_option(first)
        page.get_by_role("combobox", name="minus").select_option(second)
        row = page.locator("#pair-table tbody tr", has=page.locator("th", has_text=re.compile("^scidocs$")))
        texts = row.locator("td").all_text_contents()
        difference = found[first] - found[second]
        assert texts[:2] == [f"{found[first]:.4f}", f"{found[second]:.4f}"]
        assert texts[2:4] == [f"{difference:+.4f}", f"[{difference - 0.02:.4f}, {difference + 0.02:.4f}]"]
        assert texts[4:] == ["0.02", f"{max(found, key=found.get)} is better", f"{3 * difference:+.2f}"]
    assert "136 pairs" in page.locator("#pair-reason").inner_text()


def test_a_planned_comparison_is_shown_first_as_in_the_answer(show):
    grid = pages.grid(3, 2).model_copy(update={"compare": ("doct5query", "bm25")})
    tables = pages.tables(grid)
    page = show(grid, tables)
    open_section(page, "Statistics")
    row = comparisons.planned(grid, tables.pairs).iloc[0]
    of_pair = page.locator("#pair-table tbody tr", has=page.locator("th", has_text=re.compile(f"^{row['dataset']}$")))
    texts = of_pair.locator("td").all_text_contents()
    assert texts[2:4] == [f"{row['difference']:+.4f}", f"[{row['low']:.4f}, {row['high']:.4f}]"]
    assert texts[4:6] == [f"{row['p']:.2g}", comparisons.said(row)]
    assert page.locator("#pair-reason").inner_text().startswith("Planned, ")
    page.get_by_role("combobox", name="minus").select_option("bm25-flat")
    assert page.locator("#pair-table tbody tr td:nth-child(6)").all_text_contents() == ["0.02", "0.02"]


def test_a_table_is_saved_with_all_digits(show, paper):
    page = show(paper, pages.tables(paper, STATES))
    grid = page.locator("#grid")
    name, (header, *rows) = saved(page, grid)
    assert name == "ndcg-10.csv"
    assert header == ["system", "mean of 14", *paper.rows]
    page.get_by_role("combobox", name="Show").select_option("baseline")
    assert saved(page, grid)[0] == "ndcg-10-minus-bm25.csv"
    page.get_by_role("combobox", name="Show").select_option("value")
    (dpr,) = (dict(zip(header, row, strict=True)) for row in rows if row[0] == "dpr")
    assert float(dpr["scifact"]) == pytest.approx(scores(pages.tables(paper), "ndcg@10", "scifact")["dpr"], abs=1e-6)
    assert dpr["nq"] == ""
    grid.get_by_role("button", name="Copy").click()
    page.wait_for_selector(".dt-button-info")
    assert page.evaluate("navigator.clipboard.readText()").splitlines()[0].split("\t") == header


def test_the_grid_needs_no_script(show, paper):
    page = show(paper, java_script_enabled=False)
    for metric in paper.metrics:
        table = page.locator(f".metric[data-metric='{metric}'] table")
        assert table.is_visible()
        assert table.locator("tbody tr").count() == 17
    assert page.locator("#baseline-table tbody tr").count() == 16 * 14
    assert not page.get_by_role("combobox", name="Metric", exact=True).is_visible()


def test_hostile_texts_stay_texts(show, tmp_path):
    record = pages.record(tmp_path / "index.json", HOSTILE, stage=HOSTILE)
    grid = pages.grid(3, 2, records=(record,))
    name = f"{HOSTILE} 1"
    dataset = grid.datasets["nfcorpus"].model_copy(update={"task": HOSTILE, "source": HOSTILE, "licence": HOSTILE})
    hostile = GridSummary.model_validate(
        json.loads(
            json.dumps(grid.model_dump())
            .replace('"bm25-flat"', json.dumps(name))
            .replace('"trec-covid"', json.dumps(HOSTILE))
        )
    ).model_copy(update={"name": HOSTILE})
    hostile = hostile.model_copy(update={"datasets": {**hostile.datasets, "nfcorpus": dataset}})
    tables = pages.tables(hostile, {("bm25", HOSTILE): ("failed", HOSTILE)})
    for table, column in (("verdicts", "source"), ("verdicts", "note"), ("significance", "note"), ("across", "note")):
        getattr(tables, table)[column] = HOSTILE
    page = show(hostile, tables)
    assert page.locator("h1").inner_text().startswith(HOSTILE)
    assert HOSTILE in page.locator("header details").inner_text()
    assert name in systems(page)
    page.get_by_role("combobox", name="Metric", exact=True).select_option("recall@100")
    cell(page, name, HOSTILE).click()
    dialog = page.get_by_role("dialog")
    assert dialog.locator("h2").inner_text() == f"{name} on {HOSTILE}, R@100"
    dialog.locator("summary").first.click()
    assert dialog.locator("pre").first.inner_text() == HOSTILE
    page.keyboard.press("Escape")
    open_section(page, "Statistics")
    assert HOSTILE in page.locator("#across-table").text_content()
    assert HOSTILE in page.locator("#verdicts-table").text_content()
    page.get_by_role("combobox", name="System", exact=True).select_option(name)
    page.get_by_role("combobox", name="minus").select_option("doct5query")
    assert page.locator("#pair-table tbody th").first.text_content() == HOSTILE
    page.get_by_text("Filter", exact=True).click()
    page.get_by_role("combobox", name="Task").select_option(HOSTILE)
    assert columns(page) == ["nfcorpus"]
    assert page.locator("img").count() == 0


# Colours do not depend on the width, nor the layout on the colours.
@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "light"), (1280, "dark"), (390, "light"), pytest.param(390, "dark", marks=pytest.mark.full)],
)
def test_axe_finds_nothing(show, width, scheme, tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is absent: make setup-dev").Axe()
    grid = pages.grid(6, 9, metrics=("ndcg@10",), records=(pages.record(tmp_path / "index.json"),))
    pages.analyses(tmp_path, "A title")
    page = show(grid, pages.tables(grid, STATES), color_scheme=scheme, viewport={"width": width, "height": 900})
    page.get_by_text("Filter", exact=True).click()
    for section in page.locator("main > section > details").all():
        section.locator("> summary").click()
        section.scroll_into_view_if_needed()
    for view in ("value", "baseline"):
        page.get_by_role("combobox", name="Show").select_option(view)
        found = axe.run(page)
        assert found.violations_count == 0, found.generate_report()
    cell(page, "deepct", "fiqa").click()
    found = axe.run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_keyboard_reaches_cells_and_closes_them(show, paper):
    page = show(paper)
    cell(page, "bm25", "trec-covid").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog").locator("h2").inner_text() == "bm25 on nfcorpus, nDCG@10"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == cell(page, "bm25", "nfcorpus").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_names_stay_in_sight(show, paper, width):
    """Names of systems stay while columns scroll, and those of datasets while rows do. No page scrolls sideways."""
    page = show(paper, viewport={"width": width, "height": 500})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    scroll = page.locator(".metric.chosen .scroll")
    scroll.evaluate("part => part.scrollTo(part.scrollWidth, part.scrollHeight)")
    place = scroll.bounding_box()
    row = scroll.get_by_role("rowheader", name="bm25+minilm-wsum").bounding_box()
    column = scroll.locator("th[data-key=scifact]").bounding_box()
    assert row["x"] == pytest.approx(place["x"], abs=2)
    assert column["y"] == pytest.approx(place["y"], abs=2)
    assert row["width"] <= 0.4 * width
    if width == 1280:
        assert scroll.evaluate("part => part.scrollWidth <= part.clientWidth")


@pytest.mark.parametrize(("size", "metrics"), [((17, 14), ("ndcg@10", "hole@10")), ((12, 30), ("ndcg@10",))])
def test_everything_is_on_the_printed_paper(show, size, metrics, tmp_path):
    """A print includes sections that are folded on the screen, and no column exceeds the paper."""
    pypdf = pytest.importorskip("pypdf", reason="pypdf is absent: make setup-dev")
    grid = pages.grid(*size, metrics=metrics, records=(pages.record(tmp_path / "index.json"),))
    tables = pages.tables(grid, STATES)
    of_seeds = {"system": "ance", "seeds": 2, "of": 2, "deviation": 0.0123}
    seeds = pd.DataFrame([{**of_seeds, "dataset": d, "metric": m} for d in grid.rows for m in grid.metrics])
    page = show(grid, tables._replace(seeds=typed("seeds", seeds)))
    paper = pypdf.PdfReader(io.BytesIO(page.pdf(prefer_css_page_size=True)))
    printed = "".join(sheet.extract_text() for sheet in paper.pages)
    text = re.sub(r"\s+", "", unicodedata.normalize("NFKC", printed))  # without ligatures
    for metric in grid.metrics:
        for dataset in grid.rows:
            for value in filter(math.isfinite, scores(tables, metric, dataset).values()):
                assert f"{value:.4f}" in text
    assert text.count("±0.0123") == len(seeds)
    paper_width = round(277 / 25.4 * 96)  # of A4 in landscape, without the margins
    page.set_viewport_size({"width": paper_width, "height": 800})
    for view in ("baseline", "value"):
        page.emulate_media(media="screen")
        page.get_by_role("combobox", name="Show").select_option(view)
        page.emulate_media(media="print")
        widths = page.locator("table").evaluate_all("tables => tables.map(table => table.scrollWidth)")
        assert max(widths) <= paper_width, view
    for name in (*grid.systems, *grid.rows):
        assert name in text
    assert "python-mbeirgridindexdense--outputx" not in text  # the steps are long, and in the records


def test_the_first_printed_page_sums_the_report_up(show):
    """The answer and its picture come first, then the chosen metric and details; the screen stays as it was."""
    pypdf = pytest.importorskip("pypdf", reason="pypdf is absent: make setup-dev")
    svg = b"<svg xmlns='http://www.w3.org/2000/svg' width='600' height='300'><rect width='600' height='300'/></svg>"
    page = show(
        pages.grid(7, 3),
        pictures=(Figure("a", "The first picture", {"svg": svg}), Figure("b", "The second", {"svg": svg})),
    )
    before = [part.get_attribute("data-metric") for part in page.locator("#grid .metric").all()]
    sheets = pypdf.PdfReader(io.BytesIO(page.pdf(prefer_css_page_size=True))).pages
    first, *others = (" ".join(unicodedata.normalize("NFKC", sheet.extract_text()).split()) for sheet in sheets)
    assert "7 systems × 3 datasets" in first
    assert "has the highest" in first
    assert "The first picture" in first
    assert "The second" not in first
    assert "The second" in "".join(others)
    for title in ("R@100 system", "hole@10: the lowest value is the best"):
        assert title in " ".join(others)
        assert title not in first
    assert [part.get_attribute("data-metric") for part in page.locator("#grid .metric").all()] == before


def test_five_systems_on_a_dataset_are_four_printed_pages_and_no_page_scrolls_sideways(show, tmp_path, monkeypatch):
    """With all sections, of which no title stands alone at the end of a page."""
    pypdf = pytest.importorskip("pypdf", reason="pypdf is absent: make setup-dev")
    grid = pages.grid(5, 1, ("ndcg@10", "recall@100", "recall@1000"), (pages.record(tmp_path / "index.json"),))
    grid = grid.model_copy(update={"compare": grid.systems[:3], "baseline": "bm25"})
    tables = pages.tables(grid)
    with drawing.style():
        drawn = [
            Figure(name, "Nine words stand below each picture of a page.", {"svg": drawing.content(figure, "svg")})
            for name, figure in (
                ("planned", drawing.planned(comparisons.planned(grid, tables.pairs), "ndcg@10").figure),
                ("size", drawing.new_figure(drawing.WIDTH / 1.4, 3.4)),
                ("by_query", drawing.new_figure(drawing.WIDTH / 1.6, 1.9)),
            )
        ]
    monkeypatch.chdir(tmp_path)
    pages.analyses(tmp_path, "A title")
    page = show(grid, tables, pictures=tuple(drawn))
    sheets = pypdf.PdfReader(io.BytesIO(page.pdf(prefer_css_page_size=True))).pages
    assert len(sheets) == 4
    printed = [sheet.extract_text().split("\n") for sheet in sheets]
    titles = {"Pictures", "Statistics", "Systems", "Verdicts", "Datasets", "Costs and analyses"}
    assert not titles & {lines[-1].strip() for lines in printed}
    assert "Two systems" not in str(printed)  # nobody chooses them on paper
    page.set_viewport_size({"width": 390, "height": 844})
    for section in page.locator("main > section > details").all():
        section.locator("> summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_systems_are_ranked_with_the_facts_of_their_models(show):
    grid = pages.grid(3, 4)
    facts = {"model": "a/b", "parameters": 22.7, "dimensions": 384, "max_length": 256, "licence": "MIT", "source": "a"}
    grid = grid.model_copy(update={"models": {"bm25-flat": ModelFacts(**facts)}})
    tables = pages.tables(grid)
    page = show(grid, tables)
    open_section(page, "Systems")
    columns = page.locator("#systems-table thead th").all_inner_texts()
    rows = texts(page.locator("#systems-table"))
    of = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    own = tables.scores.query("metric == 'ndcg@10'")
    values = own.pivot(index="system", columns="dataset", values="value")
    means = values.mean(axis=1).sort_values(ascending=False)
    assert [row[0] for row in rows] == list(means.index)
    assert [row["rank"] for row in of.values()] == ["1", "2", "3"]
    assert {name: row["mean"] for name, row in of.items()} == {name: f"{mean:.4f}" for name, mean in means.items()}
    told = of["bm25-flat"]
    shown = [told[name] for name in ("model", "parameters (M)", "dimensions", "length", "licence", "source")]
    assert shown == ["a/b", "22.7", "384", "256", "MIT", "a"]
    assert float(told["QA (2)"]) == pytest.approx(values.loc["bm25-flat", ["trec-covid", "hotpotqa"]].mean(), abs=1e-4)
    assert "dimensions" not in show(pages.grid(3, 4)).locator("#systems-table thead").inner_text()


@pytest.mark.full  # it measures time
def test_large_grids_open_within_a_second(show):
    """Of the processor's time, and at best of three: work beside it makes a processor slower."""
    page = show(pages.grid(40, 30, ALL_METRICS))
    seconds = []
    for _ in range(3):
        fresh = page.context.new_page()
        measure = page.context.new_cdp_session(fresh)
        measure.send("Performance.enable", {"timeDomain": "threadTicks"})
        fresh.goto(page.url)
        fresh.wait_for_selector("html[data-ready]")
        found = {metric["name"]: metric["value"] for metric in measure.send("Performance.getMetrics")["metrics"]}
        seconds.append(found["TaskDuration"])
        fresh.close()
    assert 0.05 < min(seconds) < 1
