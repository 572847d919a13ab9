"""Compare the conditions of results, from their records: settings, versions, precision, device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core import provenance
from ..core.errors import DataError

# Facts that are conditions; other facts are outcomes.
_FACTS = ("device", "precision", "hardware", "commit", "sha256", "files", "source_sha256")
# Settings that are paths, which are not compared; contents are compared by hash.
_PLACES = ("path",)

# By step and condition: the values of the condition in this step, which may differ between shards and component runs.
Conditions = dict[tuple[str, str], frozenset[str]]


def read(records: Iterable[Path]) -> Conditions:
    """Read the conditions of one cell from its records. An unreadable record counts as a condition."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in records:
        try:
            record = provenance.read_record(path)
        except DataError:
            state = "cannot be read" if path.is_file() else "missing"
            found.setdefault(("record", f"{path.parent.name}/{path.name}"), set()).add(state)
            continue
        stage = record["stage"]
        step = f"{stage} {path.stem}" if stage == "fetch" else stage  # fetch has several kinds of records
        for name, value in _conditions(record):
            found.setdefault((step, name), set()).add(value)
    return {key: frozenset(values) for key, values in found.items()}


def _conditions(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "stage version", str(record.get("stage_version", ""))
    yield from _flat("settings", record["settings"])
    yield from _flat("", record.get("packages", {}))
    yield from _flat("", {name: record["facts"][name] for name in _FACTS if name in record["facts"]})
    yield "CPU cores", str(record.get("cpus", ""))


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Flatten nested mappings to dotted keys with their values."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _PLACES:
                yield from _flat(f"{name}.{key}" if name else str(key), inner)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def differences(first: Conditions, second: Conditions) -> Iterator[tuple[str, str, str, str]]:
    """Yield step, condition and both sides' values where they differ; one side may be missing."""
    for step, name in sorted({*first, *second}):
        one, other = (", ".join(sorted(side.get((step, name), ()))) for side in (first, second))
        if one != other:
            yield step, name, one, other
