"""The tables of a grid's statistics: their datasets and systems, refusals, and the effect of order and absence."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from statsmodels.stats.weightstats import DescrStatsW

from beirgrid import measures
from beirgrid.analysis import across, dataset_scores, tables
from beirgrid.core.errors import DataError
from beirgrid.results.cells import CellState
from beirgrid.results.comparisons import ESTIMATE
from beirgrid.results.summary import DatasetSummary, GridSummary
from beirgrid.runs import runs

FEW = {"resamples": 400, "permutations": 500}
METRICS = ("ndcg@10", "hole@10")


def write(folder: Path, system: str, queries: list[str], **columns: list[float]) -> Path:
    path = folder / f"{system}.per-query.parquet"
    pd.DataFrame({"query": queries, **(columns or dict.fromkeys(METRICS, 0.5))}).to_parquet(path)
    return path


def dataset(
    name: str = "scifact", *, systems: str = "abcd", queries: int = 30, better: float = 0.1
) -> dataset_scores.EvaluatedDataset:
    """Scores of systems that are better, and have fewer holes, in alphabetical order."""
    numbers = np.random.default_rng(queries)
    noise = numbers.random((queries, 26, 2))
    places = [ord(system) - ord("a") for system in systems]
    values = noise[:, places] * [1, -1] + better * np.array(places)[None, :, None] * [1, -1] + [0, 3]
    return dataset_scores.EvaluatedDataset(name, tuple(systems), METRICS, values)


PARTS = [dataset("x"), dataset("y", queries=12), dataset("z", queries=20)]


def of_ndcg(table: pd.DataFrame, *index: str) -> pd.DataFrame:
    """Return the rows of nDCG@10 by columns."""
    return table.query("metric == 'ndcg@10'").set_index([*index])


def zero_shot(
    parts: list[dataset_scores.EvaluatedDataset], systems: str, trained_on=None, unknown=None
) -> pd.DataFrame:
    """Return the table of pairs over the datasets that are zero-shot for both."""
    compared = zip(*(tables.compare(part, **FEW) for part in parts), strict=True)
    tests, pairs = (pd.concat(of) for of in compared)
    return tables.zero_shot_pairs(pairs, tests, systems=systems, trained_on=trained_on or {}, unknown=unknown or {})


# Reading --------------------------------------------------------------------------------------------------------------


def test_queries_are_matched_by_id(tmp_path):
    queries = ["q2", "q10", "q1"]
    values = {"b": [0.2, 1.0, 0.1], "a": [0.3, 0.9, 0.0]}
    paths = {"b": write(tmp_path, "b", queries, **{"ndcg@10": values["b"]})}
    paths["a"] = write(tmp_path, "a", queries[::-1], **{"ndcg@10": values["a"][::-1]})
    read = dataset_scores.read_dataset("scifact", paths, ["ndcg@10"])
    assert read.systems == ("a", "b")
    assert {tuple(row) for row in read.scores[:, :, 0].tolist()} == set(zip(values["a"], values["b"], strict=True))


@pytest.mark.parametrize("queries", [["q1", "q2"], ["q1", "q2", "q3", "q4"], ["q1", "q2", "x"]])
def test_files_with_other_queries_are_refused(tmp_path, queries):
    paths = {"a": write(tmp_path, "a", ["q1", "q2", "q3"]), "b": write(tmp_path, "b", queries)}
    with pytest.raises(DataError, match="should have the same queries of scifact") as error:
        dataset_scores.read_dataset("scifact", paths, METRICS)
    for part in (str(paths["a"]), str(paths["b"]), "(3 queries)", f"({len(queries)} queries)", "delete it"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("queries", "metric", "values", "message"),
    [
        (["q1", "q1"], "ndcg@10", [0.1, 0.2], "has the query 'q1' twice"),
        (["q1", "q2"], "ndcg@10", [0.1, math.nan], "not a finite number"),
        ([], "ndcg@10", [], "has no queries"),
        (["q1"], "hole@10", [1.0], r"a\.per-query\.parquet has no column 'ndcg@10': the run was evaluated with other"),
    ],
)
def test_scores_that_are_none_are_refused(tmp_path, queries, metric, values, message):
    paths = {"a": write(tmp_path, "a", queries, **{metric: values})}
    with pytest.raises(DataError, match=message):
        dataset_scores.read_dataset("scifact", paths, ["ndcg@10"])


def test_a_damaged_file_is_named(tmp_path):
    path = write(tmp_path, "a", ["q1"])
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match=r"a\.per-query\.parquet is damaged"):
        dataset_scores.read_dataset("scifact", {"a": path}, METRICS)
    with pytest.raises(DataError, match=r"gone\.parquet is missing"):
        dataset_scores.read_dataset("scifact", {"a": tmp_path / "gone.parquet"}, METRICS)


# One dataset ----------------------------------------------------------------------------------------------------------


def test_tables_hold_against_each_other():
    found = tables.compare(dataset(), baseline="b", **FEW)
    table = of_ndcg(found.significance, "system")
    scores = dataset().scores[:, :, 0]
    assert table["mean"].tolist() == pytest.approx(scores.mean(axis=0).tolist())
    assert ((table["low"] < table["mean"]) & (table["mean"] < table["high"])).all()
    assert math.isnan(table.loc["b", "difference"])
    for system in "acd":
        row = table.loc[system]
        differences = scores[:, "abcd".index(system)] - scores[:, 1]
        assert row["baseline"] == "b"
        assert row["difference"] == pytest.approx(differences.mean())
        assert row["effect"] == pytest.approx(differences.mean() / differences.std(ddof=1))
        assert row["difference_low"] < row["difference"] < row["difference_high"]
        assert row["effect_low"] < row["effect"] < row["effect_high"]
    pairs = of_ndcg(found.pairs, "system", "other")
    assert pairs.loc[("a", "b"), "p_randomisation"] == table.loc["a", "p_randomisation"]
    assert pairs.loc[("b", "d"), "p_randomisation"] == table.loc["d", "p_randomisation"]
    assert pairs.loc[("b", "d"), "difference_low"] == -table.loc["d", "difference_high"]
    # Three comparisons with the baseline, six pairs.
    assert table.loc["d", "p_holm"] == pytest.approx(3 * table.loc["d", "p_randomisation"])
    assert (pairs["p_holm"] >= pairs["p_randomisation"]).all()


def test_the_best_of_holes_is_the_lowest():
    found = tables.compare(dataset(better=0.3), **FEW).significance
    best = found.groupby("metric", sort=False)["best"].unique()
    assert best["ndcg@10"].tolist() == best["hole@10"].tolist() == ["d"]
    assert found[found["metric"] == "hole@10"]["in_best_group"].tolist() == [False, False, False, True]


def test_the_best_group_has_who_the_test_does_not_distinguish():
    found = tables.compare(dataset(better=0.0), **FEW).significance
    assert found["in_best_group"].all()
    means = pd.DataFrame({"metric": "ndcg@10", "system": list("abcd"), "mean": [0.5, 0.9, 0.5, 0.9]})
    pairs = pd.DataFrame(itertools.combinations("abcd", 2), columns=["system", "other"])
    numbers = [*found.columns[found.columns.str.contains("p_|difference|effect")], *ESTIMATE[1:], "dataset", "queries"]
    pairs[numbers], pairs["metric"], pairs["p_tukey"] = 0.0, "ndcg@10", [0.01, 0.2, 0.01, 0.06, 1.0, 0.04]
    assert tables._tests(means, pairs, None)["in_best_group"].tolist() == [False, True, True, True]


def test_order_of_systems_and_datasets_changes_nothing(tmp_path):
    numbers = np.random.default_rng(0)
    queries = [f"q{i}" for i in range(40)]
    paths = {system: write(tmp_path, system, queries, **{"ndcg@10": numbers.random(40).tolist()}) for system in "dbca"}
    orders = [paths, dict(sorted(paths.items()))]
    one, two = (tables.compare(dataset_scores.read_dataset("x", o, ["ndcg@10"]), baseline="c", **FEW) for o in orders)
    for first, second in zip(one, two, strict=True):
        pd.testing.assert_frame_equal(first, second, check_exact=True)
    first, second = (tables.compare_across(order, baseline="b") for order in (PARTS, PARTS[::-1]))
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_a_system_that_joins_changes_no_interval_and_no_p_value_of_a_pair():
    columns = ["mean", "low", "high", "difference_low", "difference_high", "p_randomisation", "effect_low"]
    compared = (tables.compare(dataset(systems=of), baseline="c", **FEW).significance for of in ("bcd", "abcd"))
    both = [found.query("system != 'a'").set_index(["metric", "system"])[columns] for found in compared]
    np.testing.assert_allclose(*both, rtol=1e-9)


def test_seeds_change_what_is_drawn():
    first, second = (tables.compare(dataset(), seed=seed, **FEW).significance["low"] for seed in (1, 2))
    assert not np.allclose(first, second)


def test_a_baseline_without_scores_here_leaves_its_columns_empty():
    found = tables.compare(dataset(), baseline="bm25", **FEW).significance
    assert found["mean"].notna().all()
    assert found[["baseline", "difference", "p_randomisation", "p_holm", "effect"]].isna().all(axis=None)


def test_a_single_system_has_a_mean_and_is_the_best():
    found = tables.compare(dataset(systems="a"), baseline="a", **FEW)
    assert found.significance["low"].notna().all()
    assert found.pairs.empty
    assert found.significance["in_best_group"].all()


# Groups of queries ----------------------------------------------------------------------------------------------------

# By metric: an id of the group, and of its queries. Where the number of queries varies, the last two are numbers.
NAMES = {
    "p_mrr@1000": ("t-{}", ["{}-og", "{}-changed"]),
    "robustness@10": ("t{}", ["{}_" + letter * 2 for letter in "abcdef"]),
    "paired_accuracy@1": ("t{}", ["{}_q1", "{}_q2"]),
    "map_subqueries@1000": ("t_{}", ["{}_" + letter * 2 for letter in "abcdef"]),
}


def grouped(metric: str, values: np.ndarray, numbers: np.random.Generator) -> tuple[pd.Index, np.ndarray]:
    """Return the queries of groups with these values, [groups, systems], in random order, and the values of the queries
    as evaluate writes them: the mean over all queries is the mean of the groups.
    """
    stem, patterns = NAMES[metric]
    sizes = numbers.integers(1, 7, len(values)) if len(patterns) > 2 else np.full(len(values), 2)
    queries = [pattern.format(stem.format(group)) for group, size in enumerate(sizes) for pattern in patterns[:size]]
    spread = np.repeat(values * (sizes.sum() / (len(values) * sizes))[:, None], sizes, axis=0)
    order = numbers.permutation(len(queries))
    return pd.Index(queries)[order], spread[order]


def group_of(metric: str, queries: pd.Index) -> pd.Series:
    """Return the number of each query's group."""
    return queries.str.extract("^" + NAMES[metric][0].format(r"(\d+)"))[0].astype(int)


