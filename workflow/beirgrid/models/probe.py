"""Probe a served model: its responses to fixed texts tell whether the server still runs the same model.

Fetch stores the responses as the model's checkpoint. Each job repeats the probe.
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
# A vector, or the scores, that differ from the stored ones by more than this share of their length are another model's.
# Rounding on other hardware or in other batches is smaller.
_VECTORS, _SCORES = 0.1, 0.02


def with_connection(endpoint: Endpoint, connection: str) -> Endpoint:
    """Return an endpoint with the connection settings from JSON."""
    return Endpoint.model_validate_json(json.dumps({**json.loads(connection or "{}"), **endpoint.identity()}))


def fetch(family: str, endpoint: Endpoint, folder: Path) -> dict[str, Any]:
    """Store a server's response to the probe in a folder; return the model's identity for the record.

    Raises:
        DataError: the server gives no valid response.
    """
    files.write_json(folder / PROBE, {**endpoint.identity(), "probe": probe(family, endpoint, folder)})
    return {"served": endpoint.identity(), "files": {PROBE: files.sha256(folder / PROBE)}}


def probe(family: str, endpoint: Endpoint, folder: Path) -> list[Any]:
    """Return a server's vectors or scores of fixed texts; for a chat model, the name that it states.

    Args:
        endpoint: the endpoint with its connection.
        folder: the model's checkpoint, beside which the ledger is.
    """
    client = Client(endpoint, folder.parent / LEDGER)
    if family not in ("dense", "cross-encoder"):
        messages = [{"role": "user", "content": "Answer with the number 1 alone."}]
        return [client.chat(messages, lambda answer: answer.get("model") or "")]
    numbers = client.embed(_TEXTS) if family == "dense" else client.rerank(_TEXTS[0], _TEXTS)
    rounded: list[Any] = np.round(numbers.astype(np.float64), 5).tolist()
    return rounded


def is_same_model(before: list[Any], now: list[Any]) -> bool:
    """Tell whether two responses to the probe come from one model."""
    first, second = np.asarray(before), np.asarray(now)
    if first.shape != second.shape or first.dtype.kind == "U":
        return before == now
    change, length = (np.linalg.norm(values, axis=-1) for values in (second - first, first))
    return bool((change <= (_VECTORS if first.ndim == 2 else _SCORES) * length).all())
