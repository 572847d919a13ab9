"""What a grid found, in a few sentences: the page begins with them, and a run ends with them on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from ..config.metrics import LOWER_IS_BETTER, parse_metric
from ..data.answers import DONE, STATUSES, ZERO_SHOT, Answers, main_comparison
from ..data.summary import GridSummary
from . import texts
from .grid import SIGNIFICANT, counts

# The most systems or scores that a sentence names.
_NAMED = 3


def answer(grid: GridSummary, answers: Answers) -> list[str]:
    """Return the sentences. They are about the grid's first metric; corrected p values decide which systems differ."""
    across = main_comparison(answers.across)
    across = across[across["metric"] == grid.metrics[0]]
    finished = counts(grid, answers)
    said = ["No system has a score on every dataset." if finished.get(DONE) else "No cell has a score yet."]
    if across["mean"].notna().any():
        said = list(_leader(grid, answers, across.dropna(subset="mean")))
    return [*said, *_deviations(answers.verdicts), *_missing(finished, across)]


def _leader(grid: GridSummary, answers: Answers, compared: pd.DataFrame) -> Iterator[str]:
    """Yield who leads, who cannot be told apart from it, its difference to the baseline, and its cost."""
    lower = parse_metric(grid.metrics[0]).name in LOWER_IS_BETTER
    lead, *others = texts.rows(compared.sort_values("mean", ascending=lower, kind="stable"))
    scores, seeds, pairs, significance = (
        table[(table["metric"] == lead.metric) & table["dataset"].isin([*lead.names.split(", "), ""])]
        for table in (answers.scores, answers.seeds, answers.pairs, answers.significance)
    )
    scores = scores[scores["system"] == lead.system]
    seeds = seeds[(seeds["system"] == lead.system) & (seeds["status"] == DONE)]
    if lead.datasets == 1:
        ends, where = (scores["low"].iloc[0], scores["high"].iloc[0]), lead.names
        tests = significance[significance["baseline"] != ""]
        tests = tests[["system", "difference", "difference_low", "difference_high", "p_holm"]]
        by, tukey = "paired randomisation test, Holm's correction", "randomised Tukey HSD test"
    else:
        zero_shot = " that no compared system was trained on" if lead.over == ZERO_SHOT else ""
        ends, where = (lead.low_datasets, lead.high_datasets), f"average over {lead.datasets} datasets{zero_shot}"
        tests = compared[(compared["baseline"] != compared["system"]) & compared["difference"].notna()]
        tests = tests[["system", "difference", "difference_low_datasets", "difference_high_datasets", "p_t"]]
        # The table has no corrected p value. Bonferroni's is never smaller than Holm's.
        tests = tests.assign(p_t=(tests["p_t"] * len(tests)).clip(upper=1))
        by = f"paired t test over the {lead.datasets} datasets, Bonferroni's correction"
        seeds = seeds[seeds["mean_of"] == lead.names]
        tukey = "randomised Tukey HSD test on each dataset"
    tests = tests.set_axis(["system", "difference", "low", "high", "p"], axis=1).set_index("system")
    by = f"{by} for {len(tests)} systems" if len(tests) > 1 else by.split(",")[0]
    spread = [f"± {texts.value(row.deviation)} over {row.seeds} seeds" for row in texts.rows(seeds)]
    score = " ".join(filter(None, [texts.value(lead.mean), *spread, texts.interval(*ends)]))
    where += f" ({_counted(int(scores['queries'].sum()), 'query', 'queries')})"
    best = f"the {'lowest' if lower else 'highest'} {lead.metric}" if others else lead.metric
    yield f"{lead.system} has {best} on {where}: {score}." + ("" if others else " No other system is compared with it.")
    yield from _training(lead)
    if lead.system == lead.baseline:
        named = [row.system for row in others if row.system in tests.index]
        yield from _alike([name for name in named if not tests.loc[name, "p"] <= SIGNIFICANT], named, by)
    else:
        named = [row.system for row in others if row.system != lead.baseline]
        of_lead = pairs[(pairs[["system", "other"]] == lead.system).any(axis=1) & (pairs["p_tukey"] <= SIGNIFICANT)]
        apart = {*of_lead["system"], *of_lead["other"]}
        yield from _alike([name for name in named if name not in apart], named, tukey)
    if lead.system in tests.index:
        yield _difference(lead, tests.loc[lead.system], by)
    elif grid.baseline and grid.baseline not in (lead.system, *(row.system for row in others)):
        yield f"The baseline {grid.baseline} has no score to compare with."
    # Signs of differences are flipped: what was seen and its mirror image are as extreme, so p >= 2 / 2 ** queries.
    smallest = min(1, len(tests) * 2.0 ** (1 - int(scores["queries"].sum()))) if lead.datasets == 1 else 0
    if smallest > SIGNIFICANT:
        yield f"So few queries cannot show a difference to the baseline: p is at least {texts.probability(smallest)}."
    if lead.datasets > 1 and lead.note:
        yield f"Note: {lead.note}."
    yield from _costs(grid, answers.costs, list(dict.fromkeys([lead.system, lead.baseline or lead.system])))