@pytest.mark.parametrize("column", ["", "main"])
@pytest.mark.parametrize("metric", NAMES)
def test_statistics_of_groups_of_queries_are_those_of_one_value_for_each_group(tmp_path, metric, column):
    numbers, column = np.random.default_rng(3), column or metric
    values = numbers.normal([0.5, 0.55, 0.6], 0.2, (25, 3)).round(3)
    queries, spread = grouped(metric, values, numbers)
    others = numbers.random(spread.shape)
    orders = [slice(None), slice(None, None, -1), slice(None, None, -1)]
    paths = {
        system: write(tmp_path, system, list(queries[order]), **{column: spread[order, i], "p@10": others[order, i]})
        for i, (system, order) in enumerate(zip("abc", orders, strict=True))
    }
    read = dataset_scores.read_dataset("x", paths, [column, "p@10"], metric)
    groups = group_of(metric, queries).unique()
    alone = dataset_scores.EvaluatedDataset("x", tuple("abc"), (column,), values[groups, :, None])
    beside = dataset_scores.EvaluatedDataset("x", tuple("abc"), ("p@10",), others[:, :, None])
    expected = [tables.compare(part, baseline="a", **FEW) for part in (alone, beside)]
    for kind, table in tables.compare(read, baseline="a", **FEW)._asdict().items():
        both = pd.concat([getattr(part, kind) for part in expected], ignore_index=True)
        pd.testing.assert_frame_equal(table, both, check_exact=False, rtol=1e-9)
    assert expected[0].pairs["queries"].tolist() == [25] * 3


