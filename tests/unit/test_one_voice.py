"""A planned difference has one interval and one verdict in all outputs of a grid; messages count in the singular."""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import finished
import numpy as np
import pages
import pandas as pd
import pytest
from helpers import ROOT, main

from beirgrid.core import files, paths
from beirgrid.page.answer import answer
from beirgrid.page.render import render
from beirgrid.page.sections import against_baseline, metric_tables
from beirgrid.results import cells, comparisons, table_files
from beirgrid.results.answers import Answers
from beirgrid.results.summary import GridSummary
from beirgrid.stages.aggregate import work as aggregate
from beirgrid.tools import reporting

MINE = "mine"
OTHERS = ("bm25", "near", "good")
# Mean and spread of each system. In the noise of all, the Tukey HSD test finds no difference to ``near``, and one to
# ``bm25``; the planned tests find the opposite.
LEVELS = {MINE: (0.52, 0.01), "bm25": (0.4, 0.36), "near": (0.508, 0.01), "good": (0.5, 0.05)}
LEVELS |= {f"other{number}": (0.45 + number / 100, 0.12) for number in range(4)}
# Systems whose queries change. The grid plans the first difference, too.
STAGES = {MINE: "near", "other1": "bm25", "other2": "other3"}


class Site(NamedTuple):
    """A finished grid in the working folder ``folder``."""

    folder: Path
    grid: GridSummary
    answers: Answers


@pytest.fixture(scope="module", params=[1, 5])
def site(request, tmp_path_factory):
    rng = np.random.default_rng(7)
    queries = [f"q{number}" for number in range(50)]
    with finished.at(tmp_path_factory.mktemp("voice") / "work"):
        made = []
        for place, dataset in enumerate(pages.DATASETS[: request.param]):
            for system, (mean, spread) in LEVELS.items():
                noise = spread * rng.choice([-1, 1], 50)
                values = pd.DataFrame(
                    {"ndcg@10": mean + (system == MINE) * place / 900 + noise - noise.mean()}, index=queries
                )
                made.append(finished.write_cell(system, dataset, values))
        grid = finished.summary(made, name="voice", compare=(MINE, *OTHERS), baseline="bm25", first_stages=STAGES)
        answers = aggregate.compute(grid, cells.find(grid), ())
        files.write_text(Path(paths.GRID_SUMMARY.format(grid="voice")), grid.model_dump_json())
        table_files.write(answers, grid, Path(paths.GRID_FOLDER.format(grid="voice")) / "tables")
        return Site(Path.cwd(), grid, answers)


def ends(low: float, high: float) -> str:
    return f"[{low:.4f}, {high:.4f}]"


def of_answer(site: Site) -> list[tuple]:
    """Return (other, dataset, interval, verdict) of ``mine`` minus the other, as answer and terminal have them."""
    said = answer(site.grid, site.answers)
    found = []
    if said.differences:
        (_, *titles), *rows = said.differences
        for dataset, *texts in rows:
            for title, text in zip(titles, texts, strict=True):
                interval, verdict = re.search(r"(\[.*\]) (\w+)", text).groups()
                found.append((title.removeprefix("mine minus "), dataset, interval, verdict))
    for sentence in said.sentences:
        if named := re.match(r"mine minus (\w+) on ([\w-]+): \S+ (\[.*?\]), (.*)\.$", sentence):
            found.append((*named.groups()[:3], in_a_word(named[4])))
    shown = "\n".join(reporting.outline(site.grid, site.answers, Path("index.html"), 200))
    assert all(re.sub(r"\s+", " ", " ".join(texts)) in re.sub(r" +", " ", shown) for texts in said.differences)
    return found


def in_a_word(said: str) -> str:
    """Return better, worse, equivalent or open of ``mine``."""
    if not said.endswith("better"):
        return said.split(" ")[0]
    return "better" if said.startswith(("mine ", "A ")) else "worse"


def of_compare(site: Site) -> list[tuple]:
    found = []
    for other in OTHERS:
        output = site.folder / f"{other}.csv"
        main(["compare", other, MINE, "--directory", str(site.folder), "--output", str(output)])
        for row in pd.read_csv(output).itertuples():
            verdict = {"A is better": "worse", "B is better": "better"}.get(row.verdict, row.verdict)
            found.append((other, row.dataset, ends(row.low, row.high), verdict))
    return found


