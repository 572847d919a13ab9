"""Measures: one row each, and their values per query. ir_measures computes a measure that has no function here.

Files and configurations have the name of a metric (``ndcg@10``), tables its label (``nDCG@10``), which is what
ir_measures calls it. Any other measure of ir_measures can be named too, with its parameters (``RBP(rel=1)``).

Snakemake reads this module with the configuration: numpy and ir_measures are imported where they are needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from .core.errors import BeirgridError, DataError, nearest, quoted

if TYPE_CHECKING:
    import numpy as np

Grades = Mapping[str, int]
Qrels = Mapping[str, Grades]
Changes = Mapping[str, Collection[str]] | None
# Per query: its documents, best first, and their scores, float32 [documents].
Ranked = Mapping[str, tuple[list[str], Any]]
# The queries of each group, by what their ids have in common.
Groups = dict[str, list[str]]

# Stands for the main metric of each dataset.
MAIN = "main"
# The main metric of a dataset whose entry names none.
USUAL = "ndcg@10"
# What config.yaml asks for.
STANDARD = ("ndcg@10", "recall@100", "recall@1000", "mrr@10", "map@1000", "p@10")
# Most documents of a run.
_DEEPEST = 1_000_000


class MetricError(BeirgridError, ValueError):
    """A text names no metric. As a ValueError, a validator may raise it."""


class Measure(NamedTuple):
    """A measure. One without a function is computed by ir_measures, which knows it by its label."""

    name: str
    # The paper or program that defines it.
    source: str
    # What ir_measures calls it, which tables show.
    label: str = ""
    # From the grades of a query, its ranked documents and the cut-off.
    of_query: Callable[[Grades, list[str], int], float] | None = None
    # Whether a document that is judged for any query counts as judged for all.
    judged_for_any: bool = False
    # From the queries of each group, by what their ids have in common.
    of_groups: Callable[[Groups, Ranked, Qrels, Changes, int], dict[str, float]] | None = None
    # What the id of a query has in common with the others of its group.
    group: Callable[[str], str] | None = None
    # How the ids of a pair end.
    pair: tuple[str, ...] = ()
    lower_is_better: bool = False
    # mteb's name, if it has another.
    mteb: str = ""


class Metric(NamedTuple):
    """A measure of the first ``k`` documents; of all, if k is 0."""

    measure: Measure
    k: int = 0

    @property
    def name(self) -> str:
        """The metric's name in files."""
        return f"{self.measure.name}@{self.k}" if self.k else self.measure.name


@cache
def parse_metric(text: str) -> Metric:
    """Read ``name@k``, a measure as ir_measures writes it, or ``main``.

    Raises:
        MetricError: there is no such metric, or none of the installed packages computes it.
    """
    if text == MAIN:
        return Metric(Measure(MAIN, "the entry of the dataset"))
    name, _, k = text.partition("@")
    is_row = name in _ROWS and re.fullmatch("[1-9][0-9]*", k)
    metric = Metric(_ROWS[name], int(k[:9])) if is_row else _of_ir_measures(text, name.partition("(")[0])
    if metric.k > _DEEPEST:
        raise MetricError(f"{quoted(text)} looks deeper than any run ({_DEEPEST:,} documents)")
    return metric


def _of_ir_measures(text: str, name: str) -> Metric:
    import ir_measures

    try:
        found = ir_measures.parse_measure(text)
        programs = [program for program in ir_measures.DefaultPipeline.providers if program.supports(found)]
        k = found.params.pop("cutoff", None)
        if k == 0:
            raise ValueError
    except (NameError, SyntaxError, TypeError, ValueError, AssertionError) as error:
        if name in _ROWS and "(" not in text:
            raise MetricError(f"{text!r} is not a metric of the form name@k, such as {name}@10") from None
        if name in ir_measures.measures.registry:  # the message may end with the address of an object
            raise MetricError(f"ir_measures refuses the metric {text!r}: {str(error).partition('=<')[0]}") from None
        hint = nearest(name, [*ir_measures.measures.registry, *MEASURES])
        raise MetricError(f"there is no metric {name!r}{hint} (known: {', '.join(MEASURES)})") from None
    if k and str(found) in _ROWS:
        return Metric(_ROWS[str(found)], k)
    if not any(program.is_available() for program in programs):
        why = programs[0].install_instructions() if programs else "it takes other parameters, or needs more of them"
        raise MetricError(f"ir_measures cannot compute {text!r} here: {why}")
    return Metric(Measure(str(found), "ir_measures"), k or 0)


