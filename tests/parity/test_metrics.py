"""The evaluation against trec_eval (pytrec_eval), and against the definitions where trec_eval has no such metric.

Written from the protocol: scores compare as float32, ties go to the larger document id, the mean is over all
queries with qrels. Nothing here is taken from beirgrid.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import ir_measures
import numpy as np
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from beir.retrieval import custom_metrics
from helpers import main

from beirgrid import measures
from beirgrid.collections.qrels import read as read_qrels
from beirgrid.core.errors import DataError
from beirgrid.measures import written
from beirgrid.runs import runs

Grades = dict[str, dict[str, int]]
Scores = dict[str, dict[str, float]]
Values = dict[str, list[float]]  # "name@k": one value per query with qrels, in the order of the qrels

EXACT = 1e-12
CUTOFFS = (1, 3, 5, 10, 100, 1000)
TREC_NAMES = {"ndcg": "ndcg_cut", "recall": "recall", "map": "map_cut", "p": "P", "success": "success"}
OWN_NAMES = ("recall_cap", "ndcg_burges", "hole", "hole_corpus")
# Metrics of trec_eval, also with its option -J, and those that it lacks.
TREC_METRICS = [f"{name}@{k}" for name in (*TREC_NAMES, "mrr", "ndcg_judged") for k in CUTOFFS]
OWN_METRICS = [f"{name}@{k}" for name in OWN_NAMES for k in CUTOFFS]

# Ids, some of which sort differently as numbers or as UTF-16 units than as strings ("ﬀ" before "𝔘").
IDS = [str(n) for n in range(700)] + [f"{mark}{n}" for mark in ("d", "é", "文", "ﬀ", "𝔘") for n in range(180)]


# Random collections ---------------------------------------------------------------------------------------------------

# Grades to draw, and what draws a score, by name.
COLLECTIONS: dict[str, tuple[tuple[int, ...], Callable[[random.Random], float]]] = {
    "ties": ((0, 1, 2, 3), lambda rng: float(rng.randrange(5))),
    "all-equal": ((1,), lambda rng: 1.0),
    "beyond-float32": ((0, 0, 1, 2, 3), lambda rng: rng.choice((1, 2, 40)) * (1 + rng.randrange(1000) * 1e-11)),
    "one-ulp-apart": ((-1, 0, 1, 2), lambda rng: 100 + rng.randrange(300) * 2.0**-17),
    "negative": ((-2, -1, 0, 1, 2, 3), lambda rng: round(rng.gauss(-5, 4), 2)),
    "tiny-or-huge": ((0, 1), lambda rng: rng.uniform(-1, 1) * 10.0 ** rng.choice((-40, -30, 0, 7, 30))),
}


def random_grades(rng: random.Random, grades: tuple[int, ...]) -> dict[str, int]:
    if rng.random() < 0.12:
        grades = (0, -1)  # no relevant document
    count = rng.choice((1, 2, rng.randint(3, 30), rng.randint(100, 300)))
    return {document: rng.choice(grades) for document in rng.sample(IDS, count)}


def random_scores(rng: random.Random, query: str, judged: list[str], score: Callable) -> dict[str, float]:
    """Return document id to score: short or long, many judged documents, half with the query's own id."""
    depth = rng.choice((1, 2, rng.randint(3, 12), rng.randint(90, 120), rng.randint(950, 1300)))
    documents = rng.sample(IDS, depth) + rng.sample(judged, rng.randint(0, len(judged)))
    documents = [document for document in dict.fromkeys(documents) if document != query]
    rng.shuffle(documents)
    scores = {document: score(rng) for document in documents[:depth]}
    if rng.random() < 0.5:
        scores[query] = max(scores.values()) + rng.choice((-1, 0, 1))
    return scores


def random_collection(name: str, queries: int) -> tuple[Grades, Scores]:
    rng = random.Random(f"{name} {queries}")
    (grades, score), qrels, run = COLLECTIONS[name], {}, {}
    for query in rng.sample(IDS, queries):
        qrels[query] = random_grades(rng, grades)
        run[query] = random_scores(rng, query, list(qrels[query]), score)
    for missing, only_itself in zip(list(run)[::10], list(run)[1::10], strict=False):
        run[missing], run[only_itself] = {}, {only_itself: 1.0}
    present = [query for query in run if run[query]]  # a run file holds no query without documents
    rng.shuffle(present)
    return qrels, {query: run[query] for query in present}


