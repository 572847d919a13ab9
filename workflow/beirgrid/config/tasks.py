"""mteb's tasks by our names of the datasets."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

# The tasks of mteb 2.26.24, and the hub's datasets that they read, by our names of the datasets.
# Types of mteb's tasks over texts that rank documents for queries. In all but the first, queries have instructions, or
# candidates that are ranked alone.
KINDS = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
_TASKS = Path(__file__).with_name("mteb_tasks.csv")


class Task(NamedTuple):
    """A task of mteb, and the dataset on the hub that it reads."""

    name: str
    hub: str


@cache
def tasks() -> dict[str, Task]:
    """Return the tasks of mteb by our names of the datasets."""
    with _TASKS.open(encoding="utf-8", newline="") as stream:
        return {row["dataset"]: Task(row["task"], row["hub"]) for row in csv.DictReader(stream)}


def mteb_names() -> dict[str, str]:
    """Return the names of mteb's tasks by our names of the datasets, the mean over CQADupStack included."""
    return {dataset: task.name for dataset, task in tasks().items()} | {"cqadupstack": "CQADupstackRetrieval"}
