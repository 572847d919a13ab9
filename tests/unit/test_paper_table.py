"""Tables for papers: rows, superscripts, caption, in LaTeX."""

from __future__ import annotations

import re

import pages
import pandas as pd
import pytest

from beirgrid.__main__ import main
from beirgrid.core import files
from beirgrid.results import answer_files, table_files
from beirgrid.tools import export

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


def cells(grid, made, metric: str = METRIC) -> pd.DataFrame:
    """Return the cells of the printed table."""
    lines = export.latex(grid, made, metric).splitlines()
    head, *rows = (line.removesuffix(r" \\").split(" & ") for line in lines if line.endswith(r" \\"))
    return pd.DataFrame(rows, columns=head).set_index("system")


def test_superscripts_name_the_systems_that_a_system_is_significantly_better_than(grid, made):
    found = cells(grid, made)
    letters = {name.partition(" ")[0]: name[-2] for name in found.index}
    assert {*letters} == {*grid.systems}
    assert "".join(letters.values()) == "abcd"
    values = made.scores[made.scores["metric"] == METRIC].pivot(index="system", columns="dataset", values="value")
    for dataset in grid.rows:
        for system in grid.systems:
            lower = {other for other in grid.systems if values.loc[other, dataset] < values.loc[system, dataset]}
            if dataset == "trec-covid" and system in ("bm25", "deepct"):
                lower -= {"bm25", "deepct"}
            than = "".join(sorted(letters[other] for other in lower))
            score, higher = values.loc[system, dataset], (values[dataset] > values.loc[system, dataset]).sum()
            shape = {0: r"\textbf{%.3f}", 1: r"\underline{%.3f}"}.get(higher, "%.3f") % score
            shown = found.loc[f"{system} ({letters[system]})", f"{dataset} (300)"]
            assert shown == shape + (f"$^{{{than}}}$" if than else "")


def test_the_lowest_is_better_of_holes(grid, made):
    found = list(cells(grid, made, "hole@10")["nfcorpus (300)"])
    numbers = [re.search(r"0\.\d{3}", cell)[0] for cell in found]
    assert [cell.startswith(r"\textbf") for cell in found] == [number == min(numbers) for number in numbers]
    assert re.search(r"\\textbf\{0\.\d{3}\}\$\^\{[a-d]{3}\}\$", " ".join(found))


def test_systems_stand_in_the_order_of_the_tables(grid, made):
    assert [name[:-4] for name in cells(grid, made).index] == list(table_files.wide(made, grid, METRIC)["value"])


def test_latex_has_caption_label_rules_and_the_same_numbers_of_columns(grid, made):
    text = export.latex(grid, made, METRIC)
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\label{tab:grid-ndcg-10}" in text
    caption = text.partition(r"\caption{")[2].partition("}\n")[0]
    for said in ("nDCG{@}10 of 4 systems", "number of queries", "randomised Tukey HSD", "at 0.05"):
        assert said in caption
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert {line.count(" & ") for line in rows} == {3}
    assert text.isascii()


def test_cells_without_a_score_and_many_systems_have_no_superscripts(made):
    grid = pages.grid(30, 1)
    some = pages.tables(grid, {("bm25", "trec-covid"): ("failed", "why")})
    assert cells(grid, some).loc["bm25"].to_list() == ["--"]
    text = export.latex(grid, some, METRIC)
    assert "$^{" not in text
    assert "Superscripts" not in text


def test_the_command_prints_a_table_of_the_only_grid(grid, made, tmp_path, capsys):
    folder = tmp_path / "results/grids/grid"
    files.write_text(folder / "grid.json", grid.model_dump_json())
    table_files.write(made, grid, folder / "tables")
    options = ["export", "table", "--directory", str(tmp_path)]
    assert main(options) == 0
    assert capsys.readouterr().out == export.latex(grid, made, METRIC)
    assert main([*options, "--metric", "ndcg@1"]) == 1
    assert "has no metric 'ndcg@1'" in capsys.readouterr().err
    assert answer_files.read_answers(folder / "tables").pairs.equals(made.pairs)
