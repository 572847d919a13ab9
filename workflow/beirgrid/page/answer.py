"""Answer the question of a grid, for the top of the page and the end of a run, in its first metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from ..config.metric_names import lower_is_better, written
from ..results import answers as grid_tables
from ..results.answers import DONE, LEAST_DATASETS, STATUSES, ZERO_SHOT, Answers, both_ways
from ..results.published import SCORE_IS_PUBLISHED
from ..results.summary import GridSummary
from . import texts
from .sections import SIGNIFICANT, counts

# A paired test finds a difference of this many half intervals with a probability of 0.8: (1.96 + 0.84) / 1.96.
DETECTED = 1.43
# Share of unjudged documents among the top ten from which on the answer says so.
_UNJUDGED = 0.2
# Most datasets whose differences stand in a sentence; of more, it counts the verdicts.
_LISTED = 3
_ENDS = ["difference", "difference_low", "difference_high"]


class Answer(NamedTuple):
    """Sentences on a grid: the answer, what weakens it or is not known yet, and the tests behind it."""

    sentences: list[str]
    caveats: list[str]
    more: list[str]

    def __str__(self) -> str:
        """Join all sentences."""
        return " ".join([*self.sentences, *self.caveats, *self.more])


def answer(grid: GridSummary, answers: Answers) -> Answer:
    """Answer a grid's question. A planned comparison is answered first; otherwise, which system is best."""
    across = grid_tables.main_comparison(answers.across[answers.across["metric"] == grid.metrics[0]])
    finished, compared = counts(grid, answers), across.dropna(subset="mean")
    lacking = "No system has a score on every dataset." if finished.get(DONE) else "No cell has a score yet."
    best = _leader(grid, answers, compared) if len(compared) else Answer([lacking], [], [])
    planned = _planned(grid, answers)
    if planned.sentences:
        best = planned._replace(more=[*best.sentences, *planned.more, *best.more])
    published = ["All values are published ones: nothing was run here."] if all_published(answers) else []
    caveats = dict.fromkeys([*published, *best.caveats, *_deviations(answers.verdicts), *_missing(finished, across)])
    return best._replace(caveats=list(caveats))


def all_published(answers: Answers) -> bool:
    """Tell whether the scores are published values."""
    return bool((answers.verdicts["verdict"] == SCORE_IS_PUBLISHED).any())


def _size(difference: float, low: float, high: float) -> str:
    """Format a difference and its interval."""
    return f"{texts.difference(difference)} {texts.interval(low, high)}".rstrip()


# A planned comparison -------------------------------------------------------------------------------------------------


def _planned(grid: GridSummary, answers: Answers) -> Answer:
    """Return the differences of the first planned system to each of the others, per dataset and over them."""
    metric, (mine, *others), datasets = grid.metrics[0], grid.compare or ("",), grid.counted_once
    pairs = both_ways(answers.pairs[answers.pairs["metric"] == metric])
    pairs = pairs[(pairs["system"] == mine) & pairs["other"].isin(others) & pairs["dataset"].isin(datasets)]
    if pairs.empty:
        return Answer([], [], [])
    pairs = pairs.sort_values(["other", "dataset"], key=lambda names: names.map([*others, *datasets].index))
    pairs["p"] = (pairs["p_randomisation"] * len(pairs)).clip(upper=1)
    sentences, tests = [], []
    for other, of in pairs.groupby("other", sort=False):
        better = {row.dataset: _better(row.difference, row.p, row.system, row.other, metric) for row in texts.rows(of)}
        sizes = {name: _size(*ends) for name, *ends in of[["dataset", *_ENDS]].itertuples(index=False)}
        tests += [f"{other} on {row.dataset} {texts.number(row.p, '.2g')}" for row in texts.rows(of)]
        where, size = " and ".join(sizes), sizes[of["dataset"].iloc[0]]
        told = [_verdict(better[name]) for name in sizes]
        if len(of) > 1:
            difference, *ends, p = grid_tables.mean_difference(of)
            where, size = f"average over {len(of)} datasets", _size(difference, *ends)
            wins = [f"{name or 'neither'} on {count}" for name, count in Counter(better.values()).items()]
            each = [f"on {name} {size}, {_verdict(better[name])}" for name, size in sizes.items()]
            told = [_verdict(_better(difference, p, mine, str(other), metric))] if pd.notna(p) else []
            told += each if len(of) <= _LISTED else [f"better by dataset: {', '.join(wins)}"]
        sentences.append(f"{mine} minus {other} on {where}: {size}; {'; '.join(told)}.")
    correction = f", Bonferroni's correction for {len(pairs)} comparisons" if len(pairs) > 1 else ""
    more = [f"p of {mine} minus {', '.join(tests)} (paired randomisation test{correction})."]
    caveats = [*_power(pairs[pairs["p"] > SIGNIFICANT]), *_unjudged(answers.scores, [mine, *others], grid)]
    return Answer(sentences, caveats, more)


