"""Late-interaction encoders (ColBERT): a vector per token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import LateInteractionModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..search.maxsim import TokenVectors
from .base import LoadedModel, load_checkpoint, token_batches


def _check_projection(folder: Path) -> None:
    """Refuse a checkpoint without a projection of its tokens: the library makes one up, or takes a dense model's."""

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text("utf-8")) if (folder / name).is_file() else {}

    saved = read("config_sentence_transformers.json")
    late = saved.get("model_type") in ("ColBERT", "MultiVectorEncoder") or "query_prefix" in saved  # PyLate's
    projected = late and any(module["type"].endswith(".Dense") for module in read("modules.json"))
    if not projected and "HF_ColBERT" not in (read("config.json").get("architectures") or []):
        raise DataError(f"{folder} is no late-interaction model: it has no projection of token vectors")


class LateInteractionEncoder(LoadedModel[LateInteractionModel]):
    """A vector per token (MultiVectorEncoder); reads checkpoints of PyLate and of Stanford's ColBERT.

    Markers, query expansion and skipped words are the checkpoint's own; ``max_length`` of documents and
    ``query_length`` of queries come from the registry entry, or else from the checkpoint.
    """

    def __init__(self, folder: Path, entry: LateInteractionModel, runtime: Runtime) -> None:
        from sentence_transformers import MultiVectorEncoder

        super().__init__(entry, runtime)
        self.model = load_checkpoint(
            MultiVectorEncoder,
            folder,
            unused="pooler",
            spare="linear.weight",  # the projection of Stanford's checkpoints, which becomes a module
            device=runtime.device,
            trust_remote_code=entry.trust_remote_code,
        )
        _check_projection(folder)
        self.model.eval()
        self._set_lengths()
        self.set_precision()
        self.check_length()
        self.dimension: int = self.model.get_embedding_dimension()

    def _set_lengths(self) -> None:
        transformer, length = self.model[0], self.entry.query_length
        if self.entry.max_length is not None:
            transformer.document_length = self.entry.max_length
        if length is not None:
            expansion = transformer.query_expansion
            transformer.query_expansion = None  # an expansion must never be longer than the queries
            transformer.query_length = length
            if expansion:
                transformer.query_expansion = {**expansion, "length": length}

    def encode_documents(self, texts: list[str], *, progress: Progress | None = None) -> TokenVectors:
        """Return the vectors of each document's tokens, skipped ones (punctuation) left out."""
        texts, lengths = self._read(texts, "document", self.model[0].document_length)
        return self._encode(self.model.encode_document, texts, lengths, progress)

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> TokenVectors:
        """Return the vectors of each query's tokens, those of its expansion included."""
        expansion = self.model[0].query_expansion
        width = expansion["length"] if expansion else 0
        texts, lengths = self._read(texts, "query", max(self.model[0].query_length or 0, width) or None)
        lengths = np.maximum(lengths, width)
        return self._encode(self.model.encode_query, texts, lengths, progress)

    def _read(self, texts: list[str], role: str, limit: int | None) -> tuple[list[str], np.ndarray]:
        """Return the part of each text that is read, and how many tokens the transformer sees: int64 [texts]."""
        marker = self.model.prompts.get(role) or ""
        texts = self.cut(texts, marker, limit)
        return texts, self.token_lengths([marker + text for text in texts], limit=limit)

    def _encode(self, encode: Any, texts: list[str], lengths: np.ndarray, progress: Progress | None) -> TokenVectors:
        vectors = [np.zeros((0, self.dimension), np.float32)] * len(texts)
        with self.autocast():
            for rows in token_batches(lengths, self.budget):
                found = encode([texts[row] for row in rows], batch_size=len(rows), show_progress_bar=False)
                for row, tokens in zip(rows, found, strict=True):
                    vectors[row] = tokens.float().cpu().numpy()
                if progress:
                    progress.add(len(rows))
        counts = np.fromiter(map(len, vectors), np.int64, len(texts))
        return TokenVectors(np.concatenate([np.zeros((0, self.dimension), np.float32), *vectors]), counts)