def of_page(site: Site) -> list[tuple]:
    data = pages.packed(render(site.grid, site.answers), "data")
    found = []
    for _, system, other, dataset, _, low, high, _, said, planned, _ in zip(*data["pairs"], strict=True):
        low, high = (low, high) if system == MINE else (-high, -low)
        if planned and MINE in (system, other):
            found.append((other if system == MINE else system, dataset, ends(low, high), in_a_word(said)))
    means = [{system, other} for _, system, other, *_ in zip(*data["zeroShot"], strict=True)]
    assert not any({MINE, other} in means for other in OTHERS)
    table = against_baseline(site.grid, site.answers)
    for row in (dict(zip(table.columns, texts, strict=True)) for texts in table.rows["ndcg@10"]):
        if row["system"] == MINE:
            found.append(("bm25", row["dataset"], row["interval of the difference"], in_a_word(row["verdict"])))
    return found


def of_letters(site: Site, capsys) -> list[tuple]:
    """Return (other, dataset, whether a superscript tells ``mine`` and the other apart) of the table for a paper."""
    capsys.readouterr()
    assert main(["export", "table", "--directory", str(site.folder)]) == 0
    text = capsys.readouterr().out
    _, *datasets = re.search(r"\\toprule\n(.*) \\\\", text)[1].split(" & ")
    rows = {}
    for name, letter, scores in re.findall(r"^(\w+) \((\w)\) & (.*) \\\\$", text, re.MULTILINE):
        rows[name] = (letter, [re.search(r"\^\{(\w*)|$", score)[1] or "" for score in scores.split(" & ")])
    own, wins = rows[MINE]
    return [
        (other, dataset.split(" (")[0], letter in wins[place] or own in of_other[place])
        for other, (letter, of_other) in rows.items()
        for place, dataset in enumerate(datasets)
        if other in OTHERS and " (" in dataset
    ]


def of_signs(site: Site) -> list[tuple]:
    """Return (other, dataset, whether they are told apart) by ° and * on the page, † and the group in the files."""
    table = metric_tables(site.grid, site.answers)[0]
    folder = site.folder / "results/grids/voice/tables"
    groups = pd.read_csv(folder / "ndcg@10.csv", index_col=0)[table_files.BEST_COLUMN]
    texts = pd.read_csv(folder / "ndcg@10.md", sep="|", skipinitialspace=True, nrows=len(site.grid.rows) + 1)
    texts = texts.rename(columns=str.strip).set_index("nDCG@10").rename(str.strip)
    best = site.answers.significance.groupby("dataset")["best"].first()
    found = []
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if column.names:
                continue
            if row.system == MINE:
                found.append(("bm25", column.key, cell.to_baseline.endswith("*")))
            elif best[column.key] == MINE:
                alike = row.system in groups[column.key].split(", ")
                assert ("†" in texts.loc[column.key, row.system], "°" in cell.marks) == (alike, alike)
                found.append((row.system, column.key, not alike))
    return [told for told in found if told[0] in OTHERS]


def test_all_outputs_say_the_same_of_a_planned_difference(site, capsys):
    known = defaultdict(set)
    for other, dataset, interval, verdict in [*of_answer(site), *of_compare(site), *of_page(site)]:
        known[other, dataset].add((interval, verdict))
    for pair, said in known.items():
        assert len(said) == 1, (pair, said)
    assert {other for other, _ in known} == set(OTHERS)
    signs = of_signs(site)
    assert {other for other, *_ in signs} == set(OTHERS)
    for other, dataset, differs in [*of_letters(site, capsys), *signs]:
        ((_, verdict),) = known[other, dataset]
        assert differs == (verdict in ("better", "worse")), (other, dataset, verdict)


