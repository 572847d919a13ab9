"""Open neural models from checkpoints, by family: encoders, rerankers and document expanders."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..config.models import (
    CrossEncoder,
    DecoderReranker,
    DenseModel,
    LateInteractionModel,
    ListwiseReranker,
    Model,
    ModelEntry,
    Seq2SeqReranker,
)
from ..config.values import explain
from ..core.compute import Compute, Runtime
from ..core.errors import ConfigError
from ..core.families import FAMILIES, RETRIEVERS
from .answering import AnswerScorer
from .chunked import ChunkedEncoder, ChunkedScorer
from .cross_encoder import CrossEncoderScorer
from .dense import DenseEncoder
from .engine import FIRST, WINDOW
from .guards import CollapseCheck, check_finite
from .late_interaction import LateInteractionEncoder, LateInteractionScorer
from .listwise import ListwiseScorer
from .mteb_loader import MtebScorer
from .protocol import Encoder, Scorer
from .query_generator import GeneratorModel
from .served import ServedEncoder, ServedScorer
from .sparse import SparseTextEncoder
from .term_weights import TermWeighter


def open_encoder(
    folder: str | Path,
    entry: ModelEntry | Mapping[str, Any],
    runtime: Runtime | None = None,
    answers: Path | None = None,
) -> Encoder[Any]:
    """Open a checkpoint as the family of its registry entry.

    Args:
        folder: the checkpoint.
        entry: the registry entry, or its keys as a mapping: ``{"family": "dense", "similarity": "cosine"}``.
        runtime: the device, from ``core.compute.Compute(device="cpu").start()``. Unless given, a GPU is used where
            there is one.
        answers: cache folder for an endpoint's responses.

    Returns:
        an encoder with the methods ``encode_documents`` and ``encode_queries`` (``encoders.protocol.Encoder``).

    Raises:
        ConfigError: a key of the entry is unknown or has a wrong value.
        DataError: the checkpoint is damaged, or is not what the entry says.

    Example:
        >>> encoder = open_encoder("checkpoint", {"family": "dense", "similarity": "cosine"})  # doctest: +SKIP
        >>> encoder.encode_documents(["A title. A text."]).shape  # doctest: +SKIP
        (1, 384)
    """
    folder, runtime = Path(folder), runtime or Compute().start()
    model = _entry(entry) if isinstance(entry, Mapping) else entry
    if model.family not in RETRIEVERS:
        raise ConfigError(f"models of the family {model.family} encode no texts (known: {', '.join(RETRIEVERS)})")
    if model.endpoint:
        assert isinstance(model, DenseModel), "the configuration is checked"
        return ServedEncoder(folder, model, runtime, answers)
    module, _, name = FAMILIES[model.family].encoder.partition(":")
    encoder: Encoder[Any] = getattr(importlib.import_module(f".{module}", __name__), name)(folder, model, runtime)
    return ChunkedEncoder(encoder, model, folder) if isinstance(model, DenseModel) and model.chunks else encoder


def _entry(keys: Mapping[str, Any]) -> ModelEntry:
    try:
        entry: ModelEntry = TypeAdapter(Model).validate_json(json.dumps(dict(keys)))
    except ValidationError as error:
        raise ConfigError(f"the entry is not valid: {'; '.join(explain(error, '', keys))}") from None
    return entry


def open_scorer(
    folder: Path,
    entry: CrossEncoder | Seq2SeqReranker | DecoderReranker | ListwiseReranker | LateInteractionModel,
    runtime: Runtime,
    answers: Path | None = None,
) -> Scorer:
    """Open a reranker's checkpoint as the family of its registry entry. The arguments are those of ``open_encoder``.

    Raises:
        DataError: the checkpoint is damaged, or is not what the entry says.
    """
    if entry.endpoint:
        return ServedScorer(folder, entry, runtime, answers)
    if isinstance(entry, ListwiseReranker):
        return ListwiseScorer(folder, entry, runtime)
    if isinstance(entry, CrossEncoder) and entry.engine:
        return MtebScorer(folder, entry, runtime)
    if isinstance(entry, LateInteractionModel):
        return LateInteractionScorer(folder, entry, runtime)
    scorer: CrossEncoderScorer | AnswerScorer
    if isinstance(entry, CrossEncoder):
        scorer = CrossEncoderScorer(folder, entry, runtime)
    else:
        scorer = AnswerScorer(folder, entry, runtime)
    return ChunkedScorer(scorer, entry) if entry.chunks else scorer


__all__ = [
    "FIRST",
    "WINDOW",
    "AnswerScorer",
    "ChunkedScorer",
    "CollapseCheck",
    "CrossEncoderScorer",
    "DenseEncoder",
    "Encoder",
    "GeneratorModel",
    "LateInteractionEncoder",
    "ListwiseScorer",
    "Scorer",
    "SparseTextEncoder",
    "TermWeighter",
    "check_finite",
    "open_encoder",
    "open_scorer",
]
