"""The commands search and show on a small folder. tests/workflow searches the indexes of a real grid."""

from __future__ import annotations

import re
from pathlib import Path

import finished
import pytest

from beirgrid.__main__ import main
from beirgrid.analysis import dataset_scores, tables
from beirgrid.core import paths
from beirgrid.results import scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with two systems on one dataset, of which the second finds the relevant documents of three queries."""
    place = tmp_path_factory.mktemp("served") / "work"
    with finished.at(place):
        finished.collection(Path.cwd(), "notes")
        finished.searched("first", "notes", finished.rankings(1), "float32")
        finished.searched("second", "notes", finished.rankings(2, better=3), "float32")
    return place


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch) -> None:
    """Commands change the working directory; this one comes back."""
    monkeypatch.chdir(folder)


def test_a_cell_shows_its_scores_and_its_extreme_queries(folder, capsys):
    assert main(["show", "second", "notes", "--directory", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "second on notes, 12 queries" in shown
    values = scores.read_per_query(folder / paths.PER_QUERY.format(system="second", dataset="notes"), ["ndcg@10"])
    of = tables.intervals(dataset_scores.stack("notes", {"second": values})).iloc[0]
    assert re.search(rf"nDCG@10 +{of['mean']:.4f} +{of['low']:.4f} +{of['high']:.4f}", shown)  # as in the tables
    assert "q0      1.0000  words of q0" in shown


def test_the_queries_that_lose_most_against_another_system_come_first(folder, capsys):
    """The second system finds the relevant documents of the first three queries, so it wins there alone."""
    assert main(["show", "first", "notes", "--against", "second", "--directory", str(folder)]) == 0
    shown = capsys.readouterr().out
    places = (folder / paths.PER_QUERY.format(system=system, dataset="notes") for system in ("first", "second"))
    first, second = (scores.read_per_query(place, ["ndcg@10"])["ndcg@10"] for place in places)
    difference = (first - second).sort_values(kind="stable")
    assert f"first minus second on notes, nDCG@10: {difference.mean():+.4f}" in shown
    worse = int((difference < 0).sum())
    assert worse >= 3
    assert f"queries: {int((difference > 0).sum())} better, {worse} worse, " in shown
    lost = re.findall(r"^(q\d+) +(-\d\.\d{4})  words of", shown, re.MULTILINE)
    assert lost == [(query, f"{value:+.4f}") for query, value in difference[: min(5, worse)].items()]
    assert "Won most" not in shown or (difference > 0).any()


def test_a_query_shows_grades_and_ranks_in_all_systems(folder, capsys):
    assert main(["show", "second", "notes", "q1", "--depth", "2", "--directory", str(folder)]) == 0
    shown = capsys.readouterr().out.splitlines()
    first = finished.rankings(1)["q1"]
    rows = {line.split()[3]: line.split()[:3] for line in shown if "text of" in line}
    assert shown[0] == "query q1: words of q1"
    # The two best documents, and the relevant one that is not among them.
    assert rows == {f"d{i}": [f"{i + 1}", f"{first.index(f'd{i}') + 1}", f"{3 - i}"] for i in range(3)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "../runs/first", "notes"], "has no scores on 'notes'; there are scores with first, second, notes"),
        (["show", "first", "note"], "'first' has no scores on 'note'; did you mean 'notes'?"),
        (["show", "first", "notes", "q99"], "'notes' has no judged query 'q99'; did you mean 'q9'?"),
        (["show", "first", "notes", "--metric", "mrr@10"], "has no metric 'mrr@10' (it has nDCG@10, R@5)"),
        (["show", "first", "notes", "--against", "other"], "'other' has no scores on 'notes'; there are scores with"),
        (["show", "first", "notes", "q1", "--against", "second"], "--against lists queries: leave out the query"),
        (["search", "first", "notes", "x"], "records a job of another version of beirgrid"),
        (["search", "frist", "notes", "x"], "'frist' has no runs on 'notes'; did you mean 'first'?"),
        (["search", "other", "notes", "x"], "'other' has no runs on 'notes'; there are runs with first, second, notes"),
    ],
)
def test_what_cannot_be_shown_is_said(folder, capsys, words, message):
    assert main([*words, "--directory", str(folder)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("link", ["notes.run.gz", "nowhere"])
def test_a_query_of_a_run_that_is_gone_is_said(folder, capsys, link):
    run = folder / paths.RUN.format(system="second", dataset="notes")
    kept = run.rename(run.with_suffix(".kept"))
    run.symlink_to(link)
    assert main(["show", "second", "notes", "q1", "--directory", str(folder)]) == 1
    assert "notes.run.gz is missing: run the grid again" in capsys.readouterr().err
    assert main(["show", "first", "notes", "q1", "--directory", str(folder)]) == 0
    kept.replace(run)
