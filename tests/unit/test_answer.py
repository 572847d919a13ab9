"""The sentences at the top of the report and at the end of a run, on small grids, with each number in its table."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from beirgrid.page.answer import answer, gains
from beirgrid.page.render import render
from beirgrid.results import comparisons, table_files
from beirgrid.results.answers import both_ways, typed
from beirgrid.results.cells import CellState
from beirgrid.results.summary import DatasetSummary, GridSummary
from beirgrid.stages.aggregate import work as aggregate
from beirgrid.tools.reporting import _differences, outline

Levels = dict[str, dict[str, float]]
pytestmark = pytest.mark.usefixtures("few_permutations")


def made(levels: Levels, queries: int = 40, metric: str = "ndcg@10", states: dict | None = None, **summary):
    """Return a grid and its tables: dataset → system → mean of its queries; ``states`` are cells without a score."""
    states, rng, cells = states or {}, np.random.default_rng(1), {}
    for name, means in levels.items():
        shared = rng.normal(0, 0.1, queries)
        for system, mean in means.items():
            if (system, name) in states:
                cells[system, name] = CellState(states[system, name], "")
                continue
            noise = shared + rng.normal(0, 0.03, queries)
            cells[system, name] = CellState("done", "", pd.DataFrame({metric: mean + noise - noise.mean()}))
    systems = tuple(dict.fromkeys(system for system, _ in cells))
    grid = GridSummary(
        systems=systems,
        rows=tuple(levels),
        datasets={name: DatasetSummary(corpus=name) for name in levels},
        metrics=(metric,),
        baseline="bm25" if "bm25" in systems else "",
        **summary,
    )
    return grid, aggregate.compute(grid, cells, ())


def of(table: pd.DataFrame, **where: str) -> pd.Series:
    """Return the single row with these values."""
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


TUKEY = "randomised Tukey HSD test, 0.05"


def needed(pair: pd.Series, tests: int) -> str:
    """Return what the answer says of the queries that would decide, from statsmodels."""
    effect = abs(pair["difference"]) / (pair["standard_error"] * math.sqrt(pair["queries"]))
    queries = math.ceil(TTestPower().solve_power(effect, None, 0.05 / tests, 0.8))
    return f"({queries:,} queries would decide)"


def test_one_dataset_names_who_leads_what_is_open_and_the_difference_to_the_baseline():
    grid, found = made({"d": {"bm25": 0.3, "a": 0.6, "b": 0.599, "c": 0.4}})
    score = of(found.scores, system="a")
    assert answer(grid, found)[:3] == (
        [
            f"a has the highest nDCG@10 on d (40 queries): 0.6000 [{score['low']:.4f}, {score['high']:.4f}].",
            f"Open against b {needed(of(found.pairs, system='a', other='b'), 6)}.",
        ],
        [],
        [f"Unplanned comparisons: {TUKEY}."],
    )
    assert of(found.significance, system="b")["in_best_group"]
    assert not of(found.significance, system="c")["in_best_group"]


@pytest.mark.parametrize(
    ("means", "told"),
    [
        (
            {"bm25": 0.3, **{f"s{i}": 0.6 - i / 1e4 for i in range(7)}},
            r"Open against s1 \(.+ would decide\), s2 \(.+\), s3 \(.+\) and 3 more\.",
        ),
        (
            {"bm25": 0.3, "a": 0.6, "b": 0.5, "c": 0.4},
            r"It is better than b, c and bm25\.",
        ),
        (
            {"bm25": 0.3, "a": 0.301},
            r"Open against bm25 \(.+\)\.",
        ),
        ({"bm25": 0.6, "a": 0.599, "b": 0.3}, r"Open against a \(.+\)\."),
    ],
    ids=["three-are-named", "all-are-named", "the-baseline-is-alike", "the-baseline-leads"],
)
def test_open_comparisons_are_named_or_counted(means, told):
    said = answer(*made({"d": means}))
    assert re.fullmatch(told, said.sentences[1])
    assert said.more == [f"Unplanned comparisons: {TUKEY}."]


def test_the_corrected_p_decides_whether_a_system_is_better():
    grid, found = made({"d": {"bm25": 0.3, "a": 0.301}})
    for p, said in ((0.06, "Open against bm25 ("), (0.05, "It is better than bm25.")):
        assert answer(grid, found._replace(pairs=found.pairs.assign(p_tukey=p))).sentences[1].startswith(said)


def interval_of(pair: pd.Series, tests: int) -> str:
    """Return the difference of z with its interval as the answer has it, from scipy; in the table, z is the other."""
    low, high = scipy.stats.t.interval(
        1 - 0.05 / tests, pair["queries"] - 1, -pair["difference"], pair["standard_error"]
    )
    return f"{-pair['difference'] + 0:+.4f} [{low:.4f}, {high:.4f}]".replace("-0.0000 [", "+0.0000 [")


@pytest.mark.parametrize(("mine", "verdict"), [(0.6, "z is better"), (0.3, "bm25 is better")])
def test_a_planned_comparison_comes_first_and_nothing_else_is_said_of_it(mine, verdict):
    """One system of three leads; the question was about the other two."""
    grid, found = made({"d": {"bm25": 0.45, "z": mine, "best": 0.9}}, compare=("z", "bm25"))
    pair = of(found.pairs, system="bm25", other="z")
    said = answer(grid, found)
    assert said.sentences == [f"z minus bm25 on d: {interval_of(pair, 1)}, {verdict}."]
    assert said.more[0].startswith("best has the highest")
    assert not said.differences
    assert f"Planned: paired t test, p of z minus bm25 {pair['p_t']:.2g}." in said.more
    grid, found = made({"d": {"bm25": 0.45, "z": 0.46}}, compare=("z", "bm25"))
    assert [line.partition(" has ")[0] for line in answer(grid, found).more] == [
        "z",
        f"Planned: paired t test, p of z minus bm25 {of(found.pairs, system='bm25')['p_t']:.2g}.",
    ]


def test_a_planned_comparison_over_datasets_is_a_sentence_and_a_table():
    levels = {"x": {"bm25": 0.3, "z": 0.6}, "y": {"bm25": 0.4, "z": 0.402}, "w": {"bm25": 0.5, "z": 0.4}}
    grid, found = made(levels, compare=("z", "bm25"))
    x, y, w = (of(found.pairs, dataset=name) for name in levels)
    said = answer(grid, found)
    mean = f"{sum(level['z'] - level['bm25'] for level in levels.values()) / 3:+.4f}"
    verdicts = "better on 1, worse on 1, open on 1"
    assert said.sentences == [f"z minus bm25 on average over 3 datasets: {mean}; {verdicts}."]
    decide = re.sub(" queries would decide", "", needed(y, 3))
    assert said.differences == [
        ["", "z minus bm25"],
        ["x", f"{interval_of(x, 3)} better"],
        ["y", f"{interval_of(y, 3)} open {decide}"],
        ["w", f"{interval_of(w, 3)} worse"],
    ]
    assert said.more[0].startswith("z has the highest") or said.more[0].startswith("bm25 has the highest")
    assert "Planned: paired t test, Bonferroni's correction for 3 differences." in said.more
    assert "In brackets: queries that would decide." in said.more
    assert said.caveats == []
    page = html.unescape(render(grid, found))  # its table of pairs has the same verdicts
    assert f"{interval_of(y, 3)} open {decide}" in page


@pytest.mark.parametrize(("datasets", "others", "most"), [(3, 2, 12), (14, 3, 20)])
def test_an_answer_over_datasets_fits_a_screen(datasets, others, most):
    names = ["bm25", "second-system", "third-system"][:others]
    levels = {f"dataset-{n}": dict.fromkeys(names, 0.3 + n / 50) | {"mine": 0.35 + n / 50} for n in range(datasets)}
    grid, found = made(levels, compare=("mine", *names))
    lines = [*outline(grid, found, Path("page"), 120)]
    begin = next(number for number, line in enumerate(lines) if line.startswith("mine minus"))
    assert len(lines) - begin - 1 <= most  # the last line names the report
    assert max(map(len, lines)) <= 120
    assert max(len(sentence.split()) for sentence in answer(grid, found).sentences) <= 25
    assert any(line.startswith("dataset-2 ") for line in lines[begin:]) == (datasets < 7)


def test_one_system_is_compared_with_each_of_several_over_datasets():
    """Each of the 12 planned differences is corrected: 2 systems × 5 datasets, and 2 means."""
    levels = {f"d{i}": {"bm25": 0.3 + i / 100, "m": 0.5 - i / 50, "z": 0.5 + i / 90} for i in range(5)}
    grid, found = made(levels, compare=("z", "bm25", "m"))
    assert len(found.pairs) == 15
    differences = DescrStatsW([levels[name]["z"] - levels[name]["bm25"] for name in levels])
    low, high = differences.tconfint_mean(0.05 / 12)
    first, second = answer(grid, found).sentences
    assert first == (
        f"z minus bm25 on average over 5 datasets: {differences.mean:+.4f} [{low:.4f}, {high:.4f}], z is better; "
        "better on 5."
    )
    assert second.startswith("z minus m on average over 5 datasets: +0.0")
    assert second.endswith(", open; better on 4, open on 1.")
    more = " ".join(answer(grid, found).more)
    assert f"p of z minus bm25 {12 * differences.ttest_mean()[1]:.2g}" in more
    table = answer(grid, found).differences
    assert [row[0] for row in table] == ["", *levels, "average"]
    assert table[-1][1] == f"{differences.mean:+.4f} [{low:.4f}, {high:.4f}] better"


def test_gains_over_first_stages_are_a_table_with_one_correction():
    """All systems whose queries change are one family: two systems on two datasets."""
    levels = {"x": {"bm25": 0.3, "z": 0.6, "a": 0.3}, "y": {"bm25": 0.4, "z": 0.402, "a": 0.5}}
    grid, found = made(levels, first_stages={"z": "bm25", "a": "z"})
    x, y = (of(found.pairs, dataset=name, system="bm25", other="z") for name in levels)
    table = gains(grid, found)
    assert table[0] == ["", "a minus z", "z minus bm25"] or table[0] == ["", "z minus bm25", "a minus z"]
    column = table[0].index("z minus bm25")
    decide = re.sub(" queries would decide", "", needed(y, 4))
    assert [row[0] for row in table[1:]] == ["x", "y"]
    assert table[1][column] == f"{interval_of(x, 4)} better"
    assert table[2][column] == f"{interval_of(y, 4)} open {decide}"
    page = html.unescape(render(grid, found))
    assert "Gains over first stages, in nDCG@10" in page
    assert f"{interval_of(x, 4)} better" in page
    assert "Gains over first stages" not in render(*made(levels))


def test_planned_differences_on_one_dataset_are_sentences_alone():
    grid, found = made({"d": {"bm25": 0.3, "z": 0.6, "a": 0.5}}, compare=("z", "bm25", "a"))
    said = answer(grid, found)
    assert [sentence.partition(" on d: ")[0] for sentence in said.sentences] == ["z minus bm25", "z minus a"]
    assert not said.differences
    assert not [line for line in said.more if "in brackets" in line]


@pytest.mark.parametrize(("compare", "left"), [((), ["z minus bm25", "a minus z"]), (("bm25", "z"), ["a minus z"])])
def test_a_gain_has_one_verdict_in_all_tables(compare, left):
    """It is planned by its system; one that the grid plans, too, has the interval of the plan alone."""
    levels = {"x": {"bm25": 0.3, "z": 0.6, "a": 0.3}, "y": {"bm25": 0.4, "z": 0.402, "a": 0.5}}
    grid, found = made(levels, first_stages={"z": "bm25", "a": "z"}, compare=compare)
    rows = comparisons.gains(grid, found.pairs)
    assert {*(rows["system"] + " minus " + rows["other"])} == {*left}
    known = both_ways(comparisons.verdicts(grid, found.pairs)).set_index(["dataset", "system", "other"])
    for row in rows.itertuples():
        told = known.loc[(row.dataset, row.system, row.other)]
        assert (told["difference_low"], told["difference_high"]) == pytest.approx((row.low, row.high))
        assert (told["verdict"], told["planned"]) == (row.verdict, True)
        of_compare = comparisons.plan([grid], {row.system, row.other}, row.dataset, "ndcg@10")
        assert of_compare == (2 * len(left), 0)
    unplanned = [name for name, row in known.iterrows() if not row["planned"]]
    assert {frozenset(pair) for _, *pair in unplanned} == {frozenset({"bm25", "a"})}


def test_the_best_system_is_not_tested_again_against_its_first_stage():
    grid, found = made({"d": {"bm25": 0.3, "z": 0.6, "a": 0.4}}, first_stages={"z": "bm25"})
    assert answer(grid, found).sentences[1:] == ["It is better than a."]


def test_planned_systems_are_equivalent_within_the_margin_of_the_grid():
    levels = {"d": {"bm25": 0.4, "z": 0.402}}
    grid, found = made(levels, compare=("z", "bm25"), margin=0.05)
    said = answer(grid, found)
    assert said.sentences[0].endswith("], equivalent.")
    assert said.more[-1] == "Equivalent: the whole interval lies within ±0.05."
    assert "], open (" in answer(*made(levels, compare=("z", "bm25"), margin=0.005)).sentences[0]


def test_documents_that_are_not_judged_weaken_the_answer():
    grid, found = made({"d": {"bm25": 0.3, "a": 0.6}})
    weak = ["50 % of a's top ten are not judged and count as not relevant."]
    for share, told in ((0.5, weak), (0.1, [])):
        scores = found.scores.assign(not_judged=found.scores["system"].map({"a": share, "bm25": 0.9}))
        assert answer(grid, found._replace(scores=scores)).caveats == told


def test_the_share_that_is_not_judged_names_the_datasets_that_it_is_measured_on():
    """Qrels that list only relevant documents have no such share."""
    grid, found = made({name: {"bm25": 0.3, "a": 0.6} for name in "xyz"})
    for measured, named in (("y", "y"), ("xy", "x and y")):
        scores = found.scores.assign(not_judged=[0.5 if name in measured else None for name in found.scores["dataset"]])
        (told,) = answer(grid, found._replace(scores=scores)).caveats
        assert told == f"50 % of a's top ten on {named} are not judged and count as not relevant."


def test_systems_are_ordered_by_their_score_unless_the_grid_has_an_order():
    grid, found = made({"d": {"bm25": 0.3, "a": 0.6, "b": 0.5}}, states={("b", "d"): "failed"})
    assert table_files.ordered(grid, found).systems == ("a", "bm25", "b")
    assert list(table_files.wide(found, grid, "ndcg@10")["value"]) == ["a", "bm25", "b"]
    named = grid.model_copy(update={"order": "grid"})
    assert table_files.ordered(named, found).systems == ("bm25", "a", "b")
    lowest, found = made({"d": {"bm25": 0.3, "a": 0.6}}, metric="hole@10")
    assert table_files.ordered(lowest, found).systems == ("bm25", "a")


def test_over_datasets_too_the_corrected_p_decides():
    levels = {f"d{i}": {"bm25": 0.6, "a": 0.5 + i / 100, "b": 0.1 + i / 100} for i in range(5)}
    grid, found = made(levels)
    said = answer(grid, found)
    assert said.sentences[1] == "It is better than a and b."
    raised = found.across["p_best"].where(found.across["system"] != "a", 0.06)
    found = found._replace(across=found.across.assign(p_best=raised))
    assert answer(grid, found).sentences[1] == "Open against a."


def test_the_lowest_is_the_best_of_holes_and_its_difference_is_negative():
    said = answer(*made({"d": {"bm25": 0.6, "a": 0.3}}, metric="hole@10"))
    assert said.sentences[0].startswith("a has the lowest hole@10 on d (40 queries): 0.3000 [")


def test_five_datasets_are_compared_by_their_mean():
    levels = {f"d{i}": {"bm25": 0.3 + i / 100, "a": 0.5 + i / 90, "b": 0.51 + i % 2 * 0.03, "c": 0.1} for i in range(5)}
    grid, found = made(levels)
    row = of(found.across, system="a")
    test = "paired t test over the 5 datasets, Holm's correction for 6 pairs, 0.05"
    assert answer(grid, found)[:3] == (
        [
            f"a has the highest nDCG@10 on average over 5 datasets (200 queries): {row['mean']:.4f} "
            f"[{row['low_datasets']:.4f}, {row['high_datasets']:.4f}].",
            "Open against b.",
        ],
        ["Note: a test over fewer than 10 datasets finds only large differences (datasets here: 5)."],
        [
            f"Unplanned comparisons: {test}.",
        ],
    )
    assert of(found.across, system="b")["p_best"] > 0.05 >= of(found.across, system="c")["p_best"]


def test_fewer_datasets_are_tested_one_by_one_and_the_mean_has_no_p_value():
    levels = {name: {"bm25": 0.3, "a": 0.6, "b": b, "c": c} for name, b, c in (("x", 0.4, 0.601), ("y", 0.85, 0.599))}
    grid, found = made({**levels, "z": {"bm25": 0.3, "a": 0.6, "b": 0.2, "c": 0.6}})
    row = of(found.across, system="a")
    test = "randomised Tukey HSD test, Bonferroni's correction for 3 datasets, 0.05"
    assert answer(grid, found)[:3] == (
        [
            f"a has the highest nDCG@10 on average over 3 datasets (120 queries): 0.6000 [{row['low_queries']:.4f}, "
            f"{row['high_queries']:.4f}].",
            "Of the 3 datasets, it is better than b on 2 and bm25 on 3; it is worse than b on 1; it is open "
            "against c on each.",
        ],
        [],
        [
            f"Unplanned comparisons: {test}.",
        ],
    )
    assert found.across["p_best"].isna().all()
    raised = found.pairs.assign(p_tukey=found.pairs["p_tukey"].where(found.pairs["p_tukey"] > 0.05, 0.02))
    said = answer(grid, found._replace(pairs=raised)).sentences[1]
    assert said == "Of the 3 datasets, it is open against c, b and bm25 on each."


def test_a_baseline_that_leads_over_few_datasets_is_tested_one_by_one():
    levels = {"x": {"bm25": 0.6, "a": 0.3, "b": 0.6}, "y": {"bm25": 0.6, "a": 0.7, "b": 0.599}}
    assert answer(*made(levels)).sentences[1] == (
        "Of the 2 datasets, it is better than a on 1; it is worse than a on 1; it is open against b on each."
    )
    levels = {name: {"bm25": 0.3, "a": 0.6} for name in levels}
    said = answer(*made(levels, metric="hole@10"))
    assert said.sentences[1] == "Of the 2 datasets, it is better than a on 2."


def test_a_mean_leaves_out_systems_without_all_scores_and_says_so():
    levels = {name: {"bm25": 0.3, "a": 0.6, "b": 0.7} for name in ("x", "y")}
    said = answer(*made(levels, states={("b", "y"): "failed"}))
    assert said.sentences[0].startswith("a has the highest nDCG@10 on average over 2 datasets (80 queries): 0.6000 [")
    assert said.caveats == ["1 cell has no score: 1 failed.", "Not compared: b (no scores on y)."]
    states = {("bm25", "x"): "pending", ("a", "y"): "pending", ("b", "y"): "failed"}
    said = answer(*made(levels, states=states))
    assert said.sentences == ["No system has a score on every dataset."]
    assert said.caveats[0] == "3 cells have no score: 2 pending, 1 failed."


def test_zero_shot_datasets_decide_and_training_is_told():
    levels = {name: {"bm25": 0.3, "a": 0.6} for name in ("x", "y", "z")}
    said = answer(*made(levels, trained_on={"a": ("z",)}))
    assert "on average over 2 datasets that no compared system was trained on (80 queries)" in said.sentences[0]
    said = answer(*made({"z": levels["z"]}, trained_on={"a": ("z",)}))
    assert said.caveats[0] == "It was trained on z, so this score is not zero-shot."
    said = answer(*made({"z": levels["z"]}, training_unknown={"a": ("z",)}))
    assert said.caveats[0] == "It is not known whether its training data has z."


def test_without_a_baseline_or_another_system_nothing_is_compared():
    ((said,), caveats, *_) = answer(*made({"d": {"a": 0.6}}))
    assert re.fullmatch(r"a has nDCG@10 on d \(40 queries\): 0\.6000 \[.+\]\.", said)
    assert caveats == ["No other system is compared."]
    assert "baseline" not in str(answer(*made({"d": {"a": 0.6, "b": 0.3}})))
    said = answer(*made({"d": {"a": 0.6, "bm25": 0.3}}, states={("bm25", "d"): "pending"}))
    assert said.caveats == [
        "No other system is compared.",
        "The baseline bm25 is not compared, because it lacks scores.",
        "1 cell has no score: 1 pending.",
    ]


@pytest.mark.parametrize("status", ["pending", "failed", "not supplied", "not judged", "declined"])
def test_a_grid_without_a_score_says_so(status):
    states = {("a", "d"): status, ("b", "d"): status}
    said = answer(*made({"d": {"a": 0.6, "b": 0.3}}, states=states))
    assert said == (["No cell has a score yet."], [f"2 cells have no score: 2 {status}."], [], ())


def test_deviations_and_seeds_are_those_of_the_tables():
    grid, found = made({"d": {"bm25": 0.3, "a": 0.6}}, seeds={})
    away = [0.02, -0.05, 0.03, 0.04]
    verdicts = pd.DataFrame({"system": "a", "dataset": "d", "metric": "ndcg@10", "difference": away, "published": 0.5})
    verdicts = verdicts.assign(verdict="deviates", recorded=False)
    seeds = pd.DataFrame([{"system": "a", "dataset": "d", "metric": "ndcg@10", "deviation": 0.0123, "seeds": 3}])
    found = found._replace(verdicts=typed("verdicts", verdicts), seeds=typed("seeds", seeds))
    said = answer(grid, found)
    assert ": 0.6000 ± 0.0123 over 3 seeds [" in said.sentences[0]
    assert said.caveats == [
        "4 scores deviate from published values: a on d (nDCG@10 -0.0500), a on d (nDCG@10 +0.0400), a on d (nDCG@10 "
        "+0.0300) and 1 more.",
    ]
    one = answer(grid, found._replace(verdicts=typed("verdicts", verdicts.head(1)))).caveats[-1]
    assert one == "1 score deviates from a published value: a on d (nDCG@10 +0.0200)."


def test_the_page_and_the_end_of_a_run_have_the_same_sentences(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid, found = made({"d<&": {"bm25": 0.3, "a<b>": 0.6, "c": 0.4}})
    sentences, caveats, more, _ = answer(grid, found)
    said = " ".join([*sentences, *caveats, *more])
    assert said.startswith("a<b> has the highest nDCG@10 on d<& (40 queries)")
    page = render(grid, found)
    shown = [html.unescape(re.sub(r"</?b>", "", text)) for text in re.findall(r"<(?:p|li)>(.*?)</(?:p|li)>", page)]
    assert {*sentences, *caveats, *more} <= {*shown}
    assert page.index('id="answer"') < page.index("<table")
    assert re.findall(r"<b>(.*?)</b>", page) == ["0.6000"]  # the value, and not its interval
    assert said in " ".join(outline(grid, found, Path("page"), 80))


@pytest.mark.parametrize(("width", "lines"), [(80, 8), (50, 8), (120, 4), (40, 0)])
def test_planned_differences_of_two_pairs_are_shown_on_a_narrow_terminal_too(width, lines):
    """Three datasets and two pairs: side by side, or one below the other; every difference once."""
    cells = [f"{sign}0.1043 [-0.0583, 0.2670] open (1,283)" for sign in "+-"]
    rows = [["", "mine minus bm25", "mine minus minilm"], *([name, *cells] for name in ("scifact", "fiqa", "nfcorpus"))]
    shown = _differences(rows, width)
    assert len(shown) == lines
    assert [sum(cell in line for line in shown) for cell in cells] == [3 * bool(lines)] * 2
    assert all(len(line) <= width for line in shown)
