"""A decoder on this machine that answers a message with the likeliest token at each step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.compute import Runtime
from ..core.errors import DataError
from .answering import decoder_model
from .loading import load_checkpoint

# Tokens of the longest answer, and of a message to a model that states no window.
_ANSWER, _WINDOW = 128, 4096


def is_decoder(folder: Path) -> bool:
    """Tell whether a checkpoint has a decoder alone."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and not config.get("is_encoder_decoder")


class DecoderChat:
    """Answers of a decoder. Messages have the form of the checkpoint's chat template, if it has one.

    A model answers one message at a time, so that no answer depends on another message.
    """

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        import torch

        self.model = load_checkpoint(decoder_model, folder)
        self.model.to(runtime.device, getattr(torch, runtime.wide if runtime.kind == "cuda" else "float32")).eval()
        self.tokenizer = self.model.tokenizer
        window = getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or _WINDOW
        self.limit = min(window, _WINDOW) - _ANSWER

    def answer(self, message: Callable[[str], str], passage: str) -> str:
        """Return what the model writes.

        Args:
            message: makes the message from the passage.
            passage: the end of a passage that is too long for the model is cut off.

        Raises:
            DataError: the message is too long without the passage, too.
        """
        import torch

        inputs = self._tokens(message(passage))
        while (tokens := inputs["input_ids"].shape[1]) > self.limit:
            if not passage:
                raise DataError(f"a message has {tokens:,} tokens without its passage; the model reads {self.limit:,}")
            passage = passage[: min(len(passage) - 1, len(passage) * self.limit // tokens)]
            inputs = self._tokens(message(passage))
        with torch.inference_mode():
            written = self.model.generate(
                **inputs, max_new_tokens=_ANSWER, do_sample=False, pad_token_id=self.tokenizer.pad_token_id
            )
        found: str = self.tokenizer.decode(written[0, tokens:], skip_special_tokens=True)
        return found

    def _tokens(self, message: str) -> Any:
        if self.tokenizer.chat_template:
            # A model that can think is asked to answer at once.
            message = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": message}],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
            )
        special = not self.tokenizer.chat_template
        return self.tokenizer(message, return_tensors="pt", add_special_tokens=special, verbose=False).to(
            self.model.device
        )