def test_groups_count_once_in_means_of_datasets_and_over_datasets():
    numbers, metric = np.random.default_rng(5), "robustness@10"
    read, alone = [], []
    for name, groups in (("x", 12), ("y", 30)):
        values = numbers.random((groups, 2))
        queries, spread = grouped(metric, values, numbers)
        columns = {system: pd.DataFrame({metric: spread[:, i]}, queries) for i, system in enumerate("ab")}
        read.append(dataset_scores.stack(name, columns))
        groups = group_of(metric, queries).unique()
        alone.append(dataset_scores.EvaluatedDataset(name, ("a", "b"), (metric,), values[groups, :, None]))
    whole = [dataset_scores.mean_of("w", parts) for parts in (read, alone)]
    for first, second in zip(*(tables.compare(of, baseline="a", **FEW) for of in whole), strict=True):
        pd.testing.assert_frame_equal(first, second, check_exact=False, rtol=1e-9)
    found, expected = (tables.compare_across(parts, baseline="a") for parts in (read, alone))
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-9)
    pairs = [zero_shot(of, "ab") for of in (read, alone)]
    pd.testing.assert_frame_equal(*pairs, check_exact=False, rtol=1e-9)


def test_a_grid_whose_main_metric_is_of_groups_counts_each_group_once():
    numbers = np.random.default_rng(4)
    queries, spread = grouped("robustness@10", numbers.random((9, 2)), numbers)
    datasets = {"x": DatasetSummary(corpus="x", metric="robustness@10")}
    summary = GridSummary(systems=("a", "b"), rows=("x",), datasets=datasets, metrics=("main",))
    cells = {
        (system, "x"): CellState("done", "", per_query=pd.DataFrame({"main": spread[:, i]}, queries))
        for i, system in enumerate("ab")
    }
    compared, _ = tables.compare_grid(summary, cells)
    assert compared["pairs"]["queries"].tolist() == [9]


