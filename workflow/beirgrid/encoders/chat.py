"""Decoders on this machine that answer messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..config.models import ModelEntry
from ..core.compute import Runtime
from ..core.errors import DataError
from .headed import HeadedModel

# Tokens of the longest answer, and of a message to a model that states no window.
_ANSWER, _WINDOW = 128, 4096


class DecoderChat(HeadedModel[ModelEntry]):
    """A decoder that answers messages with its likeliest token at each step.

    It reads one message at a time, so that no answer depends on another message.
    """

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        from transformers import AutoModelForCausalLM

        # What chat models bring as code, transformers has taken over.
        entry = ModelEntry(family="decoder", path=str(folder.resolve()), trust_remote_code=False)
        super().__init__(folder, entry, runtime, AutoModelForCausalLM, runtime.resolve(wide=True))
        # The checkpoint's own way of sampling does not count.
        self.model.generation_config.update(temperature=None, top_p=None, top_k=None)
        self.limit = min(self.positions or _WINDOW, _WINDOW) - _ANSWER

    def answer(self, message: Callable[[str], str], passage: str) -> str:
        """Return what the model writes.

        Args:
            message: makes the message from the passage.
            passage: the end of a passage that is too long for the model is cut off.

        Raises:
            DataError: the message is too long without the passage, too.
        """
        import torch

        while (number := (tokens := self._tokens(message(passage)))["input_ids"].shape[1]) > self.limit:
            if not passage:
                raise DataError(f"a message has {number:,} tokens without its passage; the model reads {self.limit:,}")
            passage = passage[: min(len(passage) - 1, len(passage) * self.limit // number)]
        with torch.inference_mode():
            written = self.model.generate(**tokens, max_new_tokens=_ANSWER, do_sample=False)
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
