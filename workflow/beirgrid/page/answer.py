"""Summarise a grid's results in a few sentences, for the top of the page and the end of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from ..config.metric_names import lower_is_better, written
from ..results.answers import ALL, DONE, LEAST_DATASETS, STATUSES, ZERO_SHOT, Answers, main_comparison
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
    return [*_planned(grid, answers), *published, *said, *_deviations(answers.verdicts), *_missing(finished, across)]


def _planned(grid: GridSummary, answers: Answers) -> Iterator[str]:
    """Yield the differences of a planned comparison on each dataset, with a verdict, and that over the datasets."""
    if not grid.compare:
        return
    mine, other = grid.compare
    pairs = answers.pairs[
        answers.pairs["metric"].eq(grid.metrics[0]) & answers.pairs["dataset"].isin(grid.counted_once)
    ]
    pairs = pairs[pairs["system"].isin(grid.compare) & pairs["other"].isin(grid.compare)]
    correction = f", Bonferroni's correction for {len(pairs)} datasets" if len(pairs) > 1 else ""
    for row in texts.rows(pairs):
        sign = 1 if row.system == mine else -1
        ends = texts.interval(*sorted((sign * row.difference_low, sign * row.difference_high)))
        p = min(1, row.p_randomisation * len(pairs))
        better = (sign * row.difference > 0) != lower_is_better(row.metric)
        verdict = "it cannot be told which is better" if p > SIGNIFICANT else f"{mine if better else other} is better"
        yield (
            f"{mine} minus {other} on {row.dataset}: {texts.difference(sign * row.difference)} {ends}; {verdict} "
            f"(p = {texts.probability(p)}, paired randomisation test{correction})."
        )
    across = answers.across.set_index("system")
    across = across[across["metric"].eq(grid.metrics[0]) & across["over"].eq(ALL) & (across["datasets"] > 1)]
    if {mine, other} <= {*across.index[across["mean"].notna()]}:
        rows: Any = across.loc
        of_mine, ends = rows[mine], ""
        if of_mine["baseline"] == other:
            resampled = _resampled(of_mine)
            ends = texts.interval(*(of_mine[f"difference_{end}_{resampled}"] for end in ("low", "high")))
        size = f"{texts.difference(of_mine['mean'] - across.loc[other, 'mean'])} {ends}".rstrip()
        yield f"{mine} minus {other} on average over {of_mine['datasets']} datasets: {size}."


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
    tests, by = _tests(answers, compared, lead)
    if others and answers.pairs.empty and lead.datasets < LEAST_DATASETS:
        yield "No test compares the systems on a dataset, because there are no values of single queries."
    elif 1 < lead.datasets < LEAST_DATASETS:
        yield from _one_by_one(answers.pairs, others, lead)
    elif lead.system == lead.baseline:
        yield from _alike(others, {*tests.index[tests["p"] <= SIGNIFICANT]}, by)
    else:
        rivals = [name for name in others if name != lead.baseline]
        pairs = _of_lead(answers.pairs, lead)
        pairs = pairs[(pairs[["system", "other"]] == lead.system).any(axis=1) & (pairs["p_tukey"] <= SIGNIFICANT)]
        apart, test = {*pairs["system"], *pairs["other"]}, "randomised Tukey HSD test"
        if lead.datasets > 1:
            apart, number = {*compared.loc[compared["p_best"] <= SIGNIFICANT, "system"]}, math.comb(len(compared), 2)
            test = f"paired t test over the {lead.datasets} datasets, Holm's correction for {number} pairs"
        yield from _alike(rivals, apart, test if len(compared) > 2 else test.split(",")[0])
    if lead.system in tests.index and {lead.system, lead.baseline} != {*grid.compare}:
        yield _difference(lead, tests.loc[lead.system], by)
    elif grid.baseline and grid.baseline not in (lead.system, *others):
        yield f"The baseline {grid.baseline} is not compared, because it lacks scores."
    # The test flips signs of differences. The observed outcome and its mirror image are equally extreme, so p >= 2 / 2
    # ** queries.
    queries = int(tests["queries"].max()) if lead.datasets == 1 and len(tests) else 0
    smallest = min(1, len(tests) * 2.0 ** (1 - queries)) if queries else 0
    if smallest > SIGNIFICANT:
        yield f"So few queries cannot show a difference to the baseline: p is at least {texts.probability(smallest)}."
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
        ends, where = (scores["low"].iloc[0], scores["high"].iloc[0]), lead.names
        seeds = seeds[seeds["dataset"] == lead.names]
    else:
        zero_shot = " that no compared system was trained on" if lead.over == ZERO_SHOT else ""
        ends = (getattr(lead, f"low_{_resampled(lead)}"), getattr(lead, f"high_{_resampled(lead)}"))
        where = f"average over {lead.datasets} datasets{zero_shot}"
        seeds = seeds[seeds["mean_of"] == lead.names]
    spread = [f"± {texts.value(row.deviation)} over {row.seeds} seeds" for row in texts.rows(seeds)]
    queries = int(scores["queries"].sum())
    counted = f" ({texts.counted(queries, 'query', 'queries')})" if queries else ""
    return f"{where}{counted}: " + " ".join(filter(None, [texts.value(lead.mean), *spread, texts.interval(*ends)]))


def _tests(answers: Answers, compared: pd.DataFrame, lead: Any) -> tuple[pd.DataFrame, str]:
    """Return difference, low, high, corrected p and queries of each system against the baseline, and the test's name.

    Few datasets have no p value.
    """
    if lead.datasets == 1:
        tests, suffix = _of_lead(answers.significance, lead).query("baseline != ''"), ""
        p, by = tests["p_holm"], "paired randomisation test, Holm's correction"
    else:
        tests = compared[(compared["baseline"] != compared["system"]) & compared["difference"].notna()]
        suffix, by = f"_{_resampled(lead)}", f"paired t test over the {lead.datasets} datasets, Bonferroni's correction"
        # The table has no corrected p value. Bonferroni's is never below Holm's.
        p = (tests["p_t"] * (len(tests) if lead.datasets >= LEAST_DATASETS else math.nan)).clip(upper=1)
    columns = ["system", "difference", f"difference_low{suffix}", f"difference_high{suffix}"]
    queries = tests.get("queries")
    tests = tests[columns].set_axis(["system", "difference", "low", "high"], axis=1).assign(p=p, queries=queries)
    return tests.set_index("system"), f"{by} for {len(tests)} systems" if len(tests) > 1 else by.split(",")[0]


def _resampled(lead: Any) -> str:
    """Return what the interval of a mean over datasets resamples: few datasets say nothing about other datasets."""
    return "datasets" if lead.datasets >= LEAST_DATASETS else "queries"


def _training(lead: Any) -> Iterator[str]:
    """Yield a sentence if the leader was, or may have been, trained on one of these datasets."""
    for names, text in (
        (lead.trained_on, "It was trained on {}, so this score is not zero-shot."),
        (lead.training_unknown, "It is not known whether its training data has {}."),
    ):
        if among := [name for name in lead.names.split(", ") if name in names.split(", ")]:
            yield text.format(texts.few(among))


def _one_by_one(pairs: pd.DataFrame, others: Sequence[str], lead: Any) -> Iterator[str]:
    """Yield sentences on the datasets on which the leader is better and worse than each other system."""
    of_lead = _of_lead(pairs, lead)
    counts = {"better": Counter[str](), "worse": Counter[str]()}
    for row in texts.rows(of_lead[of_lead["p_tukey"] * lead.datasets <= SIGNIFICANT]):
        if lead.system in (row.system, row.other):
            ahead = row.system == lead.system
            better = (row.difference > 0) == (ahead != lower_is_better(lead.metric))
            counts["better" if better else "worse"][row.other if ahead else row.system] += 1
    named = {sign: [f"{name} on {found[name]}" for name in others if name in found] for sign, found in counts.items()}
    by = f"(randomised Tukey HSD test, Bonferroni's correction for {lead.datasets} datasets, {SIGNIFICANT:g})"
    if alike := [name for name in others if not any(name in found for found in counts.values())]:
        yield f"{texts.few(alike)} cannot be told apart from it on any dataset {by}."
    if said := [f"{sign} than {texts.few(names)}" for sign, names in named.items() if names]:
        yield f"Of the {lead.datasets} datasets, it is {', and '.join(said)} {by}."


def _alike(among: Sequence[str], apart: set[str], test: str) -> Iterator[str]:
    """Yield a sentence on the systems that cannot be told apart from the leader."""
    if alike := [name for name in among if name not in apart]:
        yield f"{texts.few(alike)} cannot be told apart from it ({test}, {SIGNIFICANT:g})."
    elif among:
        others = f"each of the {len(among)} other systems" if len(among) > 1 else among[0]
        yield f"It can be told apart from {others} ({test}, {SIGNIFICANT:g})."


def _difference(lead: Any, tested: pd.Series, test: str) -> str:
    """Phrase the leader's difference to the baseline."""
    size = f"{texts.difference(tested['difference'])} {texts.interval(tested['low'], tested['high'])}".rstrip()
    if pd.isna(tested["p"]):
        return f"The mean of {lead.system} differs from that of the baseline {lead.baseline} by {size}."
    p = f"p = {texts.probability(tested['p'])}, {test}"
    if tested["p"] <= SIGNIFICANT:
        return f"{lead.system} differs from the baseline {lead.baseline} by {size} ({p})."
    return f"{lead.system} cannot be told apart from the baseline {lead.baseline}: the difference is {size} ({p})."


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
