"""Checks of a model: finite weights and vectors, different vectors, no overflow of float16, no effect of the batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DataError
from .engine import Tokens

if TYPE_CHECKING:
    import torch

# Types of weights in safetensors headers, and constants stored beside the weights, as numbers or masks.
_FLOATS = ("F64", "F32", "F16", "BF16")
_CONSTANTS = re.compile(
    r"(^|\.)(position_ids|token_type_ids|num_batches_tracked|mapping|(attn|attention)\.(masked_)?bias)$"
)
# Texts on which a model is tried: one that is short, and one of many words, numbers and signs.
_SHORT = "What does the thyroid gland regulate?"
_LONG = (
    "In 1969, Apollo 11 (NASA) landed on the Moon, 21 kg of rocks, 384,400 km from us; see https://a.org/b?c=1 «ß». "
)
# Tokens of the longest probe of batches beyond the attention window, if there is one.
_LONGEST = 48
# Configuration keys for the width of attention windows or chunks.
_WINDOWS = re.compile(r"(window|chunk)(_size|_length|_len)?$|^local_attention$|^block_size$")
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


def check_weights(folder: Path, model: Any) -> None:
    """Raise DataError naming the first weight that is stored as integers or complex numbers, or is not finite."""
    from safetensors import safe_open

    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                kind = weights.get_slice(name).get_dtype()
                if kind not in _FLOATS and not _CONSTANTS.search(name):  # transformers would convert it without a word
                    raise DataError(f"{path}: the weight {name} is stored as {kind}, not as {', '.join(_FLOATS)}")
    for name, weight in model.named_parameters() if hasattr(model, "named_parameters") else ():
        if weight.numel() and not all(bool(end.isfinite()) for end in weight.aminmax()):
            raise DataError(f"{folder}: the weight {name} has values that are not finite: the checkpoint is damaged")


def fits_float16(transformer: Any, tokenizer: Any, autocast: AbstractContextManager[Any]) -> bool:
    """Tell whether a transformer reads a text of up to 256 tokens in float16 without overflow.

    Sequence-to-sequence models and T5 encoders never fit: they replace what overflows by other numbers.

    Args:
        transformer: a model of transformers, in evaluation mode; its weights are float32.
        tokenizer: the model's tokenizer.
        autocast: a context that computes in float16.
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
    tokenizer: Any, compute: Callable[[dict[str, Any]], torch.Tensor], device: str, precision: str, longest: int
) -> bool:
    """Tell whether the output of two texts changes when they are batched with a third, the longest.

    Args:
        tokenizer: the model's tokenizer, which pads.
        compute: computes a batch's inputs to the transformer's output: [texts, longest, width] or [texts, width].
        device: PyTorch's name of the device.
        precision: format of the model's matrix products.
        longest: length of the longest text, in tokens.
    """
    texts = (_SHORT, *[_LONG * (9 + longest // 11)] * 2)
    lengths = (longest, max(longest - 16, longest // 2), longest)
    read = [
        tokenizer(text, truncation=True, max_length=length, verbose=False)["input_ids"]
        for text, length in zip(texts, lengths, strict=True)
    ]
    tokens = Tokens({"input_ids": [np.array(ids, np.int32) for ids in sorted(read, key=len)]})

    def computed(*rows: int) -> list[torch.Tensor]:
        batch = {name: value.to(device) for name, value in tokens.padded(rows, tokenizer).items()}
        results = compute(dict(batch)).float()
        masks = batch["attention_mask"].bool()
        return [row[mask] if row.ndim == 2 else row for row, mask in zip(results, masks, strict=True)]

    together, alone = computed(0, 1, 2), computed(0) + computed(1)
    # The comparison is written so that NaN counts as a difference.
    return not all(
        bool((one - other).abs().max() <= _TOLERANCE[precision] * one.abs().max())
        for one, other in zip(alone, together, strict=False)
    )


def check_scaling(config: Any, limit: int | None) -> None:
    """Refuse a limit of tokens per text at which rotary embeddings depend on the longest text of a batch."""
    rope, key = getattr(config, "rope_parameters", None) or {}, "original_max_position_embeddings"
    for scaling in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if scaling.get("rope_type") in ("dynamic", "longrope"):
            own = filter(None, (scaling.get(key), getattr(config, key, None)))
            most = min(own, default=config.max_position_embeddings)
            if not limit or limit > most:
                raise DataError(
                    f"beyond {most} tokens, the model's positions ({scaling['rope_type']}) depend on the longest text "
                    f"of a batch: set max_length to {most} or less"
                )


def longest_probe(config: Any, limit: int | None) -> int:
    """Return a length in tokens that exceeds the smallest attention window of a configuration, if ``limit`` does."""
    values = [value for key, value in config.get_text_config().to_dict().items() if _WINDOWS.search(key)]
    sizes = [size for value in values for size in (value if isinstance(value, list) else [value])]
    window = min((size for size in sizes if type(size) is int and size > 0), default=0)
    return min(window + _LONGEST, limit or getattr(config, "max_position_embeddings", None) or window + _LONGEST)
