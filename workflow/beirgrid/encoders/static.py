"""Static embeddings (model2vec): a text's vector is the mean of its tokens' vectors in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import DenseModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..models import saved
from .loading import load_checkpoint
from .protocol import DenseVectors


class StaticEncoder(DenseVectors):
    """Encodes a text to one vector, of length 1 for cosine similarity.

    It runs on the CPU in float32: sending tokens to a GPU would take longer than averaging their vectors.
    """

    precision = "float32"

    def __init__(self, folder: Path, entry: DenseModel, runtime: Runtime) -> None:
        from sentence_transformers import SentenceTransformer

        saved.check_use(folder, "SentenceTransformer", entry.similarity)
        if entry.max_length or entry.brackets or entry.pooling not in (None, "own", "mean"):
            raise DataError(
                f"{folder} is a table of token vectors, which averages whole texts: remove max_length, brackets and "
                "pooling from the model's entry"
            )
        self.kernels, self.unit = runtime.kernels, entry.similarity == "cosine"
        prompts = saved.prompts(folder, entry)
        self.model: Any = load_checkpoint(SentenceTransformer, folder, device="cpu", prompts=prompts)
        self.dimension = len(self.model.encode("a"))

    def facts(self) -> dict[str, str]:
        """Return device and precision for the record of an artifact."""
        return {"device": "cpu", "precision": self.precision, "kernels": self.kernels}

    def encoded(self, texts: list[str], role: str) -> np.ndarray:
        """Return the vectors of one block, from sentence-transformers."""
        options = {"normalize_embeddings": self.unit, "show_progress_bar": False, "batch_size": 256}
        vectors: np.ndarray = self.model.encode(texts, prompt=self.model.prompts.get(role) or "", **options)
        return vectors
