"""What a checkpoint must be before a model is used: weights that are numbers, and no text that depends on its batch."""

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

# The types of weights in the headers of safetensors.
_FLOATS = ("F64", "F32", "F16", "BF16")
# Constants that are stored beside the weights, as numbers or as masks.
_CONSTANTS = re.compile(
    r"(^|\.)(position_ids|token_type_ids|num_batches_tracked|mapping|(attn|attention)\.(masked_)?bias)$"
)
# Largest difference between a text alone and in a batch, relative to the largest number, by the type of the products.
_TOLERANCE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 0.1}
# Tokens of the longest probe of a model whose tokens attend to whole texts.
_LONGEST = 48
# Keys of configurations that say how far tokens attend, or how long the parts of a text are that are computed apart.
_WINDOWS = re.compile(r"(window|chunk)(_size|_length|_len)?$|^local_attention$|^block_size$")


def check_weights(folder: Path, model: Any) -> None:
    """Refuse weights that are stored as integers or complex numbers, that are not finite, or that belong to a decoder.

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
                        f"{path} holds a decoder ({name}), which no dense model reads: is it another kind of model? To "
                        "use its encoder, save that alone (T5EncoderModel for a T5)"
                    )
    for name, weight in model.named_parameters() if isinstance(model, torch.nn.Module) else ():
        if weight.numel() and not all(bool(end.isfinite()) for end in weight.aminmax()):
            raise DataError(f"{folder}: the weight {name} has values that are not finite: the checkpoint is damaged")


def _check_header(path: Path, weights: Any) -> None:
    """Refuse a file whose largest matrix has bits of float16 under the name of bfloat16, or the other way round.

    Numbers between 2^-15 and 2 in bfloat16 have bits that float16 reads as 0.5 to 2. Numbers of float16 below 0.1 have
    bits that bfloat16 reads as less than 1e-11. No matrix that was trained has hardly a number near 0, or only such.
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
    """Refuse texts beyond the length at which rotary embeddings are scaled by the longest text of a batch.

    Args:
        config: the transformer's configuration.
        limit: tokens that are read of a text.

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
    """Return how many tokens the longer probes of a model have.

    Two are longer than the smallest window or chunk of its configuration, if any text that it reads is.

    Args:
        config: the transformer's configuration.
        limit: tokens that are read of a text.
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
    """Return whether a model gives a text other numbers in a batch with longer ones than alone.

    Args:
        tokenizer: the model's tokenizer, which pads.
        compute: inputs of a batch to the transformer's results: [texts, longest, width] or [texts, width].
        autocast: returns the context in which the model computes.
        device: PyTorch's name of the device.
        lengths: tokens of the longer texts that are compared.
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
    # In this order a NaN differs.
    return not all(
        bool((one - other).abs().max() <= tolerance * one.abs().max())
        for one, other in zip(alone, together, strict=False)
    )
