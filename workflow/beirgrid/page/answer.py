"""Answer the question of a grid, for the top of the page and the end of a run, in its first metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..config.metric_names import lower_is_better, written
from ..results.answers import DONE, LEAST_DATASETS, STATUSES, ZERO_SHOT, Answers, main_comparison
from ..results.published import SCORE_IS_PUBLISHED
from ..results.summary import GridSummary
from . import texts
from .matrix import SIGNIFICANT, counts

# A paired test finds a difference of this many half intervals with a probability of 0.8: (1.96 + 0.84) / 1.96.
DETECTED = 1.43
# Share of unjudged documents among the top ten from which on the answer says so.
_UNJUDGED = 0.2
# Most datasets whose differences stand in a sentence; of more, it counts the verdicts.
_LISTED = 3


class Answer(NamedTuple):
    """Sentences on a grid.

    Attributes:
        sentences: the answer.
        caveats: what weakens it, and what is not known yet.
        more: the tests behind it.
    """

    sentences: list[str]
    caveats: list[str]
    more: list[str]

    def __str__(self) -> str:
        """Join all sentences."""
        return " ".join([*self.sentences, *self.caveats, *self.more])


class Difference(NamedTuple):
    """The difference of two systems on a dataset with its 95 % interval; ``p`` is NaN where nothing is tested."""

    size: float
    low: float
    high: float
    p: float = math.nan
    queries: int = 0

    def __neg__(self) -> Difference:
        """Return the difference of the systems in the other order."""
        return self._replace(size=-self.size, low=-self.high, high=-self.low)

    def __str__(self) -> str:
        """Format the difference and its interval."""
        return f"{texts.difference(self.size)} {texts.interval(self.low, self.high)}".rstrip()


def differences(pairs: pd.DataFrame) -> dict[tuple[str, str, str], dict[str, Difference]]:
    """Return the differences of all pairs by metric, system and other, in both orders, and by dataset.

    ``p`` is that of the randomisation test, without a correction.
    """
    by_pair: dict[tuple[str, str, str], dict[str, Difference]] = {}
    columns = ["difference", "difference_low", "difference_high", "p_randomisation", "queries"]
    keys = pairs[["metric", "system", "other", "dataset"]].itertuples(index=False)
    for (metric, system, other, dataset), numbers in zip(keys, pairs[columns].itertuples(index=False), strict=True):
        by_pair.setdefault((metric, system, other), {})[dataset] = Difference(*numbers)
        by_pair.setdefault((metric, other, system), {})[dataset] = -Difference(*numbers)
    return by_pair


def mean_difference(differences: Sequence[Difference]) -> Difference:
    """Average the differences of two systems on several datasets.

    Over five or more datasets, the interval and p are those of the t test that takes each dataset as one observation.
    Over fewer, the interval follows from those of the independent datasets, and there is no p.
    """
    from scipy.stats import ttest_1samp

    sizes = np.array([each.size for each in differences])
    mean = float(sizes.mean())
    if len(sizes) >= LEAST_DATASETS and np.ptp(sizes) > 0:
        test = ttest_1samp(sizes, 0)
        low, high = test.confidence_interval(0.95)
        return Difference(mean, float(low), float(high), float(test.pvalue))
    if len(sizes) >= LEAST_DATASETS:
        return Difference(mean, math.nan, math.nan)
    half = math.hypot(*((each.high - each.low) / 2 for each in differences)) / len(sizes)
    return Difference(mean, mean - half, mean + half)


def answer(grid: GridSummary, answers: Answers) -> Answer:
    """Answer a grid's question. A planned comparison is answered first; otherwise, which system is best."""
    across = main_comparison(answers.across[answers.across["metric"] == grid.metrics[0]])
    finished = counts(grid, answers)
    if across["mean"].notna().any():
        best = _leader(grid, answers, across.dropna(subset="mean"))
    else:
        lacking = "No system has a score on every dataset." if finished.get(DONE) else "No cell has a score yet."
        best = Answer([lacking], [], [])
    planned = _planned(grid, answers)
    if planned.sentences:
        best = planned._replace(more=[*best.sentences, *planned.more, *best.more])
    published = ["All values are published ones: nothing was run here."] if all_published(answers) else []
    caveats = dict.fromkeys([*published, *best.caveats, *_deviations(answers.verdicts), *_missing(finished, across)])
    return best._replace(caveats=list(caveats))


def all_published(answers: Answers) -> bool:
    """Tell whether the scores are published values."""
    return bool((answers.verdicts["verdict"] == SCORE_IS_PUBLISHED).any())


# A planned comparison -------------------------------------------------------------------------------------------------