# Files ----------------------------------------------------------------------------------------------------------------


def write_text(path: Path, run: Scores) -> None:
    """Write TREC lines of all queries mixed, with every digit and meaningless ranks, as trec_eval reads them."""
    lines = [f"{q} Q0\t{d}  7 {score!r} tag\n" for q, scores in run.items() for d, score in scores.items()]
    random.Random(0).shuffle(lines)
    path.write_text("".join(lines), encoding="utf-8")


def write_ranking(path: Path, run: Scores) -> None:
    """Write rankings through beirgrid, which holds float32 scores."""
    rankings = {q: runs.Ranking(list(s), np.array(list(s.values()), np.float32)) for q, s in run.items()}
    runs.write(path, rankings, "tag")


# References -----------------------------------------------------------------------------------------------------------


def trec_order(scores: dict[str, float]) -> list[str]:
    """Return the documents by (float32 score, id as bytes), both descending."""
    single = {document: struct.unpack("f", struct.pack("f", score))[0] for document, score in scores.items()}
    return sorted(scores, key=lambda document: (single[document], document.encode()), reverse=True)


def trec_values(qrels: Grades, run: Scores) -> Values:
    """Return pytrec_eval's values; queries that it does not return have 0.

    Grades below -1 make pytrec_eval 0.5.11 write outside its memory, so it gets -1 in their place.
    """
    qrels = {query: {d: max(grade, -1) for d, grade in grades.items()} for query, grades in qrels.items()}
    wanted = {f"{trec}.{','.join(map(str, CUTOFFS))}" for trec in TREC_NAMES.values()}
    found = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(run)
    values = {
        f"{name}@{k}": [found[q][f"{trec}_{k}"] if q in found else 0.0 for q in qrels]
        for name, trec in TREC_NAMES.items()
        for k in CUTOFFS
    }
    for k in CUTOFFS:
        cut = {query: {d: scores[d] for d in trec_order(scores)[:k]} for query, scores in run.items()}
        found = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(cut)
        values[f"mrr@{k}"] = [found[q]["recip_rank"] if q in found else 0.0 for q in qrels]
    wanted = {f"ndcg_cut.{','.join(map(str, CUTOFFS))}"}
    found = pytrec_eval.RelevanceEvaluator(qrels, wanted, judged_docs_only_flag=True).evaluate(run)
    return values | {f"ndcg_judged@{k}": [found.get(q, {}).get(f"ndcg_cut_{k}", 0.0) for q in qrels] for k in CUTOFFS}


def dcg(grades: list[int]) -> float:
    return math.fsum((2.0 ** max(grade, 0) - 1) / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))


def slow_ndcg_burges(grades: dict[str, int], ranked: list[str], k: int) -> float:
    ideal = dcg(sorted(grades.values(), reverse=True)[:k])
    return dcg([grades.get(document, 0) for document in ranked[:k]]) / ideal if ideal else 0.0


def slow_recall_cap(grades: dict[str, int], ranked: list[str], k: int) -> float:
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranked[:k])) / min(len(relevant), k) if relevant else 0.0


def slow_hole(judged: Collection[str], ranked: list[str], k: int) -> float:
    return len([document for document in ranked[:k] if document not in judged]) / k


def slow_values(qrels: Grades, run: Scores) -> Values:
    """Return the metrics that trec_eval lacks, from their definitions."""
    ranked = {query: trec_order(run.get(query, {})) for query in qrels}
    judged = {document for grades in qrels.values() for document in grades}
    values: Values = {}
    for k in CUTOFFS:
        values[f"recall_cap@{k}"] = [slow_recall_cap(qrels[q], ranked[q], k) for q in qrels]
        values[f"ndcg_burges@{k}"] = [slow_ndcg_burges(qrels[q], ranked[q], k) for q in qrels]
        values[f"hole@{k}"] = [slow_hole(qrels[q], ranked[q], k) for q in qrels]
        values[f"hole_corpus@{k}"] = [slow_hole(judged, ranked[q], k) for q in qrels]
    return values


