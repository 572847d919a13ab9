"""Neural models behind one face: a class per family, all loaded through sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .base import add_compute_arguments, check_finite, pick_device, pick_precision, token_batches
from .cross_encoder import CrossEncoderScorer
from .dense import DenseEncoder
from .query_generator import QueryGenerator
from .term_weights import TermWeighter

# The classes of the families whose documents are encoded, shard by shard.
FAMILIES = {"dense": DenseEncoder}


def open_encoder(
    folder: Path, spec: dict[str, Any], device: str, precision: str, batch_tokens: dict[str, int]
) -> DenseEncoder:
    """Open the checkpoint in ``folder`` as the family of its registry entry ``spec`` says."""
    return FAMILIES[spec["family"]](folder, spec, device, precision, batch_tokens)


__all__ = [
    "CrossEncoderScorer",
    "DenseEncoder",
    "QueryGenerator",
    "TermWeighter",
    "add_compute_arguments",
    "check_finite",
    "open_encoder",
    "pick_device",
    "pick_precision",
    "token_batches",
]