def metric_key(text: str) -> str:
    """Return a metric's name in files: ``ndcg@10`` for ``nDCG@10``. A text that names none is a MetricError."""
    return parse_metric(text).name


def written(name: str) -> str:
    """Return the label of a metric's name in files: ``nDCG@10`` for ``ndcg@10``. Other texts are returned unchanged."""
    base, at, k = name.partition("@")
    return f"{MEASURES[base].label or base}{at}{k}" if base in MEASURES else name


def lower_is_better(metric: str) -> bool:
    """Tell whether lower values of a metric are better, as for holes."""
    return parse_metric(metric).measure.lower_is_better


def per_query(run: Ranked, qrels: Qrels, metrics: Sequence[str], changes: Changes = None) -> dict[str, np.ndarray]:
    """Compute metrics of a run per query with qrels. A query that the run lacks has no documents.

    Args:
        run: rankings by query, in canonical order (``runs.read``).
        qrels: per query, document id to grade. A grade above 0 is relevant.
        changes: per query, the documents that p_mrr compares; those that are relevant for one query of a pair only,
            without a list.

    Returns:
        float64 [queries] by metric name, in the order of the qrels. Queries without a retrieved document score 0;
        queries without a relevant document score 0 in all but the holes.

    Raises:
        BeirgridError: a metric is unknown.
        DataError: a metric compares groups of queries, and a query is in none.
    """
    import numpy as np

    parsed = {name: parse_metric(name) for name in metrics}
    judged = list(qrels.values())
    ranked = [run[query][0] if query in run else [] for query in qrels]
    others = [metric for metric in parsed.values() if not (metric.measure.of_query or metric.measure.of_groups)]
    values = _by_ir_measures(others, judged, ranked)
    for metric in parsed.values():
        if compute := metric.measure.of_query:
            of_all = [dict.fromkeys(chain.from_iterable(judged), 0)] * len(judged)
            pairs = zip(of_all if metric.measure.judged_for_any else judged, ranked, strict=True)
            values[metric] = np.array([compute(grades, ids, metric.k) for grades, ids in pairs], np.float64)
        elif metric.measure.of_groups:
            values[metric] = _by_groups(metric, run, qrels, changes)
    return {name: values[metric] for name, metric in parsed.items()}


def _by_ir_measures(
    metrics: list[Metric], qrels: Sequence[Grades], ranked: Sequence[list[str]]
) -> dict[Metric, np.ndarray]:
    import ir_measures
    import numpy as np

    # Ranks in place of scores leave trec_eval no ties to break. It would cut ids at a zero byte. A grade of -1 is its
    # mark of a document that is not judged; with others below 0, pytrec_eval writes outside its memory.
    names = [{document: str(rank) for rank, document in enumerate(ids)} for ids in ranked]
    judged: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for number, (ranks, grades) in enumerate(zip(names, qrels, strict=True)):
        graded = enumerate(grades.items())
        judged[str(number)] = {ranks.get(document, f"-{n}"): max(grade, -1) for n, (document, grade) in graded}
        if ranks:
            run[str(number)] = {name: -float(name) for name in ranks.values()}
    # trec_eval's RR has no cut-off. That of RR@k in ir_measures takes as long as all other metrics together.
    asked = {m: ir_measures.parse_measure("RR" if m.measure is MEASURES["mrr"] else written(m.name)) for m in metrics}
    # Measures of other parameters are computed apart: ir_measures 0.4.3 would take the gains of one for all.
    together: dict[str, list[Any]] = {}
    for measure in asked.values():
        together.setdefault(str(measure.params | {"cutoff": 0}), []).append(measure)
    found = {measure: np.zeros(len(qrels)) for measure in asked.values()}
    for query, measure, value, *_ in chain(*(ir_measures.iter_calc(alike, judged, run) for alike in together.values())):
        found[measure][int(query)] = value
    cut = {metric: 1 / metric.k if metric.measure is MEASURES["mrr"] else -np.inf for metric in metrics}
    return {metric: np.where(found[measure] < cut[metric], 0, found[measure]) for metric, measure in asked.items()}


