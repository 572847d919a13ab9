"""Models that answer a prompt: rerankers score a pair by an answer's likelihood (monoT5, Qwen3), decoders write."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from ..config.models import AnsweringReranker, ChatModel, DecoderReranker, ModelEntry
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from . import cutting
from .base import HeadedModel, PairScorer
from .engine import Tokens
from .protocol import digest_of

# Tokens of the longest answer of a chat model.
_ANSWER = 128
# Tokens of a message to a model that states no window.
_WINDOW = 4096
_PLACE = re.compile(r"\{(query|document)\}")


class AnswerScorer(HeadedModel[AnsweringReranker], PairScorer[AnsweringReranker]):
    """Scores a (query, document) pair by the logit of the first answer, minus that of the second if there are two.

    The logits are those of a decoder's next token after the prompt, or of the first token that an encoder-decoder (T5)
    writes.

    With two answers, this is the log-odds of the probability by which the authors' code ranks. The order is the same,
    but the score does not saturate as the probability and its logarithm do.
    """

    def __init__(self, folder: Path, entry: AnsweringReranker, runtime: Runtime) -> None:
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
        self.keep_apart(self.model.get_output_embeddings())

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


class DecoderChat(HeadedModel[ModelEntry]):
    """A decoder that answers messages with its likeliest token at each step.

    It reads one message at a time, so that no answer depends on another message.
    """

    def __init__(self, folder: Path, runtime: Runtime, entry: ChatModel | None = None) -> None:
        # What chat models bring as code, transformers has taken over.
        own = entry or ModelEntry(family="decoder", path=str(folder.resolve()), trust_remote_code=False)
        super().__init__(folder, own, runtime, AutoModelForCausalLM, runtime.resolve(own.precision, wide=True))
        # The checkpoint's own way of sampling does not count.
        self.model.generation_config.update(temperature=None, top_p=None, top_k=None)
        longest = entry.tokens if entry else _ANSWER
        self.limit = own.max_length or min(self.positions or _WINDOW, _WINDOW) - longest
        self.writing: dict[str, Any] = {"max_new_tokens": longest, "do_sample": False}

    def answer(self, message: Callable[[str], str], passage: str) -> str:
        """Return what the model writes.

        Args:
            message: makes the message from the passage.
            passage: the end of a passage that is too long for the model is cut off.

        Raises:
            DataError: the message is too long without the passage, too.
        """
        while (number := (tokens := self._tokens(message(passage)))["input_ids"].shape[1]) > self.limit:
            if not passage:
                raise DataError(f"a message has {number:,} tokens without its passage; the model reads {self.limit:,}")
            passage = passage[: min(len(passage) - 1, len(passage) * self.limit // number)]
        with torch.inference_mode():
            written = self.model.generate(**tokens, **self.writing)
        return str(self.tokenizer.decode(written[0, number:], skip_special_tokens=True))

    def _tokens(self, message: str) -> Any:
        """Return the tokens of a message, in the form of the chat template, if there is one.

        A model that can think first is asked not to, where its template can ask for that.
        """
        if not self.tokenizer.chat_template:
            return self.tokenizer(message, return_tensors="pt", verbose=False).to(self.model.device)
        return self.tokenizer.apply_chat_template(
            [{"role": "user", "content": message}],
            add_generation_prompt=True,
            enable_thinking=False,
            return_tensors="pt",
            return_dict=True,
            tokenizer_kwargs={"verbose": False},
        ).to(self.model.device)


class ChatWriter(DecoderChat):
    """A decoder that writes texts. The random numbers of a text depend only on the seed, its number and the message."""

    def __init__(self, folder: Path, entry: ChatModel, runtime: Runtime) -> None:
        super().__init__(folder, runtime, entry)
        if entry.temperature:
            self.writing |= {"do_sample": True, "temperature": entry.temperature}

    def generate(
        self, texts: list[str], *, per_text: int, seed: int, progress: Progress | None = None
    ) -> list[list[str]]:
        """Write ``per_text`` texts for each message."""
        written = []
        for text in texts:
            written.append([self._write(text, f"{seed} {number}") for number in range(per_text)])
            if progress:
                progress.add(1)
        return written

    def _write(self, text: str, seed: str) -> str:
        torch.manual_seed(int.from_bytes(digest_of(seed, text)[:8], "big"))
        return self.answer(str, text)
