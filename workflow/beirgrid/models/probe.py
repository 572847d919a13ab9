"""The probe of a served model: what its server answers about fixed texts tells whether it still runs the same model.

Fetch keeps the answer as the model's checkpoint. Each job asks again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..config.endpoint_entries import Endpoint
from ..core import files
from .endpoints import Client

PROBE = "endpoint.json"
# Beside the checkpoint: what all requests to the model took.
LEDGER = "spent.tsv"
_TEXTS = (
    "Lift is the component of the aerodynamic force that is perpendicular to the flow.",
    "The mitochondrion makes most of the chemical energy of a cell.",
    "Wer anderen eine Grube gräbt, fällt selbst hinein.",
)
# A server whose vectors have a smaller cosine with those of the probe, or whose scores differ by more than this share
# of the largest, runs another model. Other hardware and other batches round less.
_SAME, _SCORE = 0.995, 0.02


def reached(endpoint: Endpoint, connection: str) -> Endpoint:
    """Return an endpoint with its connection, JSON."""
    return Endpoint.model_validate_json(json.dumps({**json.loads(connection or "{}"), **endpoint.identity()}))


def fetch(family: str, endpoint: Endpoint, folder: Path) -> dict[str, Any]:
    """Write what a server answers to the probe into a folder; return the served model's identity for the record.

    Raises:
        DataError: the server gives no usable answer.
    """
    probed = probe(family, endpoint, folder)
    files.write_json(folder / PROBE, {**endpoint.identity(), "probe": probed})
    return {"served": endpoint.identity(), "files": {PROBE: files.sha256(folder / PROBE)}}


def probe(family: str, endpoint: Endpoint, folder: Path) -> list[Any]:
    """Return what a server answers about fixed texts: vectors or scores, rounded; of a chat model, the name it states.

    Args:
        family: of the model.
        endpoint: the endpoint with its connection.
        folder: the model's checkpoint; what the requests cost is entered beside it.
    """
    client = Client(endpoint, folder.parent / LEDGER)
    if family == "dense":
        found = client.embed(_TEXTS)
    elif family == "cross-encoder":
        found = client.rerank(_TEXTS[0], _TEXTS)
    else:
        return [client.stated_model([{"role": "user", "content": "Answer with the number 1 alone."}])]
    rounded: list[Any] = np.round(found.astype(np.float64), 5).tolist()
    return rounded


def alike(before: list[Any], now: list[Any]) -> bool:
    """Tell whether two answers to the probe are those of one model."""
    if before == now or isinstance(before[0], str) or isinstance(now[0], str):
        return before == now
    first, second = np.asarray(before), np.asarray(now)
    if first.shape != second.shape:
        return False
    if first.ndim == 1:
        return bool(np.abs(first - second).max() <= _SCORE * max(np.abs(first).max(), 1e-6))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return bool(((first * second).sum(axis=1) >= _SAME * lengths).all())
