"""Dense encoders: one vector per text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..progress import Progress
from .base import Encoder, load_checkpoint, token_batches


class DenseEncoder(Encoder):
    """One vector per text (SentenceTransformer)."""

    def __init__(
        self, folder: Path, spec: dict[str, Any], device: str, precision: str, batch_tokens: dict[str, int]
    ) -> None:
        from sentence_transformers import SentenceTransformer

        super().__init__(spec, device, precision, batch_tokens)
        prompts = {"query": "", "document": "", **spec.get("prompts", {})}
        self.model = load_checkpoint(
            SentenceTransformer,
            folder,
            device=self.device,
            prompts=prompts,
            trust_remote_code=spec.get("trust_remote_code", False),
        )
        self.model.eval()
        if "max_length" in spec:
            self.model.max_seq_length = spec["max_length"]
        self.set_precision()
        self.check_length()
        self.dimension: int = self.model.get_embedding_dimension()

    def encode_documents(self, texts: list[str], progress: Progress | None = None) -> np.ndarray:
        """Return float32 [texts, dimension]; rows are of length 1 if the similarity is cosine."""
        return self._encode(self.model.encode_document, "document", texts, progress)

    def encode_queries(self, texts: list[str], progress: Progress | None = None) -> np.ndarray:
        """Return float32 [texts, dimension]; rows are of length 1 if the similarity is cosine."""
        return self._encode(self.model.encode_query, "query", texts, progress)

    def _encode(self, encode: Any, role: str, texts: list[str], progress: Progress | None) -> np.ndarray:
        vectors = np.empty((len(texts), self.dimension), np.float32)
        prompt = self.model.prompts[role]
        with self.autocast():
            for rows in token_batches(self.token_lengths([prompt + text for text in texts]), self.budget):
                vectors[rows] = encode(
                    [texts[row] for row in rows],
                    batch_size=len(rows),
                    normalize_embeddings=self.spec["similarity"] == "cosine",
                    show_progress_bar=False,
                )
                if progress:
                    progress.add(len(rows))
        return vectors
