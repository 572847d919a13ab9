"""Open neural models from checkpoints, by family: encoders, rerankers and document expanders."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..config.models import ChatModel, DenseModel, Model, ModelEntry
from ..config.values import mistakes
from ..core.compute import Compute, Runtime
from ..core.errors import BeirgridError, ConfigError
from ..core.families import FAMILIES, RETRIEVERS
from .mteb_loader import Loaded, open_by_mteb
from .protocol import Encoder
from .served import ServedEncoder, ServedScorer, ServedWriter


def open_model(folder: Path, entry: ModelEntry, runtime: Runtime, answers: Path | None = None) -> Any:
    """Open a model of any family, in chunks or behind an endpoint if its entry says so (``encoders.protocol``).

    The arguments are those of ``open_encoder``.

    Raises:
        DataError: the checkpoint is damaged, or is not what the entry says.
    """
    if isinstance(entry, DenseModel) and entry.endpoint:
        return ServedEncoder(folder, entry, runtime, answers)
    if isinstance(entry, ChatModel) and entry.endpoint:
        return ServedWriter(folder, entry, runtime, answers)
    if entry.endpoint:
        return ServedScorer(folder, entry, runtime, answers)
    if isinstance(entry, Loaded) and entry.engine:
        return open_by_mteb(folder, entry, runtime)
    module, _, name = FAMILIES[entry.family].encoder.partition(":")
    model = getattr(importlib.import_module(f".{module}", __name__), name)(folder, entry, runtime)
    if not (chunks := getattr(entry, "chunks", None)):
        return model
    from .chunked import ChunkedEncoder, ChunkedScorer  # it imports PyTorch, which served models do without

    return ChunkedEncoder(model, entry, folder) if isinstance(entry, DenseModel) else ChunkedScorer(model, chunks)


def query_checkpoint(checkpoint: Path | None, query_tower: Path | None) -> Path:
    """Return the checkpoint that encodes the queries."""
    if folder := query_tower or checkpoint:
        return folder
    raise BeirgridError("a search for vectors needs a checkpoint or a query_tower")


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
    folder = Path(folder)
    runtime = runtime or Compute().start()
    try:
        model = TypeAdapter(Model).validate_json(json.dumps(dict(entry))) if isinstance(entry, Mapping) else entry
    except ValidationError as error:
        raise ConfigError(f"the entry is not valid: {'; '.join(mistakes(error, '', entry))}") from None
    if model.family not in RETRIEVERS:
        raise ConfigError(f"models of the family {model.family} encode no texts (known: {', '.join(RETRIEVERS)})")
    encoder: Encoder[Any] = open_model(folder, model, runtime, answers)
    return encoder