@pytest.mark.parametrize("metric", NAMES)
def test_a_group_has_the_value_that_its_queries_have_by_themselves(metric):
    numbers, documents = np.random.default_rng(1), [f"d{i}" for i in range(12)]
    queries, _ = grouped(metric, np.zeros((8, 1)), numbers)
    run = {query: runs.canonical(query, documents, list(numbers.random(12))) for query in queries}
    judged = {query: dict.fromkeys(numbers.choice(documents, 2), 1) for query in queries}
    judged |= {query: {document: 1} for query in queries for document in run[query].ids[:1] if numbers.random() < 0.6}
    of_queries = pd.DataFrame(measures.per_query(run, judged, [metric]), queries)
    ((found,),) = dataset_scores.by_units([dataset_scores.stack("x", {"s": of_queries})])
    groups, expected = group_of(metric, queries), []
    for group in groups.unique():
        own = {query: judged[query] for query in queries[groups == group]}
        expected.append(measures.per_query(run, own, [metric])[metric].mean())
    assert found.scores[:, 0, 0].tolist() == pytest.approx(expected)
    assert found.scores.mean() == pytest.approx(of_queries[metric].mean())
    assert len({*expected}) > 1


# Degenerate samples ---------------------------------------------------------------------------------------------------


def test_one_query_has_no_interval_and_says_so():
    found = tables.compare(dataset(queries=1), baseline="a", **FEW).significance
    assert found[["low", "high", "difference_low", "effect", "effect_low"]].isna().all(axis=None)
    assert found["note"].unique().tolist() == ["one query: no interval"]
    assert found[found["system"] == "b"]["p_randomisation"].tolist() == [1.0, 1.0]


def test_equal_values_have_an_interval_without_width_and_say_so():
    values = np.stack([np.full(20, 0.1), np.full(20, 0.1), np.full(20, 0.4), np.linspace(0, 1, 20)], axis=1)
    part = dataset_scores.EvaluatedDataset("x", tuple("abcd"), ("ndcg@10",), values[:, :, None])
    found = tables.compare(part, baseline="a", **FEW).significance.set_index("system")
    for system, value in (("a", 0.1), ("b", 0.1), ("c", 0.4)):
        assert found.loc[system, ["low", "high"]].tolist() == pytest.approx([value, value], abs=1e-12)
        assert "no width" in found.loc[system, "note"]
    assert found.loc["d", "note"] == ""
    # Equal systems have no difference. A constant difference has no deviation by which to divide it.
    assert found.loc["b", ["difference", "p_randomisation", "p_t", "effect"]].tolist() == [0, 1, 1, 0]
    assert found.loc["c", ["difference_low", "p_t", "effect", "effect_low"]].isna().all()
    assert found.loc["c", "p_randomisation"] == pytest.approx(1 / (FEW["permutations"] + 1))


# Several datasets -----------------------------------------------------------------------------------------------------


def test_a_system_that_lacks_a_dataset_has_no_mean():
    found = tables.compare_across([dataset("x"), dataset("y", systems="ab")], baseline="a")
    table = of_ndcg(found, "system")
    assert table.loc[["a", "b"], "mean"].notna().all()
    assert table.loc[["c", "d"], ["mean", "mean_rank", "wins", "low_queries"]].isna().all(axis=None)
    assert table.loc["c", "note"] == "no scores on y"
    assert table["names"].unique().tolist() == ["x, y"]
    none = tables.compare_across([dataset("x", systems="a"), dataset("y", systems="b")])
    assert none["mean"].isna().all()
    assert none[none["system"] == "a"]["note"].unique().tolist() == ["no scores on y"]


