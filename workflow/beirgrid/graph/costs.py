"""The cost model: reads and applies ``costs.csv``, the cost of each rule per unit of work.

A row is ``rule, resource, amount, unit, origin``. A job takes ``amount`` of the resource for each unit; the module
``units`` counts the units of a job. If ``RATES`` has the unit, the seconds are divided by the machine's rate. The rows
``neural`` apply to every job that runs a model, the rows ``plain`` to every other job. Files under ``written`` are kept
or temporary, depending on ``encode.keep``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import ConfigError
from ..core.stages import STAGES

TABLE = Path(__file__).with_name("costs.csv")
CALIBRATION = "results/calibration.json"

# Default rates per second, for a machine without a calibration. On a CPU, the rates of models and searches are for
# ``CORES`` cores, and scale with a job's cores.
CORES, BY_CORES = 2, ("model_flops", "search_flops")
RATES: dict[str, dict[str, float]] = {
    # FLOPs of a model, attention included. CPU: MiniLM and a model of two layers reached 1.2e11 to 1.8e11 per core and
    # second on an AMD EPYC, in float32. GPU: a sixth of the 312e12 in NVIDIA's data sheet of the A100 (bfloat16).
    "model_flops": {"cpu": 3e11, "cuda": 5e13},
    # FLOPs of an exact search. The GPU's rate is not measured.
    "search_flops": {"cpu": 1e11, "cuda": 1e11},
    # MB of text that Lucene indexes, and postings that BM25 scores.
    "index_mb": {"cpu": 10, "cuda": 10},
    "lucene_postings": {"cpu": 5e7, "cuda": 5e7},
    # MB downloaded from a dataset host or a hub.
    "download_mb": {"cpu": 20, "cuda": 20},
    "model_download_mb": {"cpu": 20, "cuda": 20},
}


class Row(NamedTuple):
    """One row of ``costs.csv``."""

    rule: str
    resource: str
    amount: float
    unit: str
    origin: str


@dataclass(frozen=True)
class Need:
    """Estimate for a job: seconds, and MB of peak memory, kept files, temporary files and downloads."""

    seconds: float = 0.0
    memory: float = 0.0
    kept: float = 0.0
    temporary: float = 0.0
    download: float = 0.0


@cache
def table() -> dict[str, list[Row]]:
    """Return the rows of ``costs.csv`` and of stages that declare a cost, by rule."""
    rows: dict[str, list[Row]] = {}
    for stage in STAGES.values():
        if stage.cost:
            rows[stage.rule] = [Row(stage.rule, *cost, "job", "its row") for cost in stage.cost._asdict().items()]
    with TABLE.open(encoding="utf-8", newline="") as stream:
        for rule, resource, amount, unit, origin in list(csv.reader(stream))[1:]:
            rows.setdefault(rule, []).append(Row(rule, resource, float(amount), unit, origin))
    return rows


def need(rule: str, units: Mapping[str, float], rates: Mapping[str, float], runs_model: bool, keep: bool) -> Need:
    """Estimate the time, memory, disk and download of a job.

    Args:
        rule: the job's rule.
        units: amount of each unit in the job; an absent unit is 0, ``job`` is 1.
        rates: units per second, for the units of ``RATES``.
        runs_model: whether the job starts PyTorch and opens a model.
        keep: whether vectors are kept after indexing.
    """
    taken = dict.fromkeys(("seconds", "memory", "kept", "temporary", "download"), 0.0)
    for row in [*table()["neural" if runs_model else "plain"], *table()[rule]]:
        amount = row.amount * (1.0 if row.unit == "job" else units.get(row.unit, 0.0))
        if row.resource == "seconds":
            amount /= rates.get(row.unit, 1.0)
        resource = ("kept" if keep else "temporary") if row.resource == "written" else row.resource
        taken[resource] += amount
    return Need(**taken)


def read_calibration(path: Path) -> dict[str, Any]:
    """Return the rates that a calibration measured; empty without one."""
    if not path.is_file():
        return {}
    try:
        measured: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not set(measured["rates"]) <= set(RATES) or min(measured["rates"].values()) <= 0:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is not a file of plan --calibrate: delete it, or calibrate again") from None
    return measured