def _by_groups(metric: Metric, run: Ranked, qrels: Qrels, changes: Changes) -> np.ndarray:
    """Return the values of groups for their queries, weighted so that the mean over queries is that over groups.

    A query of a group without a value has 0.
    """
    import numpy as np

    measure = metric.measure
    assert measure.group and measure.of_groups  # noqa: PT018
    stems = {query: measure.group(query) for query in qrels}
    groups: Groups = {}
    for query, stem in stems.items():
        groups.setdefault(stem, []).append(query)
    for stem, queries in groups.items():
        if measure.pair and {*queries} != {stem + end for end in measure.pair}:
            pair = " and ".join(f"ID{end}" for end in measure.pair)
            raise DataError(f"{measure.name} compares queries {pair}; {quoted(queries[0])} is in no such pair")
    values = measure.of_groups(groups, run, qrels, changes, metric.k)
    weights = {stem: len(qrels) / (len(values) * len(queries)) for stem, queries in groups.items()}
    return np.array([values.get(stem, 0.0) * weights[stem] for stem in stems.values()])


def _recall_cap(grades: Grades, ids: list[str], k: int) -> float:
    """Return the relevant documents in the top k, divided by the largest possible number."""
    relevant = sum(grade > 0 for grade in grades.values())
    return sum(grades.get(document, 0) > 0 for document in ids[:k]) / max(1, min(relevant, k))


def _ndcg_burges(grades: Grades, ids: list[str], k: int) -> float:
    """Return nDCG with the gain 2^grade - 1.

    ir_measures has it from a program in Perl that prints five digits. trec_eval, given such gains as grades, would
    allocate a counter for each whole number below the largest.
    """
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    return _dcg([grades.get(document, 0) for document in ids[:k]]) / _dcg(best[:k]) if best else 0.0


def _dcg(grades: list[int]) -> float:
    import numpy as np

    gains = 2.0 ** np.maximum(grades, 0) - 1
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def _hole(judged: Grades, ids: list[str], k: int) -> float:
    """Return the share of the top k that is not judged, also where fewer documents are retrieved."""
    return sum(document not in judged for document in ids[:k]) / k


def _p_mrr(groups: Groups, run: Ranked, qrels: Qrels, changes: Changes, k: int) -> dict[str, float]:
    """Return how an instruction moves the documents whose relevance it changes, from -1 (the wrong way) to 1.

    The queries of a pair differ in their instruction. A pair without such documents has no value. A document that is
    not ranked stands after the last.
    """
    import numpy as np

    values = {}
    for stem, queries in groups.items():
        ids = [run[query][0][:k] if query in run else [] for query in (f"{stem}-og", f"{stem}-changed")]
        ranks = [dict(zip(of_query, range(1, k + 1), strict=False)) for of_query in ids]
        relevant = [{document for document, grade in qrels[query].items() if grade > 0} for query in queries]
        listed = set[str]().union(*(changes.get(query, ()) for query in queries)) if changes else None
        if changed := relevant[0] ^ relevant[1] if listed is None else listed:
            pairs = [[of_query.get(document, len(of_query) + 1) for of_query in ranks] for document in sorted(changed)]
            moves = [after / before - 1 if before >= after else 1 - before / after for before, after in pairs]
            values[stem] = float(np.mean(moves))
    if not values:
        raise DataError("p_mrr compares documents whose relevance an instruction changes; no pair of queries has one")
    return values