def assert_equal(got: dict[str, np.ndarray], expected: Values, queries: list[str]) -> None:
    """Compare values per query and mean; name the metric and the query with the largest difference."""
    for name, values in expected.items():
        assert len(got[name]) == len(values) == len(queries)
        difference = np.abs(np.asarray(got[name]) - values)
        worst = int(difference.argmax())
        assert difference[worst] <= EXACT, f"{name}, query {queries[worst]!r}: {got[name][worst]} != {values[worst]}"
        assert abs(float(np.mean(got[name])) - math.fsum(values) / len(queries)) <= EXACT, name


# Tests ----------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    qrels: Grades
    run: Scores
    read: runs.Run


@pytest.fixture(scope="module", params=[f"{name} {form}" for name in COLLECTIONS for form in ("text", "ranking")])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, form = request.param.split()
    qrels, run = random_collection(name, 60 if form == "text" else 45)
    path = tmp_path_factory.mktemp("runs") / ("plain.run" if form == "text" else "some.run.gz")
    (write_text if form == "text" else write_ranking)(path, run)
    return Case(qrels, run, runs.read(path))


def test_metrics_equal_trec_eval(case: Case) -> None:
    got = measures.per_query(case.read, case.qrels, TREC_METRICS)
    assert_equal(got, trec_values(case.qrels, case.run), list(case.qrels))


def test_metrics_that_trec_eval_lacks_equal_their_definitions(case: Case) -> None:
    got = measures.per_query(case.read, case.qrels, OWN_METRICS)
    assert_equal(got, slow_values(case.qrels, case.run), list(case.qrels))


def test_holes_of_the_corpus_are_those_of_beir(case: Case) -> None:
    """beir rounds to five digits, and sorts by score only, so it gets ranks."""
    ranks = {q: {document: -float(rank) for rank, document in enumerate(case.read[q].ids)} for q in case.read}
    expected = custom_metrics.hole(case.qrels, ranks, list(CUTOFFS))
    got = measures.per_query(case.read, case.qrels, [f"hole_corpus@{k}" for k in CUTOFFS])
    assert [values.mean() for values in got.values()] == pytest.approx([*expected.values()], abs=5.1e-6)
    assert [*expected] == [f"Hole@{k}" for k in CUTOFFS]
    assert got["hole_corpus@10"].mean() > 0


def test_command_line_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    qrels, run = random_collection("beyond-float32", 80)
    judgements = [f"{query}\t{document}\t{grade}\n" for query, of in qrels.items() for document, grade in of.items()]
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judgements), encoding="utf-8")
    write_text(Path("some.run"), run)
    assert read_qrels(Path("qrels.tsv")) == qrels
    output, per_query = Path("metrics.json"), Path("per_query.parquet")
    command = ["evaluate", "--system", "s", "--dataset", "d", "--run", "some.run", "--qrels", "qrels.tsv"]
    command += ["--output", "metrics.json", "--per-query", "per_query.parquet"]
    assert main([*command, "--metrics", *TREC_METRICS, *OWN_METRICS]) == 0

    expected = trec_values(qrels, run) | slow_values(qrels, run)
    table = pq.read_table(per_query)
    assert table["query"].to_pylist() == list(qrels)
    assert_equal({name: table[name].to_numpy() for name in expected}, expected, list(qrels))
    facts = json.loads(output.read_text(encoding="utf-8"))["facts"]
    assert facts["means"] == pytest.approx({n: math.fsum(v) / len(v) for n, v in expected.items()}, abs=EXACT)
    assert facts["queries"] == len(qrels)
    assert facts["queries_without_documents"] == len(qrels) - len(run)
    assert facts["order"] == "trec_eval 9"


