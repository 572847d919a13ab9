"""Rerankers that score a pair by the likelihood of an answer to a prompt (monoT5, Qwen3)."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.models import AnsweringReranker, DecoderReranker
from ..core.compute import Runtime
from ..core.errors import DataError
from . import cutting
from .base import PairScorer
from .engine import Tokens
from .headed import HeadedModel

if TYPE_CHECKING:
    import torch

_PLACE = re.compile(r"\{(query|document)\}")


class AnswerScorer(HeadedModel[AnsweringReranker], PairScorer[AnsweringReranker]):
    """Scores a (query, document) pair by the logit of the first answer, minus that of the second if there are two.

    The logits are those of a decoder's next token after the prompt, or of the first token that an encoder-decoder (T5)
    writes.

    With two answers, this is the log-odds of the probability by which the authors' code ranks. The order is the same,
    but the score does not saturate as the probability and its logarithm do.
    """

    def __init__(self, folder: Path, entry: AnsweringReranker, runtime: Runtime) -> None:
        from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

        decodes = isinstance(entry, DecoderReranker)
        loader = AutoModelForCausalLM if decodes else AutoModelForSeq2SeqLM
        # Left padding makes the last token of each text the last one of its row.
        super().__init__(folder, entry, runtime, loader, padding_side="left" if decodes else "right")
        self.answers = self.tokenizer.convert_tokens_to_ids(list(entry.answers))
        if {None, self.tokenizer.unk_token_id} & {*self.answers}:
            raise DataError(
                f"{folder} is not such a reranker: its tokenizer has no {' and '.join(entry.answers)}. Give the "
                "model's entry its answers"
            )
        self._read_prompt(folder)
        # bfloat16 has 128 values between two powers of two, so its logits would tie.
        self.keep_apart(self.model.get_output_embeddings(), self.limit)

    def _read_prompt(self, folder: Path) -> None:
        """Tokenize the constant parts of the prompt."""
        self.parts = [part if _PLACE.search(part) else self._ids([part])[0] for part in self.entry.prompt]
        if self.model.config.is_encoder_decoder:
            self.parts.append([self.tokenizer.eos_token_id])
        self.last = next(number for number, part in enumerate(self.parts) if "{document}" in part)
        after = sum(len(part) for part in self.parts[self.last :] if not isinstance(part, str))
        # A query in a part of its own leaves a quarter to the document. FlagEmbedding does not count what follows both.
        self.query_limit = (self.limit - after) * 3 // 4
        if (fixed := sum(len(part) for part in self.parts if not isinstance(part, str))) > self.limit // 4:
            raise DataError(f"{folder}: the prompt alone has {fixed} tokens, too many for max_length {self.limit}")

    def tokenized(self, pairs: list[tuple[str, str]]) -> Tokens:
        """Tokenize the prompt of each pair. The document is truncated so that the rest of the prompt fits."""
        columns: list[list[list[int]]] = []
        with self.reading:
            cut = {text: cutting.cut(self.tokenizer, text, self.limit) for text in {*chain.from_iterable(pairs)}}
            for number, part in enumerate(self.parts):
                if isinstance(part, str):
                    texts = [_filled(part, cut[query], cut[document]) for query, document in pairs]
                    columns.append(self._ids(texts, self.limit if number == self.last else self.query_limit))
                else:
                    columns.append([part] * len(pairs))
        tokens = Tokens({"input_ids": []})
        for row in map(list, zip(*columns, strict=True)):
            document = row[self.last]
            row[self.last] = document[: max(self.limit - sum(map(len, row)) + len(document), 0)]
            tokens.columns["input_ids"].append(np.fromiter(chain.from_iterable(row), np.int32))
        return tokens

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the score of each pair: float32 [pairs]."""
        if self.model.config.is_encoder_decoder:
            start = self.model.config.decoder_start_token_id
            written = {"decoder_input_ids": inputs["input_ids"].new_full((len(inputs["input_ids"]), 1), start)}
        else:
            written = {"logits_to_keep": 1}
        logits = self.model(**inputs, **written, use_cache=False).logits[:, -1]
        scores = logits[:, self.answers].float()
        return (scores[:, 0] - scores[:, 1] if len(self.answers) > 1 else scores[:, 0],)

    def _ids(self, texts: list[str], limit: int | None = None) -> list[list[int]]:
        options = {"truncation": True, "max_length": limit} if limit else {}
        ids: list[list[int]] = self.tokenizer(texts, add_special_tokens=False, verbose=False, **options)["input_ids"]
        return ids


def _filled(part: str, query: str, document: str) -> str:
    return _PLACE.sub(lambda place: query if place[1] == "query" else document, part)