def _better(difference: float, p: float, system: str, other: str, metric: str) -> str:
    """Return the better of two systems; empty if they cannot be told apart."""
    if p > SIGNIFICANT:
        return ""
    return system if (difference > 0) != lower_is_better(metric) else other


def _verdict(better: str) -> str:
    return f"{better} is better" if better else "it cannot be told which is better"


def _power(alike: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on the differences that the queries can tell, from the pairs that they do not."""
    least = DETECTED * (alike["difference_high"] - alike["difference_low"]) / 2
    if (least > 0).any():
        row = alike.iloc[least.argmax()]
        counted = texts.quantity(int(row["queries"]), "query", "queries")
        yield f"The {counted} of {row['dataset']} can only tell differences above {least.max():.2g}."


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
    pairs = both_ways(_of_lead(answers.pairs, lead)).query("system == @lead.system").set_index("other", drop=False)
    best = f"the {'lowest' if lower else 'highest'} {written(lead.metric)}" if others else written(lead.metric)
    sentences, caveats = [f"{lead.system} has {best} on {_score(answers, lead)}."], list(_training(lead))
    test, alike = "randomised Tukey HSD test", list[str]()
    if not others:
        caveats.append("No other system is compared.")
    elif 1 < lead.datasets < LEAST_DATASETS:
        sentences.append(_one_by_one(pairs, others, lead))
        test += f", Bonferroni's correction for {lead.datasets} datasets"
    else:
        p = pairs["p_tukey"]
        if lead.datasets > 1:
            p, test = compared.set_index("system")["p_best"], f"paired t test over the {lead.datasets} datasets"
            test += f", Holm's correction for {math.comb(len(compared), 2)} pairs" if others[1:] else ""
        alike = [name for name in others if not p[name] <= SIGNIFICANT]
        number = f"each of the {len(others)} other systems" if others[1:] else others[0]
        apart = f"It can be told apart from {number}."
        sentences.append(f"{texts.few(alike)} cannot be told apart from it." if alike else apart)
    more = [f"Systems are told apart by a {test}, {SIGNIFICANT:g}."] if others else []
    if lead.baseline in others:
        more.append(f"{lead.system} minus the baseline {lead.baseline}: {_to_baseline(pairs, lead)}.")
    elif grid.baseline and grid.baseline not in (lead.system, *others):
        caveats.append(f"The baseline {grid.baseline} is not compared, because it lacks scores.")
    if lead.datasets == 1:
        caveats += _power(pairs[pairs["other"].isin(alike)])
    caveats += _unjudged(answers.scores, [lead.system], grid)
    if lead.datasets >= LEAST_DATASETS and lead.note:
        caveats.append(f"Note: {lead.note}.")
    return Answer(sentences, caveats, more)


def _to_baseline(pairs: pd.DataFrame, lead: Any) -> str:
    """Format the leader's difference to the baseline with its interval."""
    if lead.datasets == 1:
        return _size(*pairs.loc[lead.baseline, _ENDS])
    return _size(*(getattr(lead, f"difference{end}") for end in ("", *_resampled(lead, "_low", "_high"))))


def _resampled(lead: Any, *ends: str) -> list[str]:
    """Return the columns of an interval of a mean: few datasets say nothing about other datasets."""
    return [f"{end}_{'datasets' if lead.datasets >= LEAST_DATASETS else 'queries'}" for end in ends]


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
        ends = tuple(getattr(lead, end) for end in _resampled(lead, "low", "high"))
        where = f"average over {lead.datasets} datasets{zero_shot}"
        seeds = seeds[seeds["mean_of"] == lead.names]
    spread = [f"± {texts.number(row.deviation)} over {row.seeds} seeds" for row in texts.rows(seeds)]
    queries = int(scores["queries"].sum())
    counted = f" ({texts.quantity(queries, 'query', 'queries')})" if queries else ""
    return f"{where}{counted}: " + " ".join(filter(None, [texts.number(lead.mean), *spread, texts.interval(*ends)]))


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
    apart = pairs[pairs["p_tukey"] * lead.datasets <= SIGNIFICANT]
    ahead = (apart["difference"] > 0) != lower_is_better(lead.metric)
    by_sign = {"better": Counter(apart.loc[ahead, "other"]), "worse": Counter(apart.loc[~ahead, "other"])}
    named = {sign: [f"{name} on {of[name]}" for name in others if name in of] for sign, of in by_sign.items()}
    alike = [name for name in others if name not in set(apart["other"])]
    told = [f"{texts.few(alike)} cannot be told apart from it on any dataset"] if alike else []
    if known := [f"{sign} than {texts.few(names)}" for sign, names in named.items() if names]:
        told.append(f"of the {lead.datasets} datasets, it is {', and '.join(known)}")
    text = "; ".join(told)
    return f"{text if alike else text.capitalize()}."


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