def test_evaluate_tells_both_values_where_trec_eval_10_has_another_order(tmp_path, monkeypatch, capsys):
    """trec_eval 10 compares doubles: ranks in their order give its values by pytrec_eval, which compares floats."""
    monkeypatch.chdir(tmp_path)
    qrels, run = random_collection("beyond-float32", 40)
    lines = [f"{query} 0 {document} {grade}\n" for query, of in qrels.items() for document, grade in of.items()]
    Path("qrels.txt").write_text("".join(lines), encoding="utf-8")
    write_text(Path("some.run"), run)
    orders = {
        query: [d for d, _ in sorted(of.items(), key=lambda pair: (pair[1], pair[0].encode()), reverse=True)]
        for query, of in run.items()
    }
    differ = [query for query, order in orders.items() if order != trec_order(run[query])]
    ranks = {query: {document: -float(rank) for rank, document in enumerate(order)} for query, order in orders.items()}
    there = trec_values(qrels, ranks)
    here = trec_values(qrels, run)
    command = ["evaluate", "--run", "some.run", "--qrels", "qrels.txt", "--metrics", "ndcg@10", "recall@1000", "p@1"]
    assert main(command) == 0
    told = capsys.readouterr().err
    assert f"which differs for {len(differ)} of {len(qrels)} queries, " in told
    for name, label in (("ndcg@10", "nDCG@10"), ("recall@1000", "R@1000"), ("p@1", "P@1")):
        pair = [f"{math.fsum(values[name]) / len(qrels):.6f}" for values in (here, there)]
        assert (f"{label} {pair[0]} → {pair[1]}" in told) == (pair[0] != pair[1])
    assert 5 < len(differ) < len(qrels)
    assert " → " in told
    singles = {query: {d: float(np.float32(score)) for d, score in of.items()} for query, of in run.items()}
    write_text(Path("some.run"), singles)  # ties, in both orders
    assert main(command) == 0
    assert "trec_eval 10" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["ndcg", "ndcg_burges", "ndcg_judged", "recall", "mrr", "map", "p", "success"])
def test_a_metric_has_the_name_and_the_values_of_ir_measures(name):
    rng = np.random.default_rng(5)
    queries = [str(query) for query in range(1, 13)]
    qrels = {query: {f"d{n}": int(rng.integers(4)) for n in rng.choice(40, 15, replace=False)} for query in queries}
    run = {query: {f"d{n}": float(score) for n, score in enumerate(rng.permutation(40))} for query in queries}
    measure = ir_measures.parse_measure(written(f"{name}@10"))
    assert str(measure) == written(f"{name}@10")
    expected = {found.query_id: found.value for found in ir_measures.iter_calc([measure], qrels, run)}
    ranked = {query: runs.canonical(query, scores, list(scores.values())) for query, scores in run.items()}
    got = measures.per_query(ranked, qrels, [str(measure)])[str(measure)]
    # gdeval, which computes nDCG(dcg='exp-log2'), prints five digits.
    assert got == pytest.approx([expected[query] for query in queries], abs=1e-5 if name == "ndcg_burges" else 1e-9)


OTHERS = ["Bpref", "Rprec", "infAP", "Judged@10", "P(rel=2)@10", "RR", "nDCG", "IPrec@0.1"]
OTHERS += [f"nDCG(gains={{1:5}})@{k}" for k in range(1, 31)]  # ir_measures takes its measures in random order


def test_other_measures_of_ir_measures_have_its_values():
    """Several at once: ir_measures would compute nDCG with the gains that another measure has."""
    rng = np.random.default_rng(5)
    queries = [str(query) for query in range(1, 13)]
    qrels = {query: {f"d{n}": int(rng.integers(-1, 4)) for n in rng.choice(40, 15, replace=False)} for query in queries}
    run = {query: {f"d{n}": float(score) for n, score in enumerate(rng.permutation(40))} for query in queries}
    ranked = {query: runs.canonical(query, scores, list(scores.values())) for query, scores in run.items()}
    got = measures.per_query(ranked, qrels, [*OTHERS, "ndcg@10"])
    for name in (*OTHERS, "nDCG@10"):
        found = ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)
        expected = {one.query_id: one.value for one in found}
        assert got[measures.metric_key(name)] == pytest.approx([expected[query] for query in queries], abs=1e-12), name
        assert len({*expected.values()}) > 1