def _planned(grid: GridSummary, answers: Answers) -> Answer:
    """Return the differences of the first planned system to each of the others, per dataset and over them."""
    mine, others = (grid.compare[0], grid.compare[1:]) if grid.compare else ("", ())
    metric = grid.metrics[0]
    by_pair = differences(answers.pairs[answers.pairs["metric"] == metric])
    tested: dict[str, dict[str, Difference]] = {}
    for other in others:
        of_pair = by_pair.get((metric, mine, other), {})
        if of_datasets := {name: of_pair[name] for name in grid.counted_once if name in of_pair}:
            tested[other] = of_datasets
    number = sum(map(len, tested.values()))
    correction = f", Bonferroni's correction for {number} comparisons" if number > 1 else ""
    sentences, tests = [], []
    for other, uncorrected in tested.items():
        of_datasets = {name: each._replace(p=min(1, each.p * number)) for name, each in uncorrected.items()}
        better = {name: _better(each, mine, other, metric) for name, each in of_datasets.items()}
        if len(of_datasets) == 1:
            where, size = next(iter(of_datasets.items()))
            sentences.append(f"{mine} minus {other} on {where}: {size}; {_verdict(better[where])}.")
        else:
            over = mean_difference(list(of_datasets.values()))
            said = [_verdict(_better(over, mine, other, metric))] if pd.notna(over.p) else []
            if len(of_datasets) <= _LISTED:
                said += [f"on {name} {each}, {_verdict(better[name])}" for name, each in of_datasets.items()]
            else:
                wins = [f"{name or 'neither'} on {count}" for name, count in Counter(better.values()).items()]
                said.append(f"better by dataset: {', '.join(wins)}")
            sentences.append(
                f"{mine} minus {other} on average over {len(of_datasets)} datasets: {over}; {'; '.join(said)}."
            )
        tests += [f"{other} on {name} {texts.probability(each.p)}" for name, each in of_datasets.items()]
    more = [f"p of {mine} minus {', '.join(tests)} (paired randomisation test{correction})."] if tests else []
    untold = [item for of in tested.values() for item in of.items() if item[1].p * number > SIGNIFICANT]
    caveats = [*_power(untold), *_unjudged(answers.scores, [mine, *others], grid)] if tests else []
    return Answer(sentences, caveats, more)


def _better(difference: Difference, mine: str, other: str, metric: str) -> str:
    """Return the better of two systems; empty if they cannot be told apart."""
    if difference.p > SIGNIFICANT:
        return ""
    return mine if (difference.size > 0) != lower_is_better(metric) else other


def _verdict(better: str) -> str:
    return f"{better} is better" if better else "it cannot be told which is better"


def _power(untold: Sequence[tuple[str, Difference]]) -> Iterator[str]:
    """Yield a sentence on the differences that the queries can tell, from datasets with pairs that they do not."""
    least = [
        (DETECTED * (each.high - each.low) / 2, name, each.queries) for name, each in untold if each.high > each.low
    ]
    if least:
        difference, name, queries = max(least)
        counted = texts.quantity(queries, "query", "queries")
        yield f"The {counted} of {name} can only tell differences above {difference:.2g}."


def _unjudged(scores: pd.DataFrame, systems: Collection[str], grid: GridSummary) -> Iterator[str]:
    """Yield a sentence on the system with the most unjudged documents, if they are many."""
    rows = scores[scores["system"].isin(list(systems)) & scores["dataset"].isin(grid.counted_once)]
    shares = rows.groupby("system")["not_judged"].mean().dropna()
    if len(shares) and shares.max() >= _UNJUDGED:
        share = f"{100 * shares.max():.0f} % of the top ten documents of {shares.idxmax()}"
        yield f"{share} are not judged, and count as not relevant."


# The best system ------------------------------------------------------------------------------------------------------


