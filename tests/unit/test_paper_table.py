"""Tables for papers: rows, superscripts, caption, in LaTeX and Markdown."""

from __future__ import annotations

import re

import pages
import pandas as pd
import pytest

from beirgrid.__main__ import main
from beirgrid.core import files
from beirgrid.exchange import paper_table
from beirgrid.results import answers, table_files

METRIC = "ndcg@10"


@pytest.fixture
def grid():
    return pages.grid(4, 2)


@pytest.fixture
def made(grid):
    """Tables in which a pair of systems on trec-covid is not significant; all others are."""
    made = pages.tables(grid)
    pairs = made.pairs
    alike = (pairs[["system", "other"]] == ["bm25", "deepct"]).all(axis=1) & (pairs["dataset"] == "trec-covid")
    pairs.loc[alike, "p_tukey"] = 0.2
    return made._replace(pairs=pairs)


def cells(table: paper_table.Paper) -> pd.DataFrame:
    return pd.DataFrame([row for _, row in table.rows], [name for name, _ in table.rows], table.columns)


def test_superscripts_name_the_systems_that_a_system_is_significantly_better_than(grid, made):
    found = cells(paper_table.paper_table(grid, made, METRIC))
    letters = {system: f"{system} ({letter})" for system, letter in zip(grid.systems, "abcd", strict=True)}
    assert list(found.index) == list(letters.values())
    values = made.scores[made.scores["metric"] == METRIC].pivot(index="system", columns="dataset", values="value")
    for dataset in grid.rows:
        for system in grid.systems:
            lower = {other for other in grid.systems if values.loc[other, dataset] < values.loc[system, dataset]}
            if dataset == "trec-covid" and system in ("bm25", "deepct"):
                lower -= {"bm25", "deepct"}
            cell = found.loc[letters[system], f"{dataset} (300)"]
            assert cell.text == f"{values.loc[system, dataset]:.3f}"
            assert {*cell.letters} == {letters[other][-2] for other in lower}
            higher = (values[dataset] > values.loc[system, dataset]).sum()
            assert cell.place == {0: 1, 1: 2}.get(higher, 0)


def test_the_lowest_is_better_of_holes(grid, made):
    found = cells(paper_table.paper_table(grid, made, "hole@10"))["nfcorpus (300)"]
    texts = [cell.text for cell in found]
    assert [cell.place == 1 for cell in found] == [text == min(texts) for text in texts]
    assert len(found.iloc[texts.index(min(texts))].letters) == 3


def test_systems_are_sorted_by_their_means_on_request(grid, made):
    found = cells(paper_table.paper_table(grid, made, METRIC, by_mean=True))
    means = [cell.text for cell in found[found.columns[-1]]]
    assert found.columns[-1].startswith("mean of")
    assert means == sorted(means, reverse=True)
    assert [name[-2] for name in found.index] == list("abcd")


def test_latex_has_caption_label_rules_and_the_same_numbers_of_columns(grid, made):
    lines = list(paper_table.latex(paper_table.paper_table(grid, made, METRIC), intervals=True))
    text = "\n".join(lines)
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\label{tab:grid-ndcg-10}" in text
    caption = text.partition(r"\caption{")[2].partition("}\n")[0]
    for said in ("nDCG{@}10 of 4 systems", "number of queries", "randomised Tukey HSD", r"$\leq$ 0.05", r"95 \%"):
        assert said in caption
    rows = [line for line in lines if line.endswith(r" \\")]
    assert {line.count(" & ") for line in rows} == {3}
    assert re.search(r"\\textbf\{0\.\d{3}\}\$\^\{[a-d]+\}\$ \{\\scriptsize \[0\.\d{3}, [01]\.\d{3}\]\}", text)
    assert re.search(r"& \\underline\{0\.\d{3}\}", text)
    assert text.isascii()


def test_cells_without_a_score_and_many_systems_have_no_superscripts(made):
    grid = pages.grid(30, 1)
    some = pages.tables(grid, {("bm25", "trec-covid"): ("failed", "why")})
    table = paper_table.paper_table(grid, some, METRIC)
    assert table.rows[0] == ("bm25", [paper_table.PaperCell("–")])
    assert not any(cell.letters for _, row in table.rows for cell in row)
    assert "Superscripts" not in table.caption


def test_the_command_prints_a_table_of_the_only_grid(grid, made, tmp_path, capsys):
    folder = tmp_path / "results/grids/grid"
    files.write_text(folder / "grid.json", grid.model_dump_json())
    table_files.write(made, grid, folder / "tables")
    options = ["export", "table", "--directory", str(tmp_path), "--format", "markdown", "--intervals"]
    assert main(options) == 0
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert head == "| system | trec-covid (300) | nfcorpus (300) | mean of trec-covid, nfcorpus |"
    assert rule == "| --- | ---: | ---: | ---: |"
    assert rows[0].startswith("| bm25 (a) | ")
    assert re.search(r"\*\*0\.\d{3}\*\*<sup>[a-d]+</sup> \[0", "\n".join(rows))
    assert "Superscripts" in rows[-1]
    assert main([*options, "--metric", "ndcg@1"]) == 1
    assert "has no metric 'ndcg@1'" in capsys.readouterr().err
    assert answers.read_answers(folder / "tables").pairs.equals(made.pairs)
