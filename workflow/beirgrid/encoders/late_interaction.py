"""Late-interaction encoders (ColBERT): one vector per token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Dense

from ..config.models import LateInteractionModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..models import saved
from ..search.maxsim import TokenVectors
from .base import TextEncoder
from .loading import first_module, m3_head
from .protocol import TokenRows


def _check_projection(folder: Path) -> None:
    """Refuse a checkpoint without a token projection: the library would initialise one at random, or use a dense
    model's. Also refuse one whose token vectors keep their lengths.
    """
    own = saved.settings(folder)
    late = own.get("model_type") in ("ColBERT", "MultiVectorEncoder") or "query_prefix" in own  # PyLate's
    projected = late and any(module["type"].endswith(".Dense") for module in saved.modules(folder))
    if not projected and "HF_ColBERT" not in (saved.read(folder / "config.json").get("architectures") or []):
        raise DataError(f"{folder} is not a late-interaction model: it has no token projection")
    if own.get("model_type") == "MultiVectorEncoder" and not saved.normalises(folder):
        raise DataError(f"{folder}: its last module is no Normalize, but beirgrid compares token vectors of length 1")


def _without_projection(folder: str, **options: Any) -> Any:
    """Build a MultiVectorEncoder of a checkpoint's last layer."""
    return MultiVectorEncoder(modules=[first_module(folder, options), MultiVectorMask()], **options)


def _with_m3_head(folder: str, **options: Any) -> Any:
    """Build a MultiVectorEncoder with BGE-M3's projection, as FlagEmbedding does: the first token has no vector."""
    first = first_module(folder, options)
    head = m3_head(Path(folder), "colbert")
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    weights = {"init_weight": head["weight"], "init_bias": head["bias"]}
    projection = Dense(*head["weight"].shape[::-1], activation_function=torch.nn.Identity(), **weights, **tokens)
    mask = MultiVectorMask()
    mask.register_forward_hook(_drop_first)
    return MultiVectorEncoder(modules=[first, projection, mask], **options)


def _drop_first(module: Any, inputs: Any, features: dict[str, torch.Tensor]) -> None:
    """Leave the first token of each text out of the mask. The same token inside a text stays."""
    features["attention_mask"][:, 0] = False


class LateInteractionEncoder(TextEncoder[LateInteractionModel, TokenVectors], TokenRows):
    """Encodes a text to one vector per token (MultiVectorEncoder); opens checkpoints of PyLate and Stanford's ColBERT.

    Markers, query expansion and skipped words are the checkpoint's. ``max_length`` of documents and ``query_length`` of
    queries come from the registry entry or, if absent, from the checkpoint.
    """

    def __init__(self, folder: Path, entry: LateInteractionModel, runtime: Runtime) -> None:
        super().__init__(entry, runtime)
        heads = {None: MultiVectorEncoder, "bge-m3": _with_m3_head, "none": _without_projection}
        # The spare weight is the projection in Stanford's checkpoints, which becomes a module.
        self.load(heads[entry.head], folder, "pooler", spare="linear.weight")
        if not entry.head:
            _check_projection(folder)
        self._set_lengths()
        self.set_precision()
        self.dimension: int = self.model.get_embedding_dimension()

    def _set_lengths(self) -> None:
        transformer = self.model[0]
        length = self.entry.query_length
        if self.entry.max_length is not None:
            transformer.document_length = self.entry.max_length
        if length is not None:
            expansion = transformer.query_expansion
            transformer.query_expansion = None  # an expansion must not exceed the query length
            transformer.query_length = length
            if expansion:
                transformer.query_expansion = {**expansion, "length": length}

    def limit(self, role: str) -> int | None:
        """Return the maximum tokens per text. An expansion may lengthen queries."""
        transformer = self.model[0]
        if role == "document":
            return transformer.document_length  # type: ignore[no-any-return]
        expansion = transformer.query_expansion
        return max(transformer.query_length or 0, expansion["length"] if expansion else 0) or None

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Select the token vectors [texts, tokens, dimension] and the mask of those to keep [texts, tokens]."""
        vectors = torch.nn.functional.normalize(features["token_embeddings"].float(), dim=-1)
        return vectors, features["attention_mask"].bool()

    def batch_vectors(self, results: tuple[np.ndarray, ...]) -> TokenVectors:
        """Drop the vectors of padding and skipped tokens."""
        vectors, kept = results
        return TokenVectors(vectors[kept], kept.sum(1))

    def in_order(self, vectors: TokenVectors, rows: np.ndarray) -> TokenVectors:
        """Select the vectors of texts by their rows."""
        return vectors.texts(rows)
