"""Cross-encoders: one score per (query, document) pair."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import CrossEncoder
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from . import cutting
from .base import PairScorer, load_checkpoint, token_batches
from .cutting import Beginning


def _last_layers(model: Any) -> list[str]:
    """Return the names of the linear layers that give a cross-encoder's one logit."""
    from torch import nn

    return [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and layer.out_features == 1]


class CrossEncoderScorer(PairScorer[CrossEncoder]):
    """One score per (query, document) pair (CrossEncoder): the raw logit, as a sigmoid saturates."""

    def __init__(self, folder: Path, entry: CrossEncoder, runtime: Runtime) -> None:
        import sentence_transformers

        super().__init__(entry, runtime)
        self.model = load_checkpoint(
            sentence_transformers.CrossEncoder,
            folder,
            device=runtime.device,
            max_length=entry.max_length,
            trust_remote_code=entry.trust_remote_code,
        )
        self.model.eval()
        if self.model.num_labels != 1:
            raise DataError(f"{folder} has {self.model.num_labels} labels; a reranker gives one score per pair")
        # bfloat16 has some 60 values between two powers of two: logits in it would tie.
        self.model.set_keep_in_fp32_modules(_last_layers(self.model))
        self.set_precision()
        self.check_length()

    def begin(self, text: str, *, counted: bool = True) -> Beginning:
        """Return the part of a query or document that the model can read (``cutting.for_pair``)."""
        return cutting.for_pair(self.model.tokenizer, text, self.model.max_seq_length, counted)

    def score_beginnings(
        self, queries: list[Beginning], documents: list[Beginning], *, progress: Progress | None = None
    ) -> np.ndarray:
        """Return the logit of each pair (queries[i], documents[i]): float32 [pairs], higher is better."""
        import torch

        pairs = [cutting.pair(query, document) for query, document in zip(queries, documents, strict=True)]
        lengths = self.token_lengths([first for first, _ in pairs], [second for _, second in pairs])
        scores = np.empty(len(pairs), np.float32)
        with self.autocast(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*overflowing tokens.*")
            for rows in token_batches(lengths, self.budget):
                scores[rows] = self.model.predict(
                    [pairs[row] for row in rows],
                    batch_size=len(rows),
                    activation_fn=torch.nn.Identity(),
                    show_progress_bar=False,
                )
                if progress:
                    progress.add(len(rows))
        return scores
