"""Decoders on this machine that answer messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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


def tokens(model: Any, messages: Sequence[Mapping[str, str]]) -> Any:
    """Return what a decoder reads of messages, in the form of its chat template, if it has one.

    A model that can think first is asked not to, where its template can ask for that.
    """
    tokenizer = model.tokenizer
    if not tokenizer.chat_template:
        read = tokenizer("\n".join(message["content"] for message in messages), return_tensors="pt", verbose=False)
    else:
        read = tokenizer.apply_chat_template(
            list(messages),
            add_generation_prompt=True,
            enable_thinking=False,
            return_tensors="pt",
            return_dict=True,
            tokenizer_kwargs={"verbose": False},
        )
    return read.to(model.device)


def write(model: Any, read: Any, most: int) -> str:
    """Return what a decoder writes after some tokens: the likeliest token at each step, at most ``most`` of them."""
    import torch

    # The checkpoint's own way of sampling does not count.
    model.generation_config.update(temperature=None, top_p=None, top_k=None)
    with torch.inference_mode():
        written = model.generate(**read, max_new_tokens=most, do_sample=False)
    return str(model.tokenizer.decode(written[0, read["input_ids"].shape[1] :], skip_special_tokens=True))


class DecoderChat:
    """Answers of a decoder, to one message at a time, so that no answer depends on another message."""

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        import torch

        # What chat models bring as code, transformers has taken over.
        self.model = load_checkpoint(decoder_model, folder, trust_remote_code=False)
        self.model.to(runtime.device, getattr(torch, runtime.wide if runtime.kind == "cuda" else "float32")).eval()
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
        while (number := (read := self._read(message(passage)))["input_ids"].shape[1]) > self.limit:
            if not passage:
                raise DataError(f"a message has {number:,} tokens without its passage; the model reads {self.limit:,}")
            passage = passage[: min(len(passage) - 1, len(passage) * self.limit // number)]
        return write(self.model, read, _ANSWER)

    def _read(self, message: str) -> Any:
        return tokens(self.model, [{"role": "user", "content": message}])