def test_a_system_that_lacks_a_dataset_has_a_mean_over_those_that_all_systems_have():
    """All means are over the same datasets, and those over all datasets stay as they are."""
    lacking = PARTS[2]._replace(systems=("a", "b", "c"), scores=PARTS[2].scores[:, :3])
    found = of_ndcg(tables.compare_across([*PARTS[:2], lacking], baseline="a"), "over", "system")
    means = np.mean([part.scores[:, :, 0].mean(axis=0) for part in PARTS[:2]], axis=0)
    assert found.loc["common"]["mean"].tolist() == pytest.approx(means)
    assert found.loc["common"]["names"].unique().tolist() == ["x, y"]
    assert found.loc[("all", "d"), "note"] == "no scores on z"
    whole = of_ndcg(tables.compare_across(PARTS, baseline="a"), "over", "system")
    assert found.loc[("all", "a"), "mean"] == whole.loc[("all", "a"), "mean"]
    assert "common" not in whole.index


def test_zero_shot_means_leave_out_what_any_system_was_trained_on():
    found = tables.compare_across(PARTS, trained_on={"b": {"y"}, "d": ["y", "elsewhere"]})
    table = of_ndcg(found, "over", "system")
    means = {part.name: part.scores[:, :, 0].mean(axis=0) for part in PARTS}
    assert table.loc[("all", "b"), "mean"] == pytest.approx(np.mean([means[name][1] for name in "xyz"]))
    assert table.loc[("zero-shot", "b"), "mean"] == pytest.approx(np.mean([means[name][1] for name in "xz"]))
    assert table.loc[("zero-shot", "a"), "mean"] == pytest.approx(np.mean([means[name][0] for name in "xz"]))
    assert table.loc["zero-shot"]["names"].unique().tolist() == ["x, z"]
    assert table.loc["all"]["own_zero_shot_datasets"].to_dict() == {"a": 3, "b": 2, "c": 3, "d": 2}
    assert table.loc[("all", "a"), "own_zero_shot_mean"] == pytest.approx(table.loc[("all", "a"), "mean"])
    assert table.loc[("all", "d"), "trained_on"] == "y"


def test_zero_shot_means_leave_out_systems_of_unknown_training_data():
    """System a was trained on y. The training data of b are unknown: b is left out and excludes no dataset for the
    others.
    """
    training = {"trained_on": {"a": ["y"], "b": ["z"]}, "unknown": {"b": ["x", "y"]}}
    table = of_ndcg(tables.compare_across(PARTS, **training, baseline="c"), "over", "system")
    assert table.loc["zero-shot"]["names"].unique().tolist() == ["x, z"]
    assert table.loc["all"]["mean"].notna().all()
    assert table.loc["zero-shot"]["mean"].notna().to_dict() == {"a": True, "b": False, "c": True, "d": True}
    assert table.loc[("zero-shot", "b"), "note"] == "left out: not all training datasets are known"
    assert table.loc["zero-shot"]["mean_rank"].dropna().sum() == 1 + 2 + 3
    assert table.loc["all"]["own_zero_shot_datasets"].to_dict() == {"a": 2, "b": 0, "c": 3, "d": 3}
    assert table.loc[("all", "b"), "training_unknown"] == "x, y"
    nobody = tables.compare_across(PARTS, unknown=dict.fromkeys("abcd", ("x", "y", "z")))
    assert set(nobody["over"]) == {"all"}


def test_each_pair_has_means_over_the_datasets_that_are_zero_shot_for_both():
    """No dataset is zero-shot for all systems, so those means are empty; those of a and c are over two datasets."""
    trained_on = {"a": ["y"], "b": ["x", "z"]}
    assert set(tables.compare_across(PARTS, trained_on=trained_on)["over"]) == {"all"}
    table = of_ndcg(zero_shot(PARTS, "abcd", trained_on, {"d": ["z"]}), "system", "other")
    zero = {("a", "c"): "x, z", ("a", "d"): "x", ("b", "c"): "y", ("b", "d"): "y", ("c", "d"): "x, y"}
    assert table["names"].to_dict() == zero
    means = {part.name: part.scores[:, :, 0].mean(axis=0) for part in PARTS}
    row = table.loc["a", "c"]
    assert row["mean"] == pytest.approx((means["x"][0] + means["z"][0]) / 2)
    assert row["other_mean"] == pytest.approx((means["x"][2] + means["z"][2]) / 2)
    assert row["difference"] == pytest.approx(row["mean"] - row["other_mean"])
    assert row["wins"] == sum(means[name][0] > means[name][2] for name in "xz")


