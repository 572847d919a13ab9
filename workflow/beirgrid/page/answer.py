"""Answer the question of a grid, for the top of the page and the end of a run, in its first metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from ..core.errors import quantity
from ..measures import lower_is_better, written
from ..results import answers as grid_tables
from ..results import comparisons
from ..results.answers import DONE, LEAST_DATASETS, STATUSES, ZERO_SHOT, Answers, both_ways
from ..results.comparisons import ALPHA
from ..results.published import SCORE_IS_PUBLISHED
from ..results.summary import GridSummary
from . import texts
from .sections import counts

# Most slices that the answer has sentences on.
_SLICES = 6
# Share of unjudged documents among the top ten from which on the answer says so.
_UNJUDGED = 0.2


class Answer(NamedTuple):
    """Sentences on a grid: the answer, what weakens it or is not known yet, and the tests behind it.

    ``differences`` are the planned ones on several datasets, with a row for each, below a header.
    """

    sentences: list[str]
    caveats: list[str]
    more: list[str]
    differences: Sequence[list[str]] = ()


def answer(grid: GridSummary, answers: Answers) -> Answer:
    """Answer a grid's question. A planned comparison is answered first; otherwise, which system is best."""
    across = grid_tables.main_comparison(answers.across[answers.across["metric"] == grid.metrics[0]])
    finished = counts(grid, answers)
    compared = across.dropna(subset="mean")
    lacking = "No system has a score on every dataset." if finished.get(DONE) else "No cell has a score yet."
    best = _leader(grid, answers, compared) if len(compared) else Answer([lacking], [], [])
    planned = _planned(grid, answers)
    if planned.sentences:
        best = planned._replace(more=[*best.sentences, *planned.more, *best.more])
    published = ["All values are published ones: nothing was run here."] if all_published(answers) else []
    caveats = dict.fromkeys([*published, *best.caveats, *_deviations(answers.verdicts), *_missing(finished, across)])
    return best._replace(caveats=list(caveats), more=[*best.more, *_slices(grid, answers)])


def all_published(answers: Answers) -> bool:
    """Tell whether the scores are published values."""
    return bool((answers.verdicts["verdict"] == SCORE_IS_PUBLISHED).any())


def _slices(grid: GridSummary, answers: Answers) -> Iterator[str]:
    """Yield sentences on each slice: the best system there, the verdicts on it, and what the slice can tell."""
    metric = grid.metrics[0]
    for name in [*grid.slices][:_SLICES]:
        tests = answers.significance[
            (answers.significance["metric"] == metric) & (answers.significance["dataset"] == name)
        ]
        if tests.empty:
            continue
        tests = tests.sort_values("mean", ascending=lower_is_better(metric), kind="stable")
        lead, *others = texts.rows(tests.assign(datasets=1, names=name))
        sentences = [f"{lead.system} has {_best(metric, others)} on {_score(answers, lead)}."]
        if others:
            sentences.append(_unplanned(answers.pairs, tests, lead, [row.system for row in others])[0])
        yield " ".join(sentences)
    if (left := len(grid.slices) - _SLICES) > 0:
        yield f"{quantity(left, 'more slice is', 'more slices are')} in the tables."


_WORSE = "worse"
_VERDICTS = (comparisons.BETTER, _WORSE, comparisons.EQUIVALENT, comparisons.OPEN)


# A planned comparison -------------------------------------------------------------------------------------------------


def _planned(grid: GridSummary, answers: Answers) -> Answer:
    """Return the differences of the first planned system to each of the others, per dataset and over them."""
    rows = comparisons.planned(grid, answers.pairs)
    lower = lower_is_better(grid.metrics[0])
    tests = comparisons.planned_tests(grid)
    sentences = [_difference(of_pair, lower) for _, of_pair in rows.groupby("other", sort=False)]
    if not sentences:
        return Answer([], [], [])
    correction = f", Bonferroni's correction for {tests} differences" if tests > 1 else ""
    several = rows["dataset"].nunique() > 1
    whole = rows[rows["dataset"] == ""] if several else rows
    p = [f"p of {row.system} minus {row.other} {texts.number(row.p, '.2g')}" for row in texts.rows(whole)]
    more = [f"Planned: {', '.join([f'paired t test{correction}', *p])}."]
    if several and rows["needed"].notna().any():
        more.append("In brackets: queries that would decide.")
    if grid.margin:
        more.append(f"Equivalent: the whole interval lies within ±{grid.margin:g}.")
    return Answer(
        sentences,
        [*_unjudged(answers.scores, grid.compare, grid)],
        more,
        _by_dataset(rows, lower) if several else [],
    )


