"""Check a model before use: valid weights, and texts that do not depend on their batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DataError
from .engine import Tokens
from .float16 import PROBES

if TYPE_CHECKING:
    import torch

# Types of weights in safetensors headers.
_FLOATS = ("F64", "F32", "F16", "BF16")
# Constants stored beside the weights, as numbers or masks.
_CONSTANTS = re.compile(
    r"(^|\.)(position_ids|token_type_ids|num_batches_tracked|mapping|(attn|attention)\.(masked_)?bias)$"
)
# Tolerance between a text alone and in a batch, relative to the largest number, by precision.
_TOLERANCE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 0.1}
# Tokens of the longest probe beyond the attention window, if there is one.
_LONGEST = 48
# Configuration keys for the width of attention windows or chunks.
_WINDOWS = re.compile(r"(window|chunk)(_size|_length|_len)?$|^local_attention$|^block_size$")


def check_weights(folder: Path, model: Any) -> None:
    """Refuse weights that are integers or complex, or not finite.

    Raises:
        DataError: names the first such weight.
    """
    import torch
    from safetensors import safe_open

    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                kind = weights.get_slice(name).get_dtype()
                if kind not in _FLOATS and not _CONSTANTS.search(name):
                    raise DataError(
                        f"{path}: the weight {name} is stored as {kind}; beirgrid reads weights in {', '.join(_FLOATS)}"
                    )
    for name, weight in model.named_parameters() if isinstance(model, torch.nn.Module) else ():
        if weight.numel() and not all(bool(end.isfinite()) for end in weight.aminmax()):
            raise DataError(f"{folder}: the weight {name} has values that are not finite: the checkpoint is damaged")


def check_scaling(config: Any, limit: int | None) -> None:
    """Refuse lengths at which rotary embeddings depend on the longest text of a batch.

    Args:
        config: the transformer's configuration.
        limit: maximum tokens per text.

    Raises:
        DataError: the limit is larger, or there is none.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    parameters = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    for scaling in parameters:
        if scaling.get("rope_type") not in ("dynamic", "longrope"):
            continue
        own = scaling.get("original_max_position_embeddings"), getattr(config, "original_max_position_embeddings", None)
        most = min(filter(None, own), default=config.max_position_embeddings)
        if not limit or limit > most:
            raise DataError(
                f"beyond {most} tokens, the model's positions ({scaling['rope_type']}) depend on the longest text of a "
                f"batch: set max_length to {most} or less"
            )


def depends_on_batch(
    tokenizer: Any,
    compute: Callable[[dict[str, Any]], torch.Tensor],
    autocast: AbstractContextManager[Any],
    device: str,
    precision: str,
    longest: int,
) -> bool:
    """Tell whether the output of two texts changes when they are batched with a third, the longest.

    Args:
        tokenizer: the model's tokenizer, which pads.
        compute: computes a batch's inputs to the transformer's output: [texts, longest, width] or [texts, width].
        autocast: the context in which the model computes.
        device: PyTorch's name of the device.
        precision: format of the model's matrix products.
        longest: length of the longest text, in tokens.
    """
    import torch

    texts = (PROBES[1], *[PROBES[2] * (1 + longest // 100)] * 2)
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

    with torch.inference_mode(), autocast:
        together, alone = computed(0, 1, 2), computed(0) + computed(1)
    # The comparison is written so that NaN counts as a difference.
    return not all(
        bool((one - other).abs().max() <= _TOLERANCE[precision] * one.abs().max())
        for one, other in zip(alone, together, strict=False)
    )


def longest_probe(config: Any, limit: int | None) -> int:
    """Return a length in tokens that exceeds the smallest attention window of a configuration, if ``limit`` does."""
    values = [value for key, value in config.get_text_config().to_dict().items() if _WINDOWS.search(key)]
    sizes = [size for value in values for size in (value if isinstance(value, list) else [value])]
    window = min((size for size in sizes if type(size) is int and size > 0), default=0)
    return min(window + _LONGEST, limit or getattr(config, "max_position_embeddings", None) or window + _LONGEST)