def _lowest(
    groups: Groups, run: Ranked, qrels: Qrels, changes: Changes, k: int, measure: str = "ndcg"
) -> dict[str, float]:
    """Return the lowest value of the queries of a group."""
    (values,) = per_query(run, qrels, [f"{measure}@{k}"]).values()
    of_query = dict(zip(qrels, values.tolist(), strict=True))
    return {stem: min(of_query[query] for query in queries) for stem, queries in groups.items()}


def _paired_accuracy(groups: Groups, run: Ranked, qrels: Qrels, changes: Changes, k: int) -> dict[str, float]:
    """Return 1 for a pair if all relevant documents of both queries are found."""
    return {stem: float(low == 1) for stem, low in _lowest(groups, run, qrels, changes, k, "recall").items()}


def _map_subqueries(groups: Groups, run: Ranked, qrels: Qrels, changes: Changes, k: int) -> dict[str, float]:
    """Return AP of the queries of a group as one, in which a document has its highest score."""
    merged = {}
    for stem, queries in groups.items():
        best: dict[str, float] = {}
        for ids, scores in (run[query] for query in queries if query in run):
            for document, score in zip(ids, scores.tolist(), strict=True):
                best[document] = max(score, best.get(document, score))
        merged[stem] = (sorted(best, key=lambda document: (best[document], document), reverse=True), None)
    grades = {stem: qrels[queries[-1]] for stem, queries in groups.items()}
    return dict(zip(groups, per_query(merged, grades, [f"map@{k}"])[f"map@{k}"].tolist(), strict=True))


_TABLE = (
    Measure("ndcg", "Järvelin and Kekäläinen, 2002", "nDCG"),
    Measure("ndcg_burges", "Burges et al., 2005", "nDCG(dcg='exp-log2')", of_query=_ndcg_burges),
    Measure("ndcg_judged", "Sakai, 2007", "nDCG(judged_only=True)"),
    Measure("recall", "trec_eval: recall", "R"),
    Measure("recall_cap", "Thakur et al., 2021, Table 9", of_query=_recall_cap),
    Measure("mrr", "Kantor and Voorhees, 2000", "RR"),
    Measure("map", "trec_eval: map_cut", "AP"),
    Measure("p", "trec_eval: P", "P", mteb="precision"),
    Measure("success", "trec_eval: success", "Success", mteb="hit_rate"),
    Measure("hole", "Thakur et al., 2021", of_query=_hole, lower_is_better=True),
    Measure("hole_corpus", "Thakur et al., 2021, Table 4", of_query=_hole, judged_for_any=True, lower_is_better=True),
    Measure(
        "p_mrr",
        "Weller et al., 2024: FollowIR",
        of_groups=_p_mrr,
        group=lambda query: query.rpartition("-")[0],
        pair=("-og", "-changed"),
    ),
    Measure(
        "robustness", "Oh et al., 2024: InstructIR", of_groups=_lowest, group=lambda query: query.partition("_")[0]
    ),
    Measure(
        "paired_accuracy",
        "Weller et al., 2024: NevIR",
        of_groups=_paired_accuracy,
        group=lambda query: query.partition("_")[0],
        pair=("_q1", "_q2"),
    ),
    Measure(
        "map_subqueries",
        "Wu et al., 2020: MIND",
        of_groups=_map_subqueries,
        group=lambda query: query.rpartition("_")[0],
        mteb="max_over_subqueries_map",
    ),
)
MEASURES = {measure.name: measure for measure in _TABLE}
# By name and by label.
_ROWS = {measure.label: measure for measure in _TABLE if measure.label} | MEASURES
