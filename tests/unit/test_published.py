"""Published values, verdicts and tables."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import yaml

from beirgrid import aggregate, published
from beirgrid.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (0.5, "reproduced"),
        (0.51, "reproduced"),
        (0.49, "reproduced"),
        (0.5101, "close"),
        (0.48, "close"),
        (0.5201, "deviates"),
        (0.4, "deviates"),
    ],
)
def test_verdicts_are_two_sided(value, verdict):
    assert published.grade(value, 0.5, 0.01) == verdict


def test_the_tracked_values_can_be_read_and_have_sources(root):
    tolerances = yaml.safe_load((root / "config" / "config.yaml").read_text())["tolerances"]
    values = list(published.read(sorted((root / "config" / "published").glob("*.csv")), tolerances))
    assert len(values) > 1000
    assert all(0 <= value.value <= 1 and value.source for value in values)
    cells = [(v.system, v.dataset, v.metric, v.source) for v in values]
    assert len(set(cells)) == len(cells)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("s,d,ndcg@10,high,paper,x,", r"p.csv:2: the value 'high' is not a number"),
        ("s,d,ndcg@10,0.1,papper,x,", r"p.csv:2: no tolerance class 'papper'; did you mean 'paper'"),
    ],
)
def test_broken_published_files_are_named(tmp_path, line, message):
    (tmp_path / "p.csv").write_text("system,dataset,metric,value,class,source,note\n" + line + "\n")
    with pytest.raises(ConfigError, match=message):
        list(published.read([tmp_path / "p.csv"], {"paper": 0.02}))


def _scores() -> pd.DataFrame:
    rows = [("a", "x", "ndcg@10", 0.5, 10), ("a", "y", "ndcg@10", 0.7, 20), ("b", "x", "ndcg@10", 0.6, 10)]
    rows.append(("b", "y", "ndcg@10", 0.1, 20))
    return pd.DataFrame(rows, columns=aggregate.SCORE_COLUMNS)


def test_each_published_value_has_its_verdict():
    references = [
        published.Published("a", "x", "ndcg@10", 0.5, "paper", "one", ""),
        published.Published("a", "x", "ndcg@10", 0.9, "paper", "two", ""),
    ]
    verdicts = aggregate.judge(_scores(), references, {"paper": 0.02})
    assert list(verdicts["verdict"]) == ["reproduced", "deviates", "no reference", "no reference", "no reference"]


def test_a_mean_says_what_it_is_over():
    grid = {"rows": ["x", "y"], "systems": {"b": {}, "a": {}}, "datasets": {"x": {}, "y": {}}}
    table = aggregate.wide(_scores(), grid, "ndcg@10")
    assert list(table.columns) == ["b", "a"]
    assert list(table.index) == ["x", "y", "mean of x, y"]
    assert table.loc["mean of x, y", "a"] == pytest.approx(0.6)
    single = aggregate.wide(_scores(), {"rows": ["x"], "systems": {"a": {}}, "datasets": {"x": {}}}, "ndcg@10")
    assert list(single.index) == ["x"]


def test_the_mean_counts_nothing_twice_and_leaves_ms_marco_out():
    over = {"corpus": "msmarco"}
    datasets = {"msmarco": over, "trec-dl-2019": over, "a": {}, "b": {}, "both": {"mean_of": ["a", "b"]}, "c": {}}
    assert aggregate.averaged_rows({"rows": list(datasets), "datasets": datasets}) == ["both", "c"]


def _partial() -> dict[str, Any]:
    """Return a grid of which one dataset, and so a mean, is not supplied."""
    datasets = {
        "x": {},
        "y": {},
        "z": {"not_supplied": "/data/z"},
        "m": {"mean_of": ["y", "z"], "not_supplied": "/data/z"},
    }
    return {"rows": ["x", "y", "z", "m"], "systems": {"a": {}, "b": {}}, "datasets": datasets}


def _partial_scores() -> pd.DataFrame:
    missing = [(system, dataset, "ndcg@10", float("nan"), None) for system in "ab" for dataset in "zm"]
    return pd.concat([_scores(), pd.DataFrame(missing, columns=aggregate.SCORE_COLUMNS)], ignore_index=True)


def test_a_mean_without_what_is_not_supplied_says_so():
    grid = _partial()
    grid["datasets"]["m"].pop("mean_of")
    table = aggregate.wide(_partial_scores(), grid, "ndcg@10")
    assert table.loc["mean of x, y (without z, m)", "a"] == pytest.approx(0.6)


def test_what_is_not_supplied_is_never_judged():
    reference = published.Published("a", "z", "ndcg@10", 0.0, "paper", "one", "")
    verdicts = aggregate.judge(_partial_scores(), [reference], {"paper": 0.02}).set_index(["system", "dataset"])
    assert verdicts.loc[("a", "z"), "verdict"] == verdicts.loc[("b", "z"), "verdict"] == "not supplied"
    assert verdicts.loc[("a", "z"), "published"] == 0.0
    assert verdicts.loc[("a", "x"), "verdict"] == "no reference"


def test_the_best_of_a_row_is_one_that_is_there():
    assert aggregate.shown([0.5, float("nan")]) == ["0.5000", "not supplied"]
    assert aggregate.best("ndcg@10", ["0.5000", "not supplied"]) == "0.5000"
    assert aggregate.best("ndcg@10", ["not supplied", "not supplied"]) == ""


@pytest.mark.parametrize("metric", ["hole@10", "hole_corpus@10"])
def test_of_holes_the_fewest_are_best(metric):
    assert aggregate.best(metric, ["0.8000", "0.2000"]) == "0.2000"
    assert aggregate.best("ndcg@10", ["0.8000", "0.2000"]) == "0.8000"
