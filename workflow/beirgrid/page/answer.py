"""Summarise a grid's results in a few sentences, for the top of the page and the end of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from ..config.metric_names import lower_is_better, written
from ..results.answers import DONE, LEAST_DATASETS, STATUSES, ZERO_SHOT, Answers, main_comparison
from ..results.published import SCORE_IS_PUBLISHED
from ..results.summary import GridSummary
from . import texts
from .matrix import SIGNIFICANT, counts


def answer(grid: GridSummary, answers: Answers) -> list[str]:
    """Return the sentences, about the grid's first metric. Corrected p values decide which systems differ."""
    across = main_comparison(answers.across[answers.across["metric"] == grid.metrics[0]])
    finished = counts(grid, answers)
    published = ["All values are published ones: nothing was run here."] if all_published(answers) else []
    said = ["No system has a score on every dataset." if finished.get(DONE) else "No cell has a score yet."]
    if across["mean"].notna().any():
        said = list(_leader(grid, answers, across.dropna(subset="mean")))
    return [*published, *said, *_deviations(answers.verdicts), *_missing(finished, across)]


def all_published(answers: Answers) -> bool:
    """Tell whether the scores are published values."""
    return bool((answers.verdicts["verdict"] == SCORE_IS_PUBLISHED).any())


def _leader(grid: GridSummary, answers: Answers, compared: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on the leading system, the systems that cannot be told apart from it, its difference to the
    baseline, and its cost.
    """
    lower = lower_is_better(grid.metrics[0])
    lead, *rows = texts.rows(compared.sort_values("mean", ascending=lower, kind="stable"))
    others = [row.system for row in rows]
    scores = _of_lead(answers.scores, lead).query("system == @lead.system")
    metric = written(lead.metric)
    best = f"the {'lowest' if lower else 'highest'} {metric}" if others else metric
    alone = "" if others else " No other system is compared."
    yield f"{lead.system} has {best} on {_score(answers, lead, scores)}.{alone}"
    yield from _training(lead)
    tests = _against_baseline(answers, compared, lead)
    if others and answers.pairs.empty and lead.datasets < LEAST_DATASETS:
        yield "No test compares the systems on a dataset, because there are no values of single queries."
    elif lead.system == lead.baseline:
        yield from _told(others, tests, lead)
    else:
        yield from _told(
            [name for name in others if name != lead.baseline], _against_rivals(answers, compared, lead), lead
        )
    if lead.baseline in tests.apart.index:
        if _one_by_one(lead):
            yield from _told([lead.baseline], tests, lead)
        yield _difference(answers, lead, tests)
    elif grid.baseline and grid.baseline not in (lead.system, *others):
        yield f"The baseline {grid.baseline} is not compared, because it lacks scores."
    yield from _least_p(answers.significance, lead)
    if lead.datasets >= LEAST_DATASETS and lead.note:
        yield f"Note: {lead.note}."
    yield from _costs(grid, answers.costs, list(dict.fromkeys([lead.system, lead.baseline or lead.system])))


def _of_lead(table: pd.DataFrame, lead: Any) -> pd.DataFrame:
    """Select the rows of the leader's metric and datasets."""
    return table[table["metric"].eq(lead.metric) & table["dataset"].isin(lead.names.split(", "))]


def _score(answers: Answers, lead: Any, scores: pd.DataFrame) -> str:
    """Phrase the leader's score, with its interval and its deviation over seeds."""
    seeds = answers.seeds.query("system == @lead.system and metric == @lead.metric")
    if lead.datasets == 1:
        ends, where = [scores["low"].iloc[0], scores["high"].iloc[0]], lead.names
        seeds = seeds[seeds["dataset"] == lead.names]
    else:
        zero_shot = " that no compared system was trained on" if lead.over == ZERO_SHOT else ""
        ends, where = _ends(lead), f"average over {lead.datasets} datasets{zero_shot}"
        seeds = seeds[seeds["mean_of"] == lead.names]
    spread = [f"± {texts.value(row.deviation)} over {row.seeds} seeds" for row in texts.rows(seeds)]
    queries = int(scores["queries"].sum())
    counted = f" ({texts.counted(queries, 'query', 'queries')})" if queries else ""
    return f"{where}{counted}: " + " ".join(filter(None, [texts.value(lead.mean), *spread, texts.interval(*ends)]))


def _ends(lead: Any, of: str = "") -> list[float]:
    """Return the ends of the interval of a mean, which few datasets have for other queries of the same datasets."""
    resampled = "datasets" if lead.datasets >= LEAST_DATASETS else "queries"
    return [getattr(lead, f"{of}{end}_{resampled}") for end in ("low", "high")]


class _Tests(NamedTuple):
    """Tests of the leader: their name, and a row per other system.

    The row says in how many tests the leader is significantly ``better`` and ``worse``, and has the lowest ``p``,
    corrected.
    """

    name: str
    apart: pd.DataFrame


def _against_baseline(answers: Answers, compared: pd.DataFrame, lead: Any) -> _Tests:
    """Return the tests that compare the leader with the baseline, or the baseline that leads with the others."""
    if lead.datasets >= LEAST_DATASETS:
        tests = compared[compared["difference"].notna() & (compared["system"] != compared["baseline"])]
        # The table has no corrected p value. Bonferroni's is never below Holm's.
        p, by, correction = tests["p_t"] * len(tests), _over(lead), "Bonferroni's"
    else:
        tests = _of_lead(answers.significance, lead).query("baseline != ''")
        p, by, correction = tests["p_holm"] * lead.datasets, "paired randomisation test", "Holm's"
    number = tests["system"].nunique()
    corrections = [f"{correction} correction for {number} systems"] if number > 1 else []
    return _Tests(_named(by, corrections, lead), _apart(tests.rename(columns={"baseline": "other"}), p, lead))


def _against_rivals(answers: Answers, compared: pd.DataFrame, lead: Any) -> _Tests:
    """Return the tests that compare the leader with each other system."""
    if lead.datasets < LEAST_DATASETS:
        pairs = _of_lead(answers.pairs, lead)
        name = _named("randomised Tukey HSD test", [], lead)
        return _Tests(name, _apart(pairs, pairs["p_tukey"] * lead.datasets, lead))
    number = math.comb(len(compared), 2)
    corrections = [f"Holm's correction for {number} pairs"] if number > 1 else []
    name = _named(_over(lead), corrections, lead)
    tests = compared.assign(other=lead.system, difference=compared["mean"] - lead.mean)
    return _Tests(name, _apart(tests, tests["p_best"], lead))


def _one_by_one(lead: Any) -> bool:
    """Tell whether the datasets of a mean are tested one by one, because a test over so few says nothing."""
    return lead.datasets in range(2, LEAST_DATASETS)


def _over(lead: Any) -> str:
    return f"paired t test over the {lead.datasets} datasets"


def _named(test: str, corrections: list[str], lead: Any) -> str:
    """Name a test and its corrections."""
    if _one_by_one(lead):
        corrections = [*corrections, f"Bonferroni's correction for {lead.datasets} datasets"]
    return ", ".join([test, *corrections])


def _apart(tests: pd.DataFrame, p: pd.Series, lead: Any) -> pd.DataFrame:
    """Count for each other system the tests in which the leader is better and worse, with the lowest p value."""
    tests = tests.assign(p=p.clip(upper=1)).reset_index(drop=True)
    ahead = tests["system"] == lead.system
    better = (tests["difference"] > 0) == (ahead != lower_is_better(lead.metric))
    told = tests["p"] <= SIGNIFICANT
    found = pd.DataFrame({"better": told & better, "worse": told & ~better, "p": tests["p"]})
    others = tests["other"].where(ahead, tests["system"])[ahead | (tests["other"] == lead.system)]
    return found.groupby(others).agg({"better": "sum", "worse": "sum", "p": "min"})


def _training(lead: Any) -> Iterator[str]:
    """Yield a sentence if the leader was, or may have been, trained on one of these datasets."""
    for names, text in (
        (lead.trained_on, "It was trained on {}, so this score is not zero-shot."),
        (lead.training_unknown, "It is not known whether its training data has {}."),
    ):
        if among := [name for name in lead.names.split(", ") if name in names.split(", ")]:
            yield text.format(texts.few(among))


def _told(among: Sequence[str], tests: _Tests, lead: Any) -> Iterator[str]:
    """Yield sentences on the systems that can, and that cannot, be told apart from the leader."""
    one_by_one = _one_by_one(lead)
    by = f"({tests.name}, {SIGNIFICANT:g})"
    apart = tests.apart.reindex(list(among))[["better", "worse"]]
    if alike := [name for name in among if not apart.loc[name].any()]:
        place = " on any dataset" if one_by_one else ""
        yield f"{texts.few(alike)} cannot be told apart from it{place} {by}."
    elif among and not one_by_one:
        others = f"each of the {len(among)} other systems" if len(among) > 1 else among[0]
        yield f"It can be told apart from {others} {by}."
    if one_by_one and len(alike) < len(among):
        named = {
            sign: [f"{name} on {number:.0f}" for name, number in apart[sign].items() if number > 0] for sign in apart
        }
        counts = [f"{sign} than {texts.few(names)}" for sign, names in named.items() if names]
        yield f"Of the {lead.datasets} datasets, it is {', and '.join(counts)} {by}."


def _difference(answers: Answers, lead: Any, tests: _Tests) -> str:
    """Phrase the leader's difference to the baseline."""
    tested, name = tests.apart.loc[lead.baseline], f"the baseline {lead.baseline}"
    if lead.datasets == 1:
        (row,) = texts.rows(_of_lead(answers.significance, lead).query("system == @lead.system"))
        ends = [row.difference_low, row.difference_high]
    else:
        ends = _ends(lead, "difference_")
    size = f"{texts.difference(lead.difference)} {texts.interval(*ends)}".rstrip()
    if _one_by_one(lead):
        return f"The mean of {lead.system} differs from that of {name} by {size}."
    p = f"p = {texts.probability(tested['p'])}, {tests.name}" if pd.notna(tested["p"]) else "not tested"
    if tested["better"] or tested["worse"]:
        return f"{lead.system} differs from {name} by {size} ({p})."
    return f"{lead.system} cannot be told apart from {name}: the difference is {size} ({p})."


def _least_p(significance: pd.DataFrame, lead: Any) -> Iterator[str]:
    """Yield a sentence if the queries of a single dataset are too few to show a difference to the baseline."""
    tests = _of_lead(significance, lead).query("baseline != ''")
    if lead.datasets > 1 or tests.empty:
        return
    # The test flips signs of differences. The observed outcome and its mirror image are equally extreme, so p >= 2 / 2
    # ** queries.
    smallest = min(1, len(tests) * 2.0 ** (1 - int(tests["queries"].iloc[0])))
    if smallest > SIGNIFICANT:
        yield f"So few queries cannot show a difference to the baseline: p is at least {texts.probability(smallest)}."


def _costs(grid: GridSummary, costs: pd.DataFrame, systems: Sequence[str]) -> Iterator[str]:
    """Yield sentences on the time and disk of systems' steps. A shared step counts once."""
    for system in systems:
        steps = costs[costs["system"].isin([system, *grid.seeds.get(system, ())])].drop_duplicates("record")
        if len(steps):
            size = texts.megabytes(steps.loc[steps["stage"].isin(["index", "index_program"]), "bytes"].sum())
            indexes = f" and wrote indexes of {size} MB" if size not in ("", "0.0") else ""
            yield f"The steps of {system} took {steps['seconds'].sum():.1f} s{indexes}."


def _deviations(verdicts: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on scores that deviate from published values, largest deviations first."""
    found = verdicts[(verdicts["verdict"] == "deviates") & ~verdicts["recorded"].fillna(value=False)]
    rows = texts.rows(found.sort_values("difference", key=lambda column: -column.abs(), kind="stable"))
    named = [
        f"{row.system} on {row.dataset} ({written(row.metric)} {texts.difference(row.difference)})" for row in rows
    ]
    if named:
        deviate = "deviates from a published value" if len(named) == 1 else "deviate from published values"
        yield f"{texts.counted(len(named), 'score', 'scores')} {deviate}: {texts.few(named)}."


def _missing(finished: dict[str, int], across: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on cells without a score and systems that are not compared."""
    states = ", ".join(f"{finished[name]} {name}" for name in STATUSES if name != DONE and finished.get(name))
    if missing := sum(finished.values()) - finished.get(DONE, 0):
        yield f"{texts.counted(missing, 'cell has', 'cells have')} no score: {states}."
    for note, systems in across[across["mean"].isna() & (across["datasets"] > 1)].groupby("note", sort=False)["system"]:
        yield f"Not compared: {texts.few(list(systems))} ({note})."
