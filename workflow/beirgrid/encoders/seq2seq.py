"""Sequence-to-sequence rerankers (monoT5): whether the answer to a pair is more likely true or false."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.models import Seq2SeqReranker
from ..core.compute import Runtime
from ..core.errors import DataError
from . import cutting
from .base import PairScorer, encoder_of, load_checkpoint
from .cutting import Beginning
from .engine import Tokens

if TYPE_CHECKING:
    import torch

# What monoT5 is trained on (Nogueira et al. 2020). The end must survive truncation: it asks for the answer.
_PROMPT = "Query: {} Document: {}"
_END = "Relevant:"
_ANSWERS = ("▁true", "▁false")


def seq2seq_model(folder: str, **options: Any) -> Any:
    """Open a checkpoint's model, with its tokenizer as an attribute."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, **options)
    model.tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    return model


class Seq2SeqScorer(PairScorer[Seq2SeqReranker]):
    """One score per (query, document) pair: the logit of ``true`` less that of ``false`` as the first token.

    This is the log-odds of monoT5's probability of ``true`` and orders documents as that does; unlike the
    probability, or its logarithm, it does not saturate.
    """

    def __init__(self, folder: Path, entry: Seq2SeqReranker, runtime: Runtime) -> None:
        import torch

        super().__init__(entry, runtime)
        self.model = load_checkpoint(seq2seq_model, folder, trust_remote_code=entry.trust_remote_code)
        self.model.to(runtime.device).eval()
        self.tokenizer = self.model.tokenizer
        self.fit_precision(self.model, self.tokenizer)
        self.answers = self.tokenizer.convert_tokens_to_ids(list(_ANSWERS))
        if self.tokenizer.unk_token_id in self.answers:
            raise DataError(f"{folder} is not a monoT5: its tokenizer has no {' and '.join(_ANSWERS)}")
        self.end = self.tokenizer(_END)["input_ids"]
        self.limit = entry.max_length or 512
        # bfloat16 has some 60 values between two powers of two: logits in it would tie.
        head = self.model.get_output_embeddings()
        self.store_weights(self.model, head)
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
        head.forward = torch.autocast(runtime.kind, enabled=False)(head.forward)
        core = encoder_of(self.model)
        self.check_batches(self.tokenizer, lambda inputs: core(**inputs)[0])

    def begin(self, text: str, *, counted: bool = False) -> Beginning:
        """Return the part of a query or document that the model can read. Tokens are never counted."""
        return Beginning(cutting.cut(self.tokenizer, text, self.limit))

    def tokenized(self, pairs: list[tuple[Beginning, Beginning]]) -> Tokens:
        """Return the prompt of each pair: query and document, cut to what leaves room for the end."""
        with self.reading:
            ids = self._tokens([query.text for query, _ in pairs], [document.text for _, document in pairs])
        return Tokens({"input_ids": [np.array(row, np.int32) for row in ids]})

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the log-odds of each pair: float32 [pairs]."""
        import torch

        ids = inputs["input_ids"]
        start = torch.full((len(ids), 1), self.model.config.decoder_start_token_id, device=ids.device)
        logits = self.model(**inputs, decoder_input_ids=start, use_cache=False).logits[:, 0]
        true, false = logits[:, self.answers].unbind(1)
        return (true - false,)

    def _tokens(self, queries: list[str], documents: list[str]) -> list[list[int]]:
        """Return the token ids of each pair."""
        prompts = map(_PROMPT.format, queries, documents)
        limit = self.limit - len(self.end)
        cut = self.tokenizer(list(prompts), truncation=True, max_length=limit, add_special_tokens=False, verbose=False)
        return [ids + self.end for ids in cut["input_ids"]]