def gains(grid: GridSummary, answers: Answers) -> list[list[str]]:
    """Return a table of what feedback and rewriting add to first stages; nothing without such a system."""
    rows = comparisons.gains(grid, answers.pairs)
    return _by_dataset(rows, lower_is_better(grid.metrics[0])) if len(rows) else []


def _difference(rows: pd.DataFrame, lower: bool) -> str:
    """Phrase the planned difference of two systems: on a dataset, or on average with the verdicts on several."""
    first = rows.iloc[0]
    each = [row for row in texts.rows(rows) if row.dataset]
    subject = f"{first['system']} minus {first['other']}"
    if len(each) == 1:
        return f"{subject} on {first['dataset']}: {_size(each[0])}, {comparisons.said(each[0], lower)}."
    tested = [f"{_size(row)}, {comparisons.said(row, lower)}" for row in texts.rows(rows) if not row.dataset]
    mean = tested[0] if tested else texts.difference(rows["difference"].mean())
    counts = Counter(_verdict(row, lower) for row in each)
    verdicts = ", ".join(f"{verdict} on {counts[verdict]}" for verdict in _VERDICTS if counts[verdict])
    return f"{subject} on average over {len(each)} datasets: {mean}; {verdicts}."


def _by_dataset(rows: pd.DataFrame, lower: bool) -> list[list[str]]:
    """Return a table of differences, with a header, a row for each dataset, and a column for each pair of systems."""
    cells: dict[str, dict[str, str]] = {}
    heads = dict.fromkeys(f"{row.system} minus {row.other}" for row in texts.rows(rows))
    for row in texts.rows(rows):
        of_dataset = cells.setdefault(row.dataset, dict.fromkeys(heads, ""))
        of_dataset[f"{row.system} minus {row.other}"] = f"{_size(row)} {_verdict(row, lower)}{_needed(row)}"
    datasets = sorted(cells, key=lambda dataset: not dataset)  # the average comes last
    return [["", *heads], *([name or "average", *cells[name].values()] for name in datasets)]


def _size(row: Any) -> str:
    """Format a planned difference with its interval."""
    return f"{texts.difference(row.difference)} {texts.interval(row.low, row.high)}".rstrip()


def _needed(row: Any) -> str:
    """Return the number of queries that would decide, in brackets; nothing where none is known."""
    return "" if pd.isna(row.needed) else f" ({row.needed:,})"


def _verdict(row: Any, lower: bool) -> str:
    """Return the verdict on the first system in a word."""
    if row.verdict != comparisons.BETTER:
        return str(row.verdict)
    return comparisons.BETTER if (row.difference > 0) != lower else _WORSE


def _unjudged(scores: pd.DataFrame, systems: Collection[str], grid: GridSummary) -> Iterator[str]:
    """Yield a sentence on the system with the most unjudged documents, if they are many."""
    rows = scores[scores["system"].isin(list(systems)) & scores["dataset"].isin(grid.counted_once)]
    rows = rows.dropna(subset="not_judged").drop_duplicates(["system", "dataset"])  # others list relevant ones alone
    shares = rows.groupby("system")["not_judged"].mean()
    if len(shares) and shares.max() >= _UNJUDGED:
        worst = shares.idxmax()
        measured = [*rows.loc[rows["system"] == worst, "dataset"]]
        where = f" on {texts.few(measured)}" if len(measured) < len(grid.counted_once) else ""
        share = f"{100 * shares.max():.0f} % of {worst}'s top ten{where}"
        yield f"{share} are not judged and count as not relevant."


# The best system ------------------------------------------------------------------------------------------------------


def _leader(grid: GridSummary, answers: Answers, compared: pd.DataFrame) -> Answer:
    """Return the best system, and the verdicts on it and each other one that was not planned to be compared with it."""
    metric = grid.metrics[0]
    lead, *others = texts.rows(compared.sort_values("mean", ascending=lower_is_better(metric), kind="stable"))
    sentences = [f"{lead.system} has {_best(metric, others)} on {_score(answers, lead)}."]
    caveats = list(_training(lead))
    more = []
    names = [row.system for row in others if not comparisons.is_planned(grid, {lead.system, row.system})]
    if lead.datasets < LEAST_DATASETS:  # the gains have no mean
        names = [name for name in names if frozenset((lead.system, name)) not in comparisons.families(grid)]
    if names:
        verdict, test = _unplanned(answers.pairs, compared, lead, names)
        sentences.append(verdict)
        more.append(f"Unplanned comparisons: {test}, {ALPHA:g}.")
    elif not others:
        caveats.append("No other system is compared.")
    if grid.baseline and grid.baseline not in set(compared["system"]):
        caveats.append(f"The baseline {grid.baseline} is not compared, because it lacks scores.")
    caveats += _unjudged(answers.scores, [lead.system], grid)
    if lead.datasets >= LEAST_DATASETS and lead.note:
        caveats.append(f"Note: {lead.note}.")
    return Answer(sentences, caveats, more)


