"""Neural models behind one face: a class per family, all loaded through sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .base import (
    Scorer,
    Variety,
    add_compute_arguments,
    add_device_argument,
    check_finite,
    pick_device,
    pick_precision,
    token_batches,
)
from .cross_encoder import CrossEncoderScorer
from .dense import DenseEncoder
from .late_interaction import LateInteractionEncoder
from .query_generator import QueryGenerator
from .seq2seq import Seq2SeqScorer
from .sparse import SparseTextEncoder
from .term_weights import TermWeighter

# The classes of the families whose documents are encoded, shard by shard.
FAMILIES: dict[str, Any] = {
    "dense": DenseEncoder,
    "sparse": SparseTextEncoder,
    "late-interaction": LateInteractionEncoder,
}
# The classes of the families that score pairs.
SCORERS: dict[str, type[CrossEncoderScorer] | type[Seq2SeqScorer]] = {
    "cross-encoder": CrossEncoderScorer,
    "seq2seq-reranker": Seq2SeqScorer,
}


def open_encoder(folder: Path, spec: dict[str, Any], device: str, precision: str, batch_tokens: dict[str, int]) -> Any:
    """Open the checkpoint in ``folder`` as the family of its registry entry ``spec`` says."""
    return FAMILIES[spec["family"]](folder, spec, device, precision, batch_tokens)


def open_scorer(
    folder: Path, spec: dict[str, Any], device: str, precision: str, batch_tokens: dict[str, int]
) -> Scorer:
    """Open the checkpoint of a reranker as the family of its registry entry ``spec`` says."""
    return SCORERS[spec["family"]](folder, spec, device, precision, batch_tokens)


__all__ = [
    "CrossEncoderScorer",
    "DenseEncoder",
    "LateInteractionEncoder",
    "QueryGenerator",
    "Scorer",
    "Seq2SeqScorer",
    "SparseTextEncoder",
    "TermWeighter",
    "Variety",
    "add_compute_arguments",
    "add_device_argument",
    "check_finite",
    "open_encoder",
    "open_scorer",
    "pick_device",
    "pick_precision",
    "token_batches",
]
