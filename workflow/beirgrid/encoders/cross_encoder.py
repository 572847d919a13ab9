"""Cross-encoders: one score per (query, document) pair."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import sentence_transformers
import torch

from ..config.models import CrossEncoder
from ..core.compute import Runtime
from ..core.errors import DataError
from . import cutting
from .base import MOST_LABELS, PairScorer
from .engine import Tokens
from .protocol import parts

# Pairs tokenized at a time. For a pair of long texts, a tokenizer keeps about 4 MB of truncated tokens.
PAIRS_TOKENIZED = 32


def _last_layers(model: Any) -> list[str]:
    """Return the names of the linear layers that compute a cross-encoder's logits."""
    linear = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)]
    return [name for name, layer in linear if layer.out_features <= MOST_LABELS]


class CrossEncoderScorer(PairScorer[CrossEncoder]):
    """Scores (query, document) pairs by the raw logit (CrossEncoder): a sigmoid would saturate.

    With two labels, the score is the logit of the second ("relevant") minus the first's, the log-odds.
    """

    def __init__(self, folder: Path, entry: CrossEncoder, runtime: Runtime) -> None:
        super().__init__(entry, runtime)
        self.load(sentence_transformers.CrossEncoder, folder, max_length=entry.max_length)
        if self.model.num_labels > MOST_LABELS:
            raise DataError(
                f"{folder} has {self.model.num_labels} labels; a reranker has one, or not relevant and relevant"
            )
        # bfloat16 has 128 values between two powers of two, so its logits would tie.
        self.model.set_keep_in_fp32_modules(_last_layers(self.model))
        self.set_precision("scores")

    def tokenized(self, pairs: list[tuple[str, str]]) -> Tokens:
        """Tokenize pairs, truncated to the model's length. Long texts are cut before (``cutting.for_pair``)."""
        tokens = Tokens()
        limit = self.model.max_seq_length
        with self.reading, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*overflowing tokens.*")
            queries = {text: cutting.for_pair(self.tokenizer, text, limit) for text in {query for query, _ in pairs}}
            counted = any(query.shorter for query in queries.values())
            documents = {
                text: cutting.for_pair(self.tokenizer, text, limit, counted)
                for text in {document for _, document in pairs}
            }
            beginnings = [cutting.pair(queries[query], documents[document]) for query, document in pairs]
            for part in parts(beginnings, PAIRS_TOKENIZED):
                tokens.add(self.preprocess(part))
        return tokens

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the logit of each pair, or the difference of its two logits: float32 [pairs]."""
        scores = self.model(inputs)["scores"].float()
        return (scores[:, -1] - scores[:, 0] if scores.shape[1] == MOST_LABELS else scores[:, 0],)
