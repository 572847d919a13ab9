"""Checks of a model: finite and different vectors, no overflow of float16, no effect of the batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DataError
from .engine import Tokens

if TYPE_CHECKING:
    import torch

# Texts on which a model is tried: one that is short, and one of many words, numbers and signs.
_SHORT = "What does the thyroid gland regulate?"
_LONG = (
    "In 1969, Apollo 11 (NASA) landed on the Moon, 21 kg of rocks, 384,400 km from us; see https://a.org/b?c=1 «ß». "
)
# Tolerance between a text alone and in a batch, relative to the largest number, by precision.
_TOLERANCE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 0.1}


def check_finite(vectors: Any, names: list[str], precision: str) -> None:
    """Raise DataError naming the first text whose vector (or score, or sparse row) is NaN or infinite.

    If ``precision`` is below float32, the message suggests float32.
    """
    if hasattr(vectors, "indptr"):  # a CSR matrix: a row's sum is finite if its values are
        vectors = vectors.sum(axis=1)
    finite = np.isfinite(np.asarray(vectors)).reshape(len(names), -1).all(axis=1)
    if finite.all():
        return
    remedy = "set precision: float32 in the model's entry. If the values are still not finite, its weights are broken"
    if precision == "float32":
        remedy = "its checkpoint holds weights that are not finite, or too large for any precision"
    raise DataError(
        f"the model gives NaN or infinite values for {int((~finite).sum())} of {len(names)} texts, first "
        f"{names[int(np.argmin(finite))]}, in {precision}: {remedy}"
    )


class CollapseCheck:
    """Checks, block by block, that different texts get different vectors. A broken model maps all to one."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.first: tuple[np.ndarray, str] | None = None
        self.varied = self.texts_differ = False

    def add(self, vectors: Any, texts: list[str]) -> None:
        """Add the vectors (or sparse rows, or one number per text) of some texts."""
        if self.varied or not texts:
            return
        if hasattr(vectors, "indptr"):
            vectors = np.concatenate([vectors.sum(axis=1), vectors.power(2).sum(axis=1)], axis=1)
        rows, beginnings = np.asarray(vectors).reshape(len(texts), -1), list(map(_beginning, texts))
        self.first = self.first or (rows[0].copy(), beginnings[0])
        self.varied = not np.allclose(rows, self.first[0], rtol=1e-5, atol=1e-7)  # rounding depends on a text's length
        self.texts_differ = self.texts_differ or any(beginning != self.first[1] for beginning in beginnings)

    def check(self, what: str) -> None:
        """Raise DataError if all vectors are equal although the texts begin differently."""
        if self.first is not None and self.texts_differ and not self.varied:
            size = "all zero" if not self.first[0].any() else "the same"
            raise DataError(
                f"the model's vectors of {what} are {size}, though the texts differ: its weights are broken, or were "
                f"not loaded as they were trained (computed in {self.precision})"
            )


def _beginning(text: str) -> str:
    """Return what every model reads of a text, without case and white space, which not every model tells apart."""
    return " ".join(text[:1000].casefold().split())


def fits_float16(transformer: Any, tokenizer: Any, autocast: AbstractContextManager[Any]) -> bool:
    """Tell whether a transformer, with float32 weights, reads a text of up to 256 tokens without overflow.

    T5 never fits: it replaces what overflows by other numbers. The context ``autocast`` computes in float16.
    """
    import torch

    config, device = transformer.config, next(transformer.parameters()).device
    if config.is_encoder_decoder or "t5" in config.model_type:
        return False
    # RoBERTa's positions start at 2.
    length = min(256, (getattr(config, "max_position_embeddings", None) or 258) - 2)
    ids = tokenizer(_LONG * 9, truncation=True, max_length=length, verbose=False)["input_ids"]
    with torch.inference_mode(), autocast:
        return bool(transformer(input_ids=torch.tensor([ids], device=device))[0].isfinite().all())


def depends_on_batch(
    tokenizer: Any, compute: Callable[[dict[str, Any]], torch.Tensor], device: str, precision: str, limit: int | None
) -> bool:
    """Tell whether the output of a short text changes when it is batched with a longer one.

    The convolutions of ConvBERT and the trigrams of MobileBERT read padding, and so do positions after left padding.

    Args:
        tokenizer: the model's tokenizer.
        compute: computes a batch's inputs to the transformer's output: [texts, longest, width] or [texts, width].
        device: PyTorch's name of the device.
        precision: format of the model's matrix products.
        limit: maximum tokens per text.
    """
    read = tokenizer([_SHORT, _LONG], truncation=True, max_length=min(limit or 64, 64), verbose=False)["input_ids"]
    tokens = Tokens({"input_ids": [np.array(ids, np.int32) for ids in read]})

    def output(*rows: int) -> torch.Tensor:
        batch = {name: value.to(device) for name, value in tokens.padded(rows, tokenizer).items()}
        result = compute(dict(batch))[0].float()
        return result[batch["attention_mask"][0].bool()] if result.ndim == 2 else result

    alone, together = output(0), output(0, 1)
    # The comparison is written so that NaN counts as a difference.
    return not bool((alone - together).abs().max() <= _TOLERANCE[precision] * alone.abs().max())


def check_rotary_positions(config: Any, limit: int | None) -> None:
    """Refuse a limit of tokens per text at which rotary positions depend on the longest text of a batch."""
    rope, key = getattr(config, "rope_parameters", None) or {}, "original_max_position_embeddings"
    for scaling in (rope, *rope.values()):  # one for all layers, or one per kind of layer
        if isinstance(scaling, dict) and scaling.get("rope_type") in ("dynamic", "longrope"):
            own = filter(None, (scaling.get(key), getattr(config, key, None)))
            most = min(own, default=config.max_position_embeddings)
            if not limit or limit > most:
                raise DataError(
                    f"beyond {most} tokens, the model's positions ({scaling['rope_type']}) depend on the longest text "
                    f"of a batch: set max_length to {most} or less"
                )