@pytest.mark.parametrize(("systems", "sign"), [("ab", 1), ("ba", -1)])
def test_a_pair_over_five_datasets_has_the_interval_of_the_t_test_over_datasets(systems, sign):
    """Checked with statsmodels, in both orders of the systems."""
    parts = [dataset(name, systems="ab", queries=20 + number) for number, name in enumerate("vwxyz")]
    row = zero_shot(parts, systems).set_index("metric").loc["ndcg@10"]
    means = [part.scores[:, :, 0].mean(axis=0) for part in parts]
    differences = DescrStatsW([sign * (first - second) for first, second in means])
    assert row[["low", "high"]].tolist() == pytest.approx(differences.tconfint_mean())
    assert row["p_t"] == pytest.approx(differences.ttest_mean()[1])
    few = zero_shot(parts[:4], systems).set_index("metric").loc["ndcg@10"]
    assert math.isnan(few["p_t"]), "a test over four datasets says nothing"
    differences = [sign * (part.scores[:, 0, 0] - part.scores[:, 1, 0]) for part in parts[:4]]
    errors = np.array([np.var(of, ddof=1) / len(of) for of in differences])
    freedom = errors.sum() ** 2 / sum(error**2 / (len(of) - 1) for error, of in zip(errors, differences, strict=True))
    half = scipy.stats.t.ppf(0.975, freedom) * math.sqrt(errors.sum()) / 4  # Welch and Satterthwaite
    assert few[["low", "high"]].tolist() == pytest.approx([few["difference"] - half, few["difference"] + half])


def test_a_mean_of_datasets_weighs_each_the_same():
    parts = [dataset("forum-a", queries=10), dataset("forum-b", queries=300)]
    whole = dataset_scores.mean_of("forums", parts)
    expected = np.mean([part.scores[:, :, 0].mean(axis=0) for part in parts], axis=0)
    table = of_ndcg(tables.compare(whole, baseline="a", **FEW).significance, "system")
    assert table["mean"].tolist() == pytest.approx(expected.tolist())
    assert table.loc["d", "difference"] == pytest.approx(expected[3] - expected[0])
    assert table.loc["d", ["p_randomisation", "p_t"]].max() < 0.05
    assert table["effect"].isna().all()
    over = of_ndcg(tables.compare_across([whole, dataset("x")]), "system")
    assert over.loc["a", "mean"] == pytest.approx((expected[0] + dataset("x").scores[:, 0, 0].mean()) / 2)


def test_one_dataset_has_no_interval_from_resampling_datasets():
    found = tables.compare_across([dataset("x")], baseline="a")
    assert found[["low_queries", "high_queries"]].notna().all(axis=None)
    assert found[["low_datasets", "high_datasets", "p_t"]].iloc[1].isna().all()
    assert found["note"].str.contains("datasets here: 1").all()


# Without judgements --------------------------------------------------------------------------------------------------


def test_a_pool_has_each_pair_of_its_systems_once():
    many = [f"d{number}" for number in range(12)]
    rankings = {"a": {"q1": many, "q2": ["x"]}, "b": {"q1": many[::-1], "q2": ["y"]}, "c": {"q1": many, "q2": ["x"]}}
    whole, *pairs = across.agreement(rankings)
    assert (whole["system"], whole["pool@5"], whole["pool@10"], whole["pool@50"]) == ("all", 12, 14, 14)
    assert [(row["system"], row["other"]) for row in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [row["pool@5"] for row in pairs] == [12, 6, 12]
    assert [row["overlap@10"] for row in pairs] == [pytest.approx(0.4), pytest.approx(0.55), pytest.approx(0.4)]


def test_systems_are_compared_on_their_common_queries():
    rankings = {"a": {"q1": ["a", "b", "c"], "q2": ["d"]}, "b": {"q1": ["c", "b", "e"], "q3": ["e"]}, "c": {}}
    _, *pairs = across.agreement(rankings)
    assert pairs[0]["overlap@10"] == pytest.approx(0.2)
    assert all(math.isnan(row["overlap@10"]) for row in pairs[1:])
