"""Base of models with transformers' own classes: a transformer below one output layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import cutting
from .base import EntryT, LoadedModel
from .engine import TOKENIZED, Tokens, parts
from .loading import load_checkpoint

# Default maximum of tokens per document, unless the entry or the model has a smaller one.
LONGEST = 512


class HeadedModel(LoadedModel[EntryT]):
    """A tokenizer and a model of a transformers class, opened from a checkpoint."""

    def open(self, loader: Any, folder: Path) -> None:
        """Load both into ``tokenizer`` and ``model``; raise DataError if the folder does not hold them."""
        import torch
        from transformers import AutoTokenizer

        remote = self.entry.trust_remote_code
        self.tokenizer = load_checkpoint(AutoTokenizer, folder, trust_remote_code=remote)
        self.model = load_checkpoint(loader, folder, dtype=torch.float32, trust_remote_code=remote)
        self.model.to(self.runtime.device).eval()
        self.check_length()
        self.fit_precision(self.model, self.tokenizer)
        positions = getattr(self.transformer.config, "max_position_embeddings", None) or LONGEST
        self.longest: int = self.entry.max_length or min(positions, LONGEST)

    @property
    def transformer(self) -> Any:
        """The model itself, which is not a list of modules."""
        return self.model

    def tokenized(self, texts: list[str], prompt: str = "") -> Tokens:
        """Tokenize texts, each after the prompt, truncated to the model's length, as inputs of the engine."""
        read: list[list[int]] = []
        with self.reading:
            for part in parts(texts, TOKENIZED):
                cut = [prompt + cutting.cut(self.tokenizer, text, self.longest, prompt) for text in part]
                read += self.tokenizer(cut, truncation=True, max_length=self.longest, verbose=False)["input_ids"]
        return Tokens({"input_ids": [np.array(ids, np.int32) for ids in read]})
