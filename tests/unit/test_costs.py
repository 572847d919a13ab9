"""Compare the table of costs with jobs that ran, and with counted work."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import rules, tracked_configuration
from jobs import JOBS, PROGRAM, PUBLISHED, REWRITTEN, SLICES

from beirgrid import config
from beirgrid.encoders import protocol
from beirgrid.graph.dag import Job, stages
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import (
    LEAST_MINUTES,
    MEMORY_MARGIN,
    NEURAL,
    PLAIN,
    RATES,
    SNAKEMAKE_MB,
    TIME_MARGIN,
    Need,
    Resources,
    need,
)
from beirgrid.graph.sizes import WINDOW, WORD_PIECES

# Planned memory divided by the recorded memory of a rule's largest recorded job. Java counts its whole heap.
LEAST, MOST = 0.9, 6.0
# The table counts in each job what the recorded ones were too small for: to train a quantiser, and to count millions of
# different words.
TOO_SMALL = {"index_late_interaction", "analyses"}
# Rules of which a job has other units than the one in JOBS.
VARIANTS: dict[str, dict[str, str]] = {
    "fetch_model": {"model": "ance"},  # pickled
    "generate": {"model": "minilm-genq@scifact"},  # queries are derived
    "retrieve_late_interaction": {"system": "exhaustive", "dataset": "scifact"},
}


def _planned(row: dict[str, str]) -> Need:
    """Return the estimates of the table for a recorded job."""
    rates = {name: rate["cpu"] for name, rate in RATES.items()}
    units = {"job": 1, **json.loads(row["units"])}
    return need(stages()[row["rule"]], units, rates, row["runs_model"] == "yes", keep=False)


@pytest.fixture(scope="module")
def recorded(root: Path) -> list[SimpleNamespace]:
    """The jobs that ran, from their records, and their estimates. The jobs of a grid shared the machine with others."""
    numbers = ("peak_memory_mb", "seconds", "threads", "cpu_seconds")
    with (root / "tests/data/recorded_jobs.csv").open(encoding="utf-8", newline="") as stream:
        return [
            SimpleNamespace(**{**row, **{name: float(row[name] or 0) for name in numbers}, "planned": _planned(row)})
            for row in csv.DictReader(stream)
        ]


def test_every_rule_has_costs_and_the_records_are_of_rules(recorded):
    assert all(stage.costs for stage in stages().values())
    assert {job.rule for job in recorded} <= set(rules())


def test_no_job_took_more_than_it_asks_for(recorded):
    for job in recorded:
        asked = job.planned.memory * MEMORY_MARGIN + SNAKEMAKE_MB
        assert job.peak_memory_mb + SNAKEMAKE_MB <= asked, job
        assert job.seconds <= LEAST_MINUTES * 60 + job.planned.seconds * TIME_MARGIN, job


def test_planned_memory_is_near_the_recorded_one(recorded):
    largest = {job.rule: job for job in sorted(recorded, key=lambda job: job.peak_memory_mb)}
    ratios = {rule: job.planned.memory / job.peak_memory_mb for rule, job in largest.items()}
    far = {rule: ratio for rule, ratio in ratios.items() if not LEAST <= ratio <= MOST}
    assert set(far) <= TOO_SMALL, far


@pytest.mark.parametrize("grid", ["demo", "scifact", "cranfield", "scifact and cranfield"])
def test_planned_seconds_of_a_grid_are_within_a_factor_of_three(recorded, grid):
    """CPU seconds: other programs ran on the machine. The last grid has the jobs that both collections share."""
    jobs = [job for job in recorded if job.grid == grid]
    sums = {"all": jobs} | {rule: [job for job in jobs if job.rule == rule] for rule in {job.rule for job in jobs}}
    planned = {name: sum(job.planned.seconds * job.threads for job in mine) for name, mine in sums.items()}
    took = {name: sum(job.cpu_seconds for job in mine) for name, mine in sums.items()}
    ratios = {name: took[name] / planned[name] for name in sums if name == "all" or max(took[name], planned[name]) > 5}
    assert {name: ratio for name, ratio in ratios.items() if not 1 / 3 <= ratio <= 3} == {}


def test_every_unit_of_the_table_is_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = tracked_configuration("grids/paper")
    raw["systems"]["exhaustive"] = {"retriever": "colbert", "exhaustive": True}
    raw["systems"]["reranked"] = {"first_stage": "bm25", "reranker": "ms-marco-minilm"}
    raw["systems"] |= {"published": PUBLISHED, "program": PROGRAM, "rewritten": REWRITTEN}
    raw["datasets"]["scifact"]["slices"] = SLICES
    raw["grid"]["systems"].append("reranked")
    raw["device"] = "cpu"
    work = Resources(Grid(config.load(raw))).work
    for rule, job in JOBS.items():
        jobs = [job, VARIANTS.get(rule, job)]
        counted = {unit for wildcards in jobs for unit in work(Job.of(rule, wildcards))}
        costs = {*stages()[rule].costs, *(NEURAL if stages()[rule].runs_models else ())}
        assert costs <= counted, rule


def test_every_rate_is_of_a_unit_that_takes_seconds():
    tables = [PLAIN, NEURAL, *(stage.costs for stage in stages().values())]
    assert set(RATES) <= {unit for costs in tables for unit, cost in costs.items() if cost.seconds}
    assert all(any(cost) and min(cost) >= 0 for costs in tables for cost in costs.values())


def test_late_interaction_asks_for_the_windows_of_long_documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = tracked_configuration("grids/paper")
    raw["models"]["colbert"] |= {"max_length": 8192}
    raw["datasets"]["scifact"]["statistics"] = {"document_words": 3000}
    needs = Resources(Grid(config.load(raw | {"device": "cpu"})))
    job = Job.of("encode_late_interaction", {"model": "colbert", "corpus": "scifact", "shard": 0})
    window = 2048 * (3000 * WORD_PIECES + 2) * 128 * 4 / 1e6
    assert needs.need(job).memory > 5 * window
    assert WINDOW == protocol.WINDOW


def test_an_unknown_unit_is_none_and_rates_divide():
    index, encode = stages()["index_lexical"], stages()["encode_dense"]
    lexical = need(index, {"job": 1, "text_mb": 50.0, "scratch_mb": 65.0}, {}, runs_model=False, keep=False)
    assert lexical.seconds == pytest.approx(1 + 50 / 10)
    assert (lexical.kept, lexical.temporary) == (50 / 4, 65)
    assert need(encode, {"model_flops": 6.0}, {"model_flops": 2.0}, True, keep=False).seconds == 3