@pytest.mark.parametrize("listed", [False, True])
def test_p_mrr_is_that_of_mteb(listed):
    """Each query occurs twice, with an instruction and with a changed one, which excludes no or some documents.

    A list of changes has, beside them, documents whose grade falls from 2 to 1.
    """
    from mteb._evaluators.retrieval_metrics import evaluate_p_mrr_change

    draw = random.Random(3)
    qrels: Grades = {}
    found: Scores = {}
    changed = {}
    for number in range(40):
        relevant = draw.sample(range(30), 6)
        excluded = [f"d{one}" for one in relevant[: draw.randint(0, 4)]]
        changed[str(number)] = [*excluded, *([f"d{relevant[-1]}"] if listed and number % 3 else [])]
        for kind in ("og", "changed"):
            grades = {f"d{one}": 1 for one in relevant} | {f"d{relevant[-1]}": 2 if kind == "og" else 1}
            qrels[f"{number}-{kind}"] = grades | (dict.fromkeys(excluded, 0) if kind == "changed" else {})
            ranked = draw.sample(range(30), draw.randint(20, 30))
            found[f"{number}-{kind}"] = {f"d{one}": draw.choice([0.5, draw.random()]) for one in ranked}
    assert [] in changed.values()
    expected = evaluate_p_mrr_change(qrels, found, changed, [1, 3, 5, 10, 20, 100, 1000])["p-MRR"]
    run = {query: runs.canonical(query, scores, list(scores.values())) for query, scores in found.items()}
    changes = {f"{number}-{kind}": of for number, of in changed.items() for kind in ("og", "changed")}
    values = measures.per_query(run, qrels, ["p_mrr@1000", "ndcg@10"], changes if listed else None)["p_mrr@1000"]
    assert np.mean(values) == pytest.approx(expected, abs=1e-12)
    assert abs(expected) > 0.001
    for others, message in (
        ({"q1": {"d1": 1}}, "compares queries ID-og and ID-changed; 'q1' is in no such pair"),
        ({"1-og": {"d1": 1}, "1-changed": {"d1": 2}}, "no pair of queries has one"),
    ):
        with pytest.raises(DataError, match=message):
            measures.per_query({}, others, ["p_mrr@1000"])


def test_metrics_over_groups_of_queries_are_those_of_mteb():
    """Groups of different sizes, whose queries share their judgements or have one relevant document each."""
    from mteb._evaluators import retrieval_metrics as mteb_metrics

    draw = random.Random(5)
    pairs: Grades = {f"{n}_q{side}": {f"d{n}-{side}": 1} for n in range(30) for side in (1, 2)}
    groups: Grades = {
        f"{n}_{i}": {f"d{one}": one % 3 for one in range(n, n + 6)} for n in range(30) for i in range(1 + n % 4)
    }
    for qrels in (pairs, groups):
        others = {
            query: {f"d{number}-{side}" for side in (1, 2)} if qrels is pairs else {f"d{one}" for one in range(30)}
            for query in qrels
            for number in [query.partition("_")[0]]
        }
        found = {
            query: {one: draw.choice([0.5, draw.random()]) for one in sorted({*others[query], *grades})}
            for query, grades in qrels.items()
        }
        run = {query: runs.canonical(query, scores, list(scores.values())) for query, scores in found.items()}
        scores = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.1"}).evaluate(found)
        expected = {"robustness@10": mteb_metrics.robustness_at_10(qrels, found, scores)}
        if qrels is pairs:
            expected["paired_accuracy@1"] = mteb_metrics.paired_accuracy(qrels, found, scores)
        else:
            merged = mteb_metrics.max_over_subqueries(qrels, found, [1, 3, 5, 10, 20, 100, 1000])
            expected["map_subqueries@1000"] = merged["max_over_subqueries_map_at_1000"]
        got = measures.per_query(run, qrels, list(expected))
        for name, value in expected.items():
            # mteb rounds what it merges to five decimals.
            assert np.mean(got[name]) == pytest.approx(value, abs=1e-5 if name.startswith("map") else 1e-12), name
            assert 0.001 < value < 0.999
    with pytest.raises(DataError, match="compares queries ID_q1 and ID_q2; 'q_q1' is in no such pair"):
        measures.per_query({}, {"q_q1": {"d1": 1}}, ["paired_accuracy@1"])