def _best(metric: str, others: Sequence[Any]) -> str:
    """Phrase the best value of a metric; its name alone without other systems."""
    extreme = "lowest" if lower_is_better(metric) else "highest"
    return f"the {extreme} {written(metric)}" if others else written(metric)


def _unplanned(pairs: pd.DataFrame, compared: pd.DataFrame, lead: Any, others: Sequence[str]) -> tuple[str, str]:
    """Phrase the verdicts on the leader and other systems, and name their test. Corrected p values decide."""
    rows = both_ways(_of_lead(pairs, lead)).query("system == @lead.system").set_index("other", drop=False)
    number = math.comb(len(compared), 2)
    test = "randomised Tukey HSD test"
    if 1 < lead.datasets < LEAST_DATASETS:
        return _one_by_one(rows, others, lead), f"{test}, Bonferroni's correction for {lead.datasets} datasets"
    if lead.datasets == 1:
        p = rows["p_tukey"]
        needed = comparisons.decided(rows, number)["needed"]
    else:  # no number of queries decides
        p = compared.set_index("system")["p_best"]
        needed = pd.Series()
        test = f"paired t test over the {lead.datasets} datasets"
        test += f", Holm's correction for {number} pairs" if number > 1 else ""
    undecided = [comparisons.undecided(name, needed.get(name)) for name in others if not p[name] <= ALPHA]
    sentence = f"It is better than {texts.few(others)}."
    if undecided:
        sentence = f"Open against {texts.few(undecided)}."
    return sentence, test


def _of_lead(table: pd.DataFrame, lead: Any) -> pd.DataFrame:
    """Select the rows of the leader's metric and datasets."""
    return table[table["metric"].eq(lead.metric) & table["dataset"].isin(lead.names.split(", "))]


def _score(answers: Answers, lead: Any) -> str:
    """Phrase the leader's score, with its interval and its deviation over seeds."""
    scores = _of_lead(answers.scores, lead).query("system == @lead.system")
    seeds = answers.seeds.query("system == @lead.system and metric == @lead.metric")
    if lead.datasets == 1:
        ends = (scores["low"].iloc[0], scores["high"].iloc[0])
        where = lead.names
        seeds = seeds[seeds["dataset"] == lead.names]
    else:
        zero_shot = " that no compared system was trained on" if lead.over == ZERO_SHOT else ""
        # Few datasets say nothing about other datasets.
        over = "datasets" if lead.datasets >= LEAST_DATASETS else "queries"
        ends = getattr(lead, f"low_{over}"), getattr(lead, f"high_{over}")
        where = f"average over {lead.datasets} datasets{zero_shot}"
        seeds = seeds[seeds["mean_of"] == lead.names]
    spread = [f"± {texts.number(row.deviation)} over {row.seeds} seeds" for row in texts.rows(seeds)]
    queries = int(scores["queries"].sum())
    counted = f" ({quantity(queries, 'query')})" if queries else ""
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
    decided = pairs[pairs["other"].isin(list(others)) & (pairs["p_tukey"] * lead.datasets <= ALPHA)]
    ahead = (decided["difference"] > 0) != lower_is_better(lead.metric)
    by_sign = {"better": Counter(decided.loc[ahead, "other"]), "worse": Counter(decided.loc[~ahead, "other"])}
    named = {sign: [f"{name} on {on[name]}" for name in others if name in on] for sign, on in by_sign.items()}
    undecided = [name for name in others if name not in set(decided["other"])]
    phrases = [f"it is {sign} than {texts.few(names)}" for sign, names in named.items() if names]
    phrases += [f"it is open against {texts.few(undecided)} on each"] if undecided else []
    return f"Of the {lead.datasets} datasets, {'; '.join(phrases)}."


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
        yield f"{quantity(len(named), 'score')} {deviate}: {texts.few(named)}."


def _missing(finished: dict[str, int], across: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on cells without a score and systems that are not compared."""
    states = ", ".join(f"{finished[name]} {name}" for name in STATUSES if name != DONE and finished.get(name))
    if missing := sum(finished.values()) - finished.get(DONE, 0):
        yield f"{quantity(missing, 'cell has', 'cells have')} no score: {states}."
    for note, systems in across[across["mean"].isna() & (across["datasets"] > 1)].groupby("note", sort=False)["system"]:
        yield f"Not compared: {texts.few(list(systems))} ({note})."
