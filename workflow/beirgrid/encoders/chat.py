"""Decoders on this machine that answer messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config.models import ListwiseReranker
from ..core.compute import Runtime
from ..core.errors import DataError
from .headed import HeadedModel

# Tokens of the longest answer, and of a message to a model that states no window.
_ANSWER, _WINDOW = 128, 4096


class ChatModel(HeadedModel[ListwiseReranker]):
    """A decoder that answers messages, with its likeliest token at each step."""

    def __init__(self, folder: Path, entry: ListwiseReranker, runtime: Runtime) -> None:
        from transformers import AutoModelForCausalLM

        precision = runtime.resolve_wide(entry.precision)
        super().__init__(folder, entry, runtime, AutoModelForCausalLM, precision)
        self.precision = precision
        # The checkpoint's own way of sampling does not count.
        self.model.generation_config.update(temperature=None, top_p=None, top_k=None)

    def read(self, messages: Sequence[Mapping[str, str]]) -> Any:
        """Return the tokens of messages, in the form of the chat template, if there is one.

        A model that can think first is asked not to, where its template can ask for that.
        """
        if not self.tokenizer.chat_template:
            text = "\n".join(message["content"] for message in messages)
            return self.tokenizer(text, return_tensors="pt", verbose=False).to(self.model.device)
        return self.tokenizer.apply_chat_template(
            list(messages),
            add_generation_prompt=True,
            enable_thinking=False,
            return_tensors="pt",
            return_dict=True,
            tokenizer_kwargs={"verbose": False},
        ).to(self.model.device)

    def write(self, tokens: Any, most: int) -> str:
        """Return what the model writes after some tokens: at most ``most`` tokens."""
        import torch

        with torch.inference_mode():
            written = self.model.generate(**tokens, max_new_tokens=most, do_sample=False)
        return str(self.tokenizer.decode(written[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True))


class DecoderChat(ChatModel):
    """Answers of a decoder, to one message at a time, so that no answer depends on another message."""

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        # What chat models bring as code, transformers has taken over.
        entry = ListwiseReranker(family="listwise-reranker", path=str(folder.resolve()), trust_remote_code=False)
        super().__init__(folder, entry, runtime)
        self.limit = min(self.positions or _WINDOW, _WINDOW) - _ANSWER

    def answer(self, message: Callable[[str], str], passage: str) -> str:
        """Return what the model writes.

        Args:
            message: makes the message from the passage.
            passage: the end of a passage that is too long for the model is cut off.

        Raises:
            DataError: the message is too long without the passage, too.
        """
        while (number := (tokens := self._read(message(passage)))["input_ids"].shape[1]) > self.limit:
            if not passage:
                raise DataError(f"a message has {number:,} tokens without its passage; the model reads {self.limit:,}")
            passage = passage[: min(len(passage) - 1, len(passage) * self.limit // number)]
        return self.write(tokens, _ANSWER)

    def _read(self, message: str) -> Any:
        return self.read([{"role": "user", "content": message}])