def _leader(grid: GridSummary, answers: Answers, compared: pd.DataFrame) -> Answer:
    """Return the best system, and the systems that cannot be told apart from it. Corrected p values decide."""
    lower = lower_is_better(grid.metrics[0])
    lead, *rows = texts.rows(compared.sort_values("mean", ascending=lower, kind="stable"))
    others = [row.system for row in rows]
    best = f"the {'lowest' if lower else 'highest'} {written(lead.metric)}" if others else written(lead.metric)
    sentences, caveats, more = [f"{lead.system} has {best} on {_score(answers, lead)}."], list(_training(lead)), []
    tests, by = _tests(answers, compared, lead)
    alike, test = list[str](), by
    if not others:
        caveats.append("No other system is compared.")
    elif 1 < lead.datasets < LEAST_DATASETS:
        sentences.append(_one_by_one(answers.pairs, others, lead))
        test = f"randomised Tukey HSD test, Bonferroni's correction for {lead.datasets} datasets"
    else:
        rivals, apart = others, {name for name, of in tests.items() if of.p <= SIGNIFICANT}
        if lead.system != lead.baseline:
            rivals = [name for name in others if name != lead.baseline]
            apart, test = _apart(answers.pairs, compared, lead)
        alike = [name for name in rivals if name not in apart]
        if alike:
            sentences.append(f"{texts.few(alike)} cannot be told apart from it.")
        elif rivals:
            number = f"each of the {len(rivals)} other systems" if len(rivals) > 1 else rivals[0]
            sentences.append(f"It can be told apart from {number}.")
    if len(sentences) > 1:
        more.append(f"Systems are told apart by a {test}, {SIGNIFICANT:g}.")
    if lead.system in tests:
        (more if len(sentences) > 1 else sentences).append(_difference(lead, tests[lead.system], by))
        alike += [lead.baseline] if tests[lead.system].p > SIGNIFICANT else []
    elif grid.baseline and grid.baseline not in (lead.system, *others):
        caveats.append(f"The baseline {grid.baseline} is not compared, because it lacks scores.")
    if lead.datasets == 1:
        caveats += _few_queries(tests)
        known = differences(_of_lead(answers.pairs, lead))
        caveats += _power([item for name in alike for item in known[lead.metric, lead.system, name].items()])
    caveats += _unjudged(answers.scores, [lead.system], grid)
    if lead.datasets >= LEAST_DATASETS and lead.note:
        caveats.append(f"Note: {lead.note}.")
    return Answer(sentences, caveats, more)


def _of_lead(table: pd.DataFrame, lead: Any) -> pd.DataFrame:
    """Select the rows of the leader's metric and datasets."""
    return table[table["metric"].eq(lead.metric) & table["dataset"].isin(lead.names.split(", "))]


def _score(answers: Answers, lead: Any) -> str:
    """Phrase the leader's score, with its interval and its deviation over seeds."""
    scores = _of_lead(answers.scores, lead).query("system == @lead.system")
    seeds = answers.seeds.query("system == @lead.system and metric == @lead.metric")
    if lead.datasets == 1:
        ends, where = (scores["low"].iloc[0], scores["high"].iloc[0]), lead.names
        seeds = seeds[seeds["dataset"] == lead.names]
    else:
        zero_shot = " that no compared system was trained on" if lead.over == ZERO_SHOT else ""
        resampled = "datasets" if lead.datasets >= LEAST_DATASETS else "queries"
        ends = (getattr(lead, f"low_{resampled}"), getattr(lead, f"high_{resampled}"))
        where = f"average over {lead.datasets} datasets{zero_shot}"
        seeds = seeds[seeds["mean_of"] == lead.names]
    spread = [f"± {texts.value(row.deviation)} over {row.seeds} seeds" for row in texts.rows(seeds)]
    queries = int(scores["queries"].sum())
    counted = f" ({texts.quantity(queries, 'query', 'queries')})" if queries else ""
    return f"{where}{counted}: " + " ".join(filter(None, [texts.value(lead.mean), *spread, texts.interval(*ends)]))


def _tests(answers: Answers, compared: pd.DataFrame, lead: Any) -> tuple[dict[str, Difference], str]:
    """Return the difference of each system to the baseline, with its corrected p value, and the test's name.

    Few datasets have no p value.
    """
    if lead.datasets == 1:
        table, ends = _of_lead(answers.significance, lead).query("baseline != ''"), ""
        table, by = table.assign(p=table["p_holm"]), "paired randomisation test, Holm's correction"
    else:
        table = compared[(compared["baseline"] != compared["system"]) & compared["difference"].notna()]
        # Few datasets say nothing about other datasets.
        ends = "_datasets" if lead.datasets >= LEAST_DATASETS else "_queries"
        by = f"paired t test over the {lead.datasets} datasets, Bonferroni's correction"
        # The table has no corrected p value. Bonferroni's is never below Holm's.
        number = len(table) if lead.datasets >= LEAST_DATASETS else math.nan
        table = table.assign(p=(table["p_t"] * number).clip(upper=1), queries=0)
    columns = ["difference", f"difference_low{ends}", f"difference_high{ends}", "p", "queries"]
    tests = {system: Difference(*of) for system, *of in table[["system", *columns]].itertuples(index=False)}
    return tests, f"{by} for {len(tests)} systems" if len(tests) > 1 else by.split(",")[0]


