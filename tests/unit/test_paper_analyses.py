"""Compare the analyses of the BEIR paper on small data with independent computations."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pages
import pandas as pd
import pytest

from beirgrid.core.errors import DataError
from beirgrid.page import retrieved
from beirgrid.paper import words
from beirgrid.results import answers, efficiency

# Lengths --------------------------------------------------------------------------------------------------------------


def test_lengths_of_retrieved_and_judged_documents():
    """A document counts once for each query. The words of a document that is gone are unknown."""
    counts = {f"d{i}": i * i for i in range(40)}
    top = {"bm25": {"q1": [f"d{i}" for i in range(10)], "q2": ["d3", "d39", "d20"]}, "none": {"q1": ["gone"]}}
    qrels = {"q1": {"d0": 0, "d5": 1, "d9": 2, "gone": 2}, "q2": {"d5": 1, "d7": 0, "d8": 1, "d30": 2}}
    summary = words.describe(words.lengths("sets", top, qrels, counts)).set_index(["kind", "system"])
    found, empty = (summary.loc[("retrieved", system)] for system in top)
    values = [counts[document] for documents in top["bm25"].values() for document in documents]
    assert found[["documents", "unknown", "mean"]].tolist() == [13, 0, pytest.approx(statistics.mean(values))]
    twentieths = statistics.quantiles(values, n=20, method="inclusive")
    quantiles = found[["p5", "p25", "median", "p75", "p95"]].tolist()
    assert quantiles == pytest.approx([twentieths[place - 1] for place in (1, 5, 10, 15, 19)])
    assert empty[["documents", "unknown"]].tolist() == [0, 1]
    assert math.isnan(empty["median"])
    judged = summary.loc["judged", ["grade", "documents", "unknown", "mean"]].to_numpy().tolist()
    assert judged == [[0, 2, 0, 24.5], [1, 3, 0, 38], [2, 2, 1, 490.5]]


def test_lengths_of_several_datasets_together():
    counts = {f"d{i}": i for i in range(9)}
    one = words.lengths("one", {"a": {"q": ["d1", "d2"]}, "b": {"q": ["d3"]}}, {"q": {"d1": 0, "gone": 1}}, counts)
    two = words.lengths("two", {"a": {"q": ["d5"]}}, {"q": {"d7": 2, "d8": 1}}, counts)
    found = words.describe(words.together("both", [one, two]))
    assert set(found["dataset"]) == {"both"}
    rows = found[["kind", "system", "documents", "unknown"]].to_numpy().tolist()
    assert rows == [["retrieved", "a", 3, 0], ["judged", "", 1, 0], ["judged", "", 1, 1], ["judged", "", 1, 0]]
    assert found["grade"].tolist()[1:] == [0, 1, 2]
    assert found["median"].tolist() == [2, 1, 8, 7]


@pytest.mark.parametrize(
    ("query", "document", "expected"),
    [
        ("What is the Speed of Light?", "LIGHT: its speed, and what it is.", ["what", "speed", "light"]),
        ("naïve Größe größe", "GRÖSSE größe", ["größe"]),
        ("to be or not to be", "to be or not to be", []),
        ("rivers", "river", []),
    ],
)
def test_words_that_matched(query, document, expected):
    assert retrieved.matched_words(query, document) == expected


def test_a_text_is_cut_with_a_mark():
    assert retrieved.cut("abcdefghij", 10) == "abcdefghij"
    assert retrieved.cut("abcdefghijk", 10) == "abcdefgh …"


# Costs --------------------------------------------------------------------------------------------------------------


def test_the_zero_shot_datasets_count_where_there_are_some():
    """A single system with a zero-shot mean is compared with nobody: then all datasets count."""
    rows = [("ndcg@10", "all", 3, "a", 0.5), ("ndcg@10", "zero-shot", 2, "a", 0.5), ("ndcg@10", "all", 3, "b", 0.5)]
    columns = ["metric", "over", "datasets", "system", "mean"]
    for mean, datasets in ((0.4, [2, 2]), (math.nan, [3, 3])):
        told = pd.DataFrame([*rows, ("ndcg@10", "zero-shot", 2, "b", mean)], columns=columns)
        assert answers.against_baseline(answers.typed("across", told))["datasets"].tolist() == datasets


def step(path: str, seconds: float, memory: float, settings: dict | None = None, **facts: Any) -> dict[str, Any]:
    """Return a step by the path of its record. A search reads the index beside it."""
    kinds = {"embeddings": "encode", "indexes": "index", "runs": "search", "pairs": "score"}
    kind = facts.pop("kind", kinds.get(path.partition("/")[0], "train"))
    record = {"kind": kind, "settings": settings or {}, "facts": facts, "seconds": seconds, "peak_memory_mb": memory}
    inputs = {"inputs": {"indexes": [{"path": "../indexes/all.faiss"}]}} if "query_seconds" in facts else {}
    return {f"results/{path}.json": record | inputs}


def test_efficiency_from_records():
    """200 queries are searched in 10 s; of the 18,000 scored pairs, 90 a query, the system reranks 20 a query.

    The seconds of a program, and those that an earlier version recorded, have a start in them.
    """
    searched = {"queries": 200, "device": "cpu"}
    scored = {"queries": 200, "pairs": 18_000, "device": "cuda"}
    bm25 = step("indexes/all", 2, 90, bytes=300) | step("runs/bm25", 2, 250, query_seconds=2.0, **searched)
    reranked = step("runs/reranked", 9, 950, {"depth": 20}, queries=200, kind="rerank")
    cells = {
        "bm25": bm25,
        "stored": bm25 | step("pairs/p", 9, 800, pairs_per_second=0.0, **scored) | reranked,
        "brought": step("runs/brought", 9, 950, {"depth": 20}, queries=200, kind="adopt"),
        "s": step("embeddings/0", 100, 900, device="cuda")
        | step("embeddings/1", 50, 900, device="cuda")
        | step("indexes/all", 7, 100, bytes=1500)
        | step("runs/s", 9, 700, query_seconds=10.0, **searched)
        | step("pairs/p", 9, 800, pairs_per_second=30.0, **scored)
        | reranked
        | step("models/m", 900, 9000, {"recipe": "cross-encoder"}, queries=9, pairs=90)
        | step("training/m", 900, 9000, {"steps": 9}, device="cuda"),
        "paid": step("embeddings/0", 9, 800, tokens=100, price=3.0, device="endpoint")
        | step("runs/s", 9, 800, query_seconds=1.0, queries=200, tokens=10, price=0.5, device="endpoint")
        | step("pairs/p", 9, 800, queries=100, pairs=9, pairs_per_second=0.0, tokens=20, price=2.0),
        "unfinished": {},
        "program": step("runs/program", 2, 250, search_seconds=2.0, queries=200),
        "earlier": step("runs/earlier", 2, 250, search_seconds=2.0, **searched),
    }
    found = efficiency.efficiency({(system, "d"): steps for system, steps in cells.items()}).set_index("system")
    assert found["tokens"].notna().to_dict() == {name: name == "paid" for name in cells if name != "unfinished"}
    assert found.drop(columns="tokens").loc["s"].to_dict() == pytest.approx(
        {
            "dataset": "d",
            "index_bytes": 1500,
            "index_seconds": 157,
            "query_ms": 50 + 1000 * 20 / 30,
            "peak_memory_mb": 800,
            "device": "cpu, cuda",
            "price": math.nan,
            "price_per_1000_queries": math.nan,
        },
        nan_ok=True,
    )
    spent = found.loc["paid", ["tokens", "price", "price_per_1000_queries"]]
    assert spent.tolist() == [130, 5.5, 2.5 + 20]
    assert found.loc["bm25", ["index_bytes", "query_ms", "peak_memory_mb"]].tolist() == [300, 10, 250]
    assert found.loc[["stored", "brought", "program", "earlier"], "query_ms"].isna().all()


def test_the_index_that_a_smaller_one_is_built_from_costs_a_search_nothing():
    """A fusion with the exact search of the same model searches both. Negatives may be mined from another index."""

    def reads(made: dict[str, Any], option: str, *names: str) -> dict[str, Any]:
        """Add the files that a step reads, named relative to its record."""
        return {path: of | {"inputs": {option: [{"path": name} for name in names]}} for path, of in made.items()}

    sizes = {"c/0": 1000, "c/1": 1000, "mined/0": 9000}
    steps = {
        path: of for name, size in sizes.items() for path, of in step(f"indexes/{name}", 1, 90, bytes=size).items()
    }
    for part in "01":
        steps |= reads(step(f"indexes/c/int8/{part}", 1, 90, bytes=250), "exact", f"../{part}.faiss")
    search = {"query_seconds": 1.0, "queries": 9}
    steps |= reads(
        step("runs/s/c", 1, 90, **search), "indexes", *(f"../../indexes/c/int8/{part}.faiss" for part in "01")
    )
    exact = reads(step("runs/t/c", 1, 90, **search), "indexes", *(f"../../indexes/c/{part}.faiss" for part in "01"))
    found = efficiency.efficiency({("approximate", "c"): steps, ("fused", "c"): steps | exact})
    assert found["index_bytes"].tolist() == [500, 2500]


def latency_table() -> pd.DataFrame:
    """A reranked system on two datasets and two kinds of hardware, and first stages on one."""
    rows = [
        ("ce", "x", "retrieve and rerank", 100, True, 500.0, 600.0, "cpu"),
        ("ce", "x", "retrieve and rerank", 100, True, 40.0, 45.0, "H100"),
        ("ce", "x", "rerank", 100, False, 20.0, 25.0, "H100"),
        ("ce", "y", "retrieve and rerank", 100, True, 60.0, 65.0, "H100"),
        ("bm25", "x", "retrieve", 1000, True, 9.0, 20.0, "cpu"),
        ("dpr", "x", "retrieve", 1000, True, 7.0, 12.0, "cpu"),
    ]
    names = ["system", "dataset", "step", "depth", "as_run", "p50_ms", "p95_ms", "hardware"]
    return pd.DataFrame(rows, columns=names).reindex(columns=efficiency.LATENCY_COLUMNS)


def test_a_trade_off_has_the_costs_of_all_datasets_of_a_system_as_it_runs():
    """Sizes add up, times and prices are means. Of a system with seeds, they are those of one seed on average."""
    cells = {"bm25": (10, 1, math.nan), "ce.seed1": (900, 2, 5), "ce.seed2": (1100, 4, 7), "dpr": (500, 5, 3)}
    rows = [(system, dataset, *of) for system, of in cells.items() for dataset in "xy"]
    names = ["index_bytes", "query_ms", "price_per_1000_queries"]
    costs = pd.DataFrame(rows, columns=["system", "dataset", *names])
    means = [("ndcg@10", "bm25", 0.4), ("ndcg@10", "ce", 0.5), ("ndcg@10", "dpr", 0.3), ("mrr@10", "ce", 0.1)]
    across = pd.DataFrame(means, columns=["metric", "system", "mean"]).assign(over="all", datasets=2)
    grid = pages.grid(1, 1).model_copy(update={"seeds": {"ce": ("ce.seed1", "ce.seed2")}})
    found = efficiency.trade_offs(pages.answers_of(efficiency=costs, across=across), grid, latency_table())
    found = found.set_index("system")
    assert found.loc[["ce", "dpr"], names].to_numpy().tolist() == [[2000, 3, 6], [1000, 5, 3]]
    assert found.loc["bm25", names[:2]].tolist() == [20, 1]
    assert found["latency_ms"].to_dict() == {"bm25": 9.0, "ce": 50.0, "dpr": 7.0}
    # DPR is smaller, faster and worse: but its time is within the noise of BM25's.
    for cost in ("index_bytes", "latency_ms"):
        assert found[f"{cost}_front"].to_dict() == {"bm25": True, "ce": True, "dpr": False}
    assert "query_ms_front" not in found, "a time in a batch is no latency"


def test_a_table_of_latency_is_read_as_it_was_written(tmp_path):
    table = latency_table().assign(precision="float32", device="cpu").fillna(0)
    table.to_csv(tmp_path / "latency.csv", index=False)
    pd.testing.assert_frame_equal(efficiency.read_latency(tmp_path / "latency.csv"), table, check_dtype=False)
    table.drop(columns="as_run").to_csv(tmp_path / "old.csv", index=False)
    with pytest.raises(DataError, match=r"old\.csv is damaged \(its columns must be system,dataset"):
        efficiency.read_latency(tmp_path / "old.csv")


def test_the_pareto_front():
    choose = random.Random(7)
    points = [(choose.randrange(8), choose.randrange(8)) for _ in range(40)]
    cost, value = (pd.Series(column, dtype=float) for column in zip(*points, strict=True))
    expected = [not any(c <= x and v >= y and (c, v) != (x, y) for c, v in points) for x, y in points]
    assert efficiency.on_front(cost, value, cost).tolist() == expected
    assert 1 < sum(expected) < 40
    lacking = pd.Series([1, math.nan])
    assert efficiency.on_front(lacking, lacking[::-1], lacking).tolist() == [False, False]
    assert efficiency.on_front(pd.Series([1.2, 2]), pd.Series([0.79, 0.8]), pd.Series([2.1, 3])).tolist() == [
        False,
        True,
    ]
