"""Neural models by family, opened from checkpoints: encoders, scorers of pairs, expanders of documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..config.models import CrossEncoder, DenseModel, LateInteractionModel, Seq2SeqReranker, SparseModel
from ..core.compute import Runtime
from ..search.maxsim import TokenVectors
from .base import Variety, check_finite, token_batches
from .cross_encoder import CrossEncoderScorer
from .dense import DenseEncoder
from .late_interaction import LateInteractionEncoder
from .protocol import Encoder, Scorer
from .query_generator import QueryGenerator
from .seq2seq import Seq2SeqScorer
from .sparse import SparseTextEncoder
from .term_weights import TermWeighter

if TYPE_CHECKING:
    import scipy.sparse


@overload
def open_encoder(folder: Path, entry: DenseModel, runtime: Runtime) -> Encoder[np.ndarray]: ...
@overload
def open_encoder(folder: Path, entry: SparseModel, runtime: Runtime) -> Encoder[scipy.sparse.csr_matrix]: ...
@overload
def open_encoder(folder: Path, entry: LateInteractionModel, runtime: Runtime) -> Encoder[TokenVectors]: ...
def open_encoder(
    folder: Path, entry: DenseModel | SparseModel | LateInteractionModel, runtime: Runtime
) -> Encoder[Any]:
    """Open a checkpoint as the family of its registry entry.

    Args:
        folder: the checkpoint.
        entry: the registry entry.
        runtime: the device (``core.compute.Compute.start``).

    Raises:
        DataError: the checkpoint is damaged, or is not what the entry says.
    """
    if isinstance(entry, DenseModel):
        return DenseEncoder(folder, entry, runtime)
    if isinstance(entry, SparseModel):
        return SparseTextEncoder(folder, entry, runtime)
    return LateInteractionEncoder(folder, entry, runtime)


def open_scorer(folder: Path, entry: CrossEncoder | Seq2SeqReranker, runtime: Runtime) -> Scorer:
    """Open the checkpoint of a reranker as the family of its registry entry.

    Args:
        folder: the checkpoint.
        entry: the registry entry.
        runtime: the device (``core.compute.Compute.start``).

    Raises:
        DataError: the checkpoint is damaged, or is not what the entry says.
    """
    if isinstance(entry, CrossEncoder):
        return CrossEncoderScorer(folder, entry, runtime)
    return Seq2SeqScorer(folder, entry, runtime)


__all__ = [
    "CrossEncoderScorer",
    "DenseEncoder",
    "Encoder",
    "LateInteractionEncoder",
    "QueryGenerator",
    "Scorer",
    "Seq2SeqScorer",
    "SparseTextEncoder",
    "TermWeighter",
    "Variety",
    "check_finite",
    "open_encoder",
    "open_scorer",
    "token_batches",
]