def _apart(pairs: pd.DataFrame, compared: pd.DataFrame, lead: Any) -> tuple[set[str], str]:
    """Return the systems that the leader is told apart from, and the test's name."""
    if lead.datasets > 1:
        test = f"paired t test over the {lead.datasets} datasets"
        correction = f", Holm's correction for {math.comb(len(compared), 2)} pairs" if len(compared) > 2 else ""
        return {*compared.loc[compared["p_best"] <= SIGNIFICANT, "system"]}, test + correction
    rows = _of_lead(pairs, lead)
    rows = rows[(rows[["system", "other"]] == lead.system).any(axis=1) & (rows["p_tukey"] <= SIGNIFICANT)]
    return {*rows["system"], *rows["other"]}, "randomised Tukey HSD test"


def _training(lead: Any) -> Iterator[str]:
    """Yield a sentence if the leader was, or may have been, trained on one of these datasets."""
    for names, text in (
        (lead.trained_on, "It was trained on {}, so this score is not zero-shot."),
        (lead.training_unknown, "It is not known whether its training data has {}."),
    ):
        if among := [name for name in lead.names.split(", ") if name in names.split(", ")]:
            yield text.format(texts.few(among))


def _one_by_one(pairs: pd.DataFrame, others: Sequence[str], lead: Any) -> str:
    """Phrase on how many datasets the leader is better and worse than each other system."""
    counts = {"better": Counter[str](), "worse": Counter[str]()}
    rows = _of_lead(pairs, lead)
    for row in texts.rows(rows[rows["p_tukey"] * lead.datasets <= SIGNIFICANT]):
        if lead.system in (row.system, row.other):
            ahead = row.system == lead.system
            better = (row.difference > 0) == (ahead != lower_is_better(lead.metric))
            counts["better" if better else "worse"][row.other if ahead else row.system] += 1
    named = {sign: [f"{name} on {of[name]}" for name in others if name in of] for sign, of in counts.items()}
    alike = [name for name in others if not any(name in of for of in counts.values())]
    said = [f"{texts.few(alike)} cannot be told apart from it on any dataset"] if alike else []
    if known := [f"{sign} than {texts.few(names)}" for sign, names in named.items() if names]:
        said.append(f"of the {lead.datasets} datasets, it is {', and '.join(known)}")
    text = "; ".join(said)
    return f"{text if alike else text.capitalize()}."


def _difference(lead: Any, tested: Difference, test: str) -> str:
    """Phrase the leader's difference to the baseline."""
    if math.isnan(tested.p):
        return f"The mean of {lead.system} differs from that of the baseline {lead.baseline} by {tested}."
    p = f"p = {texts.probability(tested.p)}, {test}"
    if tested.p <= SIGNIFICANT:
        return f"{lead.system} differs from the baseline {lead.baseline} by {tested} ({p})."
    return f"{lead.system} cannot be told apart from the baseline {lead.baseline}: the difference is {tested} ({p})."


def _few_queries(tests: dict[str, Difference]) -> Iterator[str]:
    """Yield a sentence if no outcome of the test against the baseline could have been significant.

    The test flips signs of differences. The observed outcome and its mirror image are equally extreme, so p >= 2 / 2 **
    queries.
    """
    smallest = min(1, len(tests) * 2.0 ** (1 - max(of.queries for of in tests.values()))) if tests else 0
    if smallest > SIGNIFICANT:
        yield f"So few queries cannot show a difference to the baseline: p is at least {texts.probability(smallest)}."


# What else to know ----------------------------------------------------------------------------------------------------


def _deviations(verdicts: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on scores that deviate from published values, largest deviations first."""
    deviating = verdicts[(verdicts["verdict"] == "deviates") & ~verdicts["recorded"].fillna(value=False)]
    rows = texts.rows(deviating.sort_values("difference", key=lambda column: -column.abs(), kind="stable"))
    named = [
        f"{row.system} on {row.dataset} ({written(row.metric)} {texts.difference(row.difference)})" for row in rows
    ]
    if named:
        deviate = "deviates from a published value" if len(named) == 1 else "deviate from published values"
        yield f"{texts.quantity(len(named), 'score', 'scores')} {deviate}: {texts.few(named)}."


def _missing(finished: dict[str, int], across: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on cells without a score and systems that are not compared."""
    states = ", ".join(f"{finished[name]} {name}" for name in STATUSES if name != DONE and finished.get(name))
    if missing := sum(finished.values()) - finished.get(DONE, 0):
        yield f"{texts.quantity(missing, 'cell has', 'cells have')} no score: {states}."
    for note, systems in across[across["mean"].isna() & (across["datasets"] > 1)].groupby("note", sort=False)["system"]:
        yield f"Not compared: {texts.few(list(systems))} ({note})."
