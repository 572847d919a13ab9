"""Check a model before use: valid weights, and texts that do not depend on their batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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
# Tokens of the longest probe for a model with full attention.
_LONGEST = 48
# Configuration keys for the width of attention windows or chunks.
_WINDOWS = re.compile(r"(window|chunk)(_size|_length|_len)?$|^local_attention$|^block_size$")


def check_weights(folder: Path, model: Any) -> None:
    """Refuse weights that are integers or complex, not finite, or part of a decoder.

    Raises:
        DataError: names the first such weight.
    """
    import torch
    from safetensors import safe_open

    first = getattr(model[0], "auto_model", None) if hasattr(model, "encode_document") else None
    encodes = type(first).__name__.endswith("EncoderModel")
    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            _check_header(path, weights)
            for name in weights.keys():  # noqa: SIM118
                kind = weights.get_slice(name).get_dtype()
                if kind not in _FLOATS and not _CONSTANTS.search(name):
                    raise DataError(
                        f"{path}: the weight {name} is stored as {kind}; beirgrid reads weights in {', '.join(_FLOATS)}"
                    )
                if encodes and name.startswith("decoder."):
                    raise DataError(
                        f"{path} holds a decoder ({name}), which a dense model does not use: is it another kind of "
                        "model? To use its encoder, save only that (T5EncoderModel for a T5)"
                    )
    for name, weight in model.named_parameters() if isinstance(model, torch.nn.Module) else ():
        if weight.numel() and not all(bool(end.isfinite()) for end in weight.aminmax()):
            raise DataError(f"{folder}: the weight {name} has values that are not finite: the checkpoint is damaged")


def _check_header(path: Path, weights: Any) -> None:
    """Refuse a file whose largest matrix contains float16 bits labelled bfloat16, or the reverse.

    bfloat16 numbers between 2^-15 and 2 look like 0.5 to 2 when read as float16. float16 numbers below 0.1 look smaller
    than 1e-11 when read as bfloat16. A trained matrix has neither almost no numbers near 0, nor only such numbers.
    """
    shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
    name = max((name for name, shape in shapes.items() if len(shape) == 2), key=lambda one: shapes[one][0], default="")
    if not name or (kind := weights.get_slice(name).get_dtype()) not in ("F16", "BF16"):
        return
    sizes = weights.get_slice(name)[:1000].float().abs()
    sizes = sizes[sizes > 0]
    if len(sizes) < 1000:
        return
    swapped = ((sizes >= 0.5) & (sizes < 4)).float().mean() > 0.95 if kind == "F16" else sizes.median() < 1e-9
    if swapped:
        other = {"F16": "BF16", "BF16": "F16"}[kind]
        raise DataError(
            f"{path}: the weight {name} is stored as {kind}, but its numbers look like {other} under a wrong header: "
            "write the file again"
        )


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


def probe_lengths(config: Any, limit: int | None) -> list[int]:
    """Return the lengths, in tokens, of a model's longer probes.

    Two exceed the smallest attention window or chunk of the configuration, if the limit does.

    Args:
        config: the transformer's configuration.
        limit: maximum tokens per text.
    """
    found = [value for key, value in config.get_text_config().to_dict().items() if _WINDOWS.search(key)]
    sizes = [size for value in found for size in (value if isinstance(value, list) else [value])]
    window = min((size for size in sizes if type(size) is int and size > 0), default=0)
    most = limit or getattr(config, "max_position_embeddings", None) or window + 2
    if not window or most < window + 2:
        return [_LONGEST]
    return [_LONGEST, min(window + 16, most - 1), min(window + 48, most)]


def depends_on_batch(
    tokenizer: Any,
    compute: Callable[[dict[str, Any]], torch.Tensor],
    autocast: Callable[[], AbstractContextManager[Any]],
    device: str,
    lengths: Sequence[int],
) -> bool:
    """Tell whether a text's output changes when it is batched with longer texts.

    Args:
        tokenizer: the model's tokenizer, which pads.
        compute: computes a batch's inputs to the transformer's output: [texts, longest, width] or [texts, width].
        autocast: returns the autocast context.
        device: PyTorch's name of the device.
        lengths: lengths of the longer texts, in tokens.
    """
    import torch

    texts = [(PROBES[1], _LONGEST), *((PROBES[2] * (1 + length // 100), length) for length in lengths)]
    read = [tokenizer(text, truncation=True, max_length=most, verbose=False)["input_ids"] for text, most in texts]
    tokens = Tokens({"input_ids": [np.array(ids, np.int32) for ids in sorted(read, key=len)]})

    def computed(rows: Sequence[int]) -> list[torch.Tensor]:
        batch = {name: value.to(device) for name, value in tokens.padded(rows, tokenizer).items()}
        results = compute(dict(batch)).float()
        masks = batch["attention_mask"].bool()
        return [row[mask] if row.ndim == 2 else row for row, mask in zip(results, masks, strict=True)]

    with torch.inference_mode(), autocast():
        together = computed(range(len(read)))
        alone = [computed([row])[0] for row in range(len(read) - 1)]
        kind = device.partition(":")[0]
        low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    tolerance = _TOLERANCE[str(low).removeprefix("torch.")]
    # The comparison is written so that NaN counts as a difference.
    return not all(
        bool((one - other).abs().max() <= tolerance * one.abs().max())
        for one, other in zip(alone, together, strict=False)
    )
