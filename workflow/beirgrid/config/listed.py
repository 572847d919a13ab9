"""mteb's models, each with the engine that runs it, readable without mteb.

``python -m beirgrid.config.listed`` writes the file again, for another version of mteb.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

FILE = Path(__file__).with_name("mteb_models.csv")
Engine = Literal["beirgrid", "mteb", "endpoint", "refused"]
ENGINES: dict[Engine, str] = {
    "beirgrid": "beirgrid's own engine runs the model by its name",
    "mteb": "mteb's own loader runs the model by its name (`engine: mteb`)",
    "endpoint": "the model is served, not published: write an entry with `endpoint:` (docs/endpoints.md)",
    "refused": "the model cannot be run here",
}


class Listed(NamedTuple):
    """A model of mteb, the engine that runs it, and the reason.

    Attributes:
        name: as mteb lists it, the id on the hub.
        engine: the engine that runs it.
        family: family of its entry; empty unless a job here runs it.
        reason: why this engine runs it.
        parameters: in millions; None where mteb states none.
        licence: empty where mteb states none.
        output: types of the vectors that mteb's loader or the service returns; empty for float32.
    """

    name: str
    engine: Engine
    family: str
    reason: str
    parameters: float | None
    licence: str
    output: str


@cache
def models() -> dict[str, Listed]:
    """Return the models of the file by their names."""
    with FILE.open(encoding="utf-8", newline="") as stream:
        return {row["name"]: _listed(**row) for row in csv.DictReader(stream)}


def _listed(engine: str, parameters: str, **row: str) -> Listed:
    return Listed(engine=cast(Engine, engine), parameters=float(parameters) if parameters else None, **row)


def text(found: Iterable[Listed]) -> str:
    """Return the file of these models."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(Listed._fields)
    writer.writerows(found)
    return stream.getvalue()


if __name__ == "__main__":
    from . import registry

    FILE.write_text(text(registry.models()), encoding="utf-8")