def _training(lead: Any) -> Iterator[str]:
    """Yield whether the leader was trained on a dataset that it leads on, or perhaps was."""
    for names, text in (
        (lead.trained_on, "It was trained on {}, so this score is not zero-shot."),
        (lead.training_unknown, "It is not known whether its training data has {}."),
    ):
        if among := [name for name in lead.names.split(", ") if name in names.split(", ")]:
            yield text.format(_few(among))


def _alike(alike: Sequence[str], among: Sequence[str], test: str) -> Iterator[str]:
    """Yield which systems cannot be told apart from the leader."""
    if alike:
        yield f"{_few(alike)} cannot be told apart from it ({test}, {SIGNIFICANT:g})."
    elif among:
        others = f"each of the {len(among)} other systems" if len(among) > 1 else among[0]
        yield f"It can be told apart from {others} ({test}, {SIGNIFICANT:g})."


def _difference(lead: Any, tested: pd.Series, test: str) -> str:
    """Return the sentence on the leader and the baseline."""
    ends = texts.interval(tested["low"], tested["high"])
    size = f"{texts.difference(tested['difference'])} {ends}".rstrip()
    p = f"p = {texts.probability(tested['p'])}, {test}" if pd.notna(tested["p"]) else "not tested"
    if tested["p"] <= SIGNIFICANT:
        return f"It differs from the baseline {lead.baseline} by {size} ({p})."
    return f"It cannot be told apart from the baseline {lead.baseline}: the difference is {size} ({p})."


def _costs(grid: GridSummary, costs: pd.DataFrame, systems: Sequence[str]) -> Iterator[str]:
    """Yield what the steps of systems took; a step that several cells share counts once."""
    for system in systems:
        steps = costs[costs["system"].isin([system, *grid.seeds.get(system, ())])].drop_duplicates("record")
        if len(steps):
            size = texts.megabytes(steps.loc[steps["stage"] == "index", "bytes"].sum())
            indexes = f" and wrote indexes of {size} MB" if size else ""
            yield f"The steps of {system} took {steps['seconds'].sum():.1f} s{indexes}."


def _deviations(verdicts: pd.DataFrame) -> Iterator[str]:
    """Yield which scores deviate from published values, the largest deviations first."""
    found = verdicts[(verdicts["verdict"] == "deviates") & ~verdicts["recorded"].fillna(value=False)]
    rows = texts.rows(found.sort_values("difference", key=lambda column: -column.abs(), kind="stable"))
    named = [f"{row.system} on {row.dataset} ({row.metric} {texts.difference(row.difference)})" for row in rows]
    if named:
        deviate = "deviates from a published value" if len(named) == 1 else "deviate from published values"
        yield f"{_counted(len(named), 'score', 'scores')} {deviate}: {_few(named)}."


def _missing(finished: dict[str, int], across: pd.DataFrame) -> Iterator[str]:
    """Yield how many cells have no score, and which systems are not compared."""
    lacking = {status: finished[status] for status in STATUSES if status != DONE and finished.get(status)}
    if lacking:
        states = ", ".join(f"{number} {status}" for status, number in lacking.items())
        cells = _counted(sum(finished.values()), "cell", "cells")
        missing = sum(lacking.values())
        yield f"{missing} of {cells} {'has' if missing == 1 else 'have'} no score: {states}."
    for note, systems in across[across["mean"].isna() & (across["datasets"] > 1)].groupby("note", sort=False)["system"]:
        yield f"Not compared: {_few(list(systems))} ({note})."


def _few(names: Sequence[str]) -> str:
    """Return at most three names as a list, and the number of the rest."""
    shown = [*names[:_NAMED], f"{len(names) - _NAMED} more"] if len(names) > _NAMED else list(names)
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _counted(number: int, one: str, several: str) -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else several}"
