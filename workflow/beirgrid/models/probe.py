"""Probe a served model: responses to fixed texts tell whether the server still runs the same model.

Fetch stores the response as the model's checkpoint. Each job repeats the probe.
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
# Ledger of all requests to the model, beside the checkpoint.
LEDGER = "spent.tsv"
_TEXTS = (
    "Lift is the component of the aerodynamic force that is perpendicular to the flow.",
    "The mitochondrion makes most of the chemical energy of a cell.",
    "Wer anderen eine Grube gräbt, fällt selbst hinein.",
)
# Vectors with a smaller cosine to the stored ones, or scores that differ by more than this share of the largest, mean
# another model. Rounding on other hardware or in other batches is smaller.
_SAME, _SCORE = 0.995, 0.02


def with_connection(endpoint: Endpoint, connection: str) -> Endpoint:
    """Return an endpoint with the connection settings from JSON."""
    return Endpoint.model_validate_json(json.dumps({**json.loads(connection or "{}"), **endpoint.identity()}))


def fetch(family: str, endpoint: Endpoint, folder: Path) -> dict[str, Any]:
    """Store a server's response to the probe in a folder; return the model's identity for the record.

    Raises:
        DataError: the server gives no valid response.
    """
    probed = probe(family, endpoint, folder)
    files.write_json(folder / PROBE, {**endpoint.identity(), "probe": probed})
    return {"served": endpoint.identity(), "files": {PROBE: files.sha256(folder / PROBE)}}


def probe(family: str, endpoint: Endpoint, folder: Path) -> list[Any]:
    """Return a server's rounded vectors or scores of fixed texts; for a chat model, the name that it states.

    Args:
        endpoint: the endpoint with its connection.
        folder: the model's checkpoint, beside which the ledger is.
    """
    client = Client(endpoint, folder.parent / LEDGER)
    if family == "dense":
        answer = client.embed(_TEXTS)
    elif family == "cross-encoder":
        answer = client.rerank(_TEXTS[0], _TEXTS)
    else:
        return [client.stated_model([{"role": "user", "content": "Answer with the number 1 alone."}])]
    rounded: list[Any] = np.round(answer.astype(np.float64), 5).tolist()
    return rounded


def is_same_model(before: list[Any], now: list[Any]) -> bool:
    """Tell whether two responses to the probe come from one model."""
    if before == now or isinstance(before[0], str) or isinstance(now[0], str):
        return before == now
    first, second = np.asarray(before), np.asarray(now)
    if first.shape != second.shape:
        return False
    if first.ndim == 1:
        return bool(np.abs(first - second).max() <= _SCORE * max(np.abs(first).max(), 1e-6))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return bool(((first * second).sum(axis=1) >= _SAME * lengths).all())