def test_all_outputs_say_the_same_of_a_gain_over_a_first_stage(site):
    """The table of gains, the data of all pairs, and ``compare``; a planned difference is not among them."""
    gains = comparisons.gains(site.grid, site.answers.pairs)
    assert {*zip(gains["system"], gains["other"], strict=True)} == {*list(STAGES.items())[1:]}
    data = pages.packed(render(site.grid, site.answers), "data")
    known = {(row[1], row[2], row[3]): row for row in zip(*data["pairs"], strict=True)}
    for gain in gains.itertuples():
        output = site.folder / "gain.csv"
        main(["compare", gain.other, gain.system, "--directory", str(site.folder), "--output", str(output)])
        compared = pd.read_csv(output).set_index("dataset").loc[gain.dataset]
        assert ends(compared["low"], compared["high"]) == ends(gain.low, gain.high)
        assert compared["verdict"].endswith("better") == (gain.verdict == comparisons.BETTER)
        _, _, _, _, _, low, high, _, said, planned, _ = (
            known.get((gain.system, gain.other, gain.dataset)) or known[gain.other, gain.system, gain.dataset]
        )
        assert ends(low, high) in (ends(gain.low, gain.high), ends(-gain.high, -gain.low))
        assert (said, planned) == (comparisons.said(gain), True)


def test_the_tukey_test_alone_would_say_otherwise(site):
    """The grids have planned pairs on which the tests differ, or the test above could not fail."""
    table = comparisons.verdicts(site.grid, site.answers.pairs)
    planned = table[table["planned"]]
    tukey = planned["p_tukey"] <= 0.05
    better = planned["verdict"] == comparisons.BETTER
    assert (better & ~tukey).any()
    assert (tukey & ~better).any()


def test_published_systems_stand_in_the_order_of_the_mean_that_the_sentence_names(capsys, tmp_path):
    assert main(["demo", "--published", "--directory", str(tmp_path)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert "mean of 10 datasets (zero-shot)" in head
    rows = [line.split() for line in lines[: lines.index("")]]
    means = [float(mean.strip("§")) for _, mean in rows if mean != "?"]
    assert means == sorted(means, reverse=True)
    assert {name for name, mean in rows if mean == "?"} == {"bge-base-en-v1.5", "gte"}
    assert len(rows) == 17
    assert f"average over 10 datasets that no compared system was trained on: {means[0]:.4f}" in " ".join(lines)
    page = next(tmp_path.rglob("index.html")).read_text()
    (table,) = re.findall(r'<table class="grid.*?</table>', page, re.DOTALL)[:1]
    assert re.search(r'data-key="([\w-]+)"', table)[1] == "zero-shot"
    ranks = [int(rank) for rank in re.findall(r'data-rank="(\d+)"', table)]
    assert ranks == list(range(1, 16))
    assert re.findall(r'data-rank="\d*"><?[^<]*', table)[1].endswith(">bge-")


def test_a_system_that_lacks_a_dataset_has_its_place_and_a_mark():
    grid = pages.grid(3, 2)
    scores = {("bm25", "trec-covid"): 0.4, ("bm25", "nfcorpus"): 0.3, ("bm25-flat", "trec-covid"): 0.5}
    scores |= {("doct5query", "trec-covid"): 0.3, ("doct5query", "nfcorpus"): 0.3}
    tables = pages.tables(grid, {("bm25-flat", "nfcorpus"): ("failed", "why")})
    cells = [scores.get((row.system, row.dataset), np.nan) for row in tables.scores.itertuples()]
    tables = tables._replace(scores=tables.scores.assign(value=cells))
    assert table_files.ordered(grid, tables).systems == ("bm25-flat", "bm25", "doct5query")
    assert table_files.wide(tables, grid, "ndcg@10")["text"].iloc[-1]["bm25-flat"] == "incomplete"


# Nouns of messages that one thing may have.
_COUNTED = re.compile(r" (queries|warnings|cells|rows|pairs|jobs|systems|judgements)\b")
# Counts that are never one where they are told.
_NEVER_ONE = {
    "MOST_ROWS",
    "_AT_ONCE",
    "needed",
    "queries",
    "number",
    "len(rows)",
    "len(scores)",
    "len(done) / elapsed * 60",
}


def test_a_message_counts_one_thing_in_the_singular():
    """A number before a noun in the plural is made by ``quantity``, which writes 1 query and 2 queries."""
    wrong = []
    for path in sorted((ROOT / "workflow/beirgrid").rglob("*.py")):
        for text in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = text.values if isinstance(text, ast.JoinedStr) else []
            for part, after in itertools.pairwise(parts):
                if isinstance(part, ast.FormattedValue) and _COUNTED.match(str(getattr(after, "value", ""))):
                    wrong.append(f"{path.relative_to(ROOT)}:{part.lineno} {ast.unparse(part.value)}")
    assert [place for place in wrong if place.split(" ", 1)[1] not in _NEVER_ONE] == []
