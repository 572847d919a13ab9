"""Base of models of transformers' own classes: a transformer below one output layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..core.compute import Runtime
from . import cutting
from .base import EntryT, LoadedModel
from .engine import TOKENIZED, Tokens, parts
from .loading import load_checkpoint, pad_with_the_end

# Default maximum of tokens per text, unless the entry or the model has a smaller one.
LONGEST = 512


class HeadedModel(LoadedModel[EntryT]):
    """A model of a class of transformers, with its tokenizer.

    Attributes:
        limit: maximum tokens per text.
    """

    def __init__(
        self, folder: Path, entry: EntryT, runtime: Runtime, loader: Any, stored: str = "float32", **tokenizing: Any
    ) -> None:
        """Open a checkpoint with a class of transformers (``loader``).

        ``stored`` is the precision of the weights, and ``tokenizing`` are settings of the tokenizer.

        Raises:
            DataError: the folder does not hold such a model and a tokenizer.
        """
        import torch
        from transformers import AutoTokenizer

        super().__init__(entry, runtime)
        remote = entry.trust_remote_code
        tokenizer = load_checkpoint(AutoTokenizer, folder, trust_remote_code=remote, **tokenizing)
        pad_with_the_end(tokenizer)
        self.model = load_checkpoint(loader, folder, dtype=torch.float32, trust_remote_code=remote)
        self.model.to(runtime.device, getattr(torch, stored)).eval()
        self.model.tokenizer = tokenizer
        self.check_length()
        self.limit: int = entry.max_length or min(self.positions or LONGEST, LONGEST)

    @property
    def transformer(self) -> Any:
        """The model itself, which is not a list of modules."""
        return self.model

    def tokenized_texts(self, texts: list[str], prompt: str = "") -> Tokens:
        """Tokenize texts, each after the prompt, truncated to the model's length, as inputs of the engine."""
        read: list[list[int]] = []
        with self.reading:
            for part in parts(texts, TOKENIZED):
                cut = [prompt + cutting.cut(self.tokenizer, text, self.limit, prompt) for text in part]
                read += self.tokenizer(cut, truncation=True, max_length=self.limit, verbose=False)["input_ids"]
        return Tokens({"input_ids": [np.array(ids, np.int32) for ids in read]})
