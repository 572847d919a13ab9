"""Restrict the last layer of a transformer to each text's first token, if only that token is read.

Most cross-encoders, and dense models with CLS pooling, read one token per text. The last layer then needs only keys and
values of the other tokens. Queries, attention output and the feed-forward network are five sixths of its products.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

# Layers of transformers that compute as BERT's does.
_BERTS = ("BertLayer", "CamembertLayer", "ElectraLayer", "RobertaLayer", "XLMRobertaLayer")
# Tokens of the texts of the probe.
_LENGTHS = (9, 5, 1)
# Tolerance of a narrow layer's results, relative to their largest number, by precision.
_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
# Maps hidden states of all tokens, [texts, longest, hidden], and their mask to those of first tokens, [texts, 1,
# hidden].
Compute = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]


def narrow(
    transformer: Any,
    read: Callable[[dict[str, torch.Tensor]], torch.Tensor],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> bool:
    """Narrow the last layer to first tokens if its architecture is known and the model's output stays the same.

    Args:
        transformer: the transformers model below pooling or head. Its batches are padded on the right.
        read: computes the output that is used, a row per text, from a batch's inputs.
        autocast: returns the autocast context.

    Returns:
        whether the layer was narrowed.
    """
    layers = [(layer, compute) for layer in transformer.modules() if (compute := _known(layer))]
    if not layers:
        return False
    layer, compute = layers[-1]
    plain = layer.forward

    def forward(
        hidden: torch.Tensor, attention_mask: torch.Tensor | None = None, *arguments: Any, **options: Any
    ) -> torch.Tensor:
        first = compute(hidden, attention_mask)
        return torch.nn.functional.pad(first, (0, 0, 0, hidden.shape[1] - 1))  # the zeros are never read

    inputs = _probe(transformer)
    with torch.inference_mode(), autocast():
        try:
            expected = read(dict(inputs))
            layer.forward = forward
            alike = _equal(read(dict(inputs)), expected)
        except Exception:  # opening the model reports modules that do not fit together
            alike = False
    if not alike:
        layer.forward = plain
    return alike


def _probe(transformer: Any) -> dict[str, torch.Tensor]:
    """Return the inputs of a padded batch of texts of different lengths."""
    device = next(transformer.parameters()).device
    size = transformer.config.vocab_size
    shape = len(_LENGTHS), max(_LENGTHS)
    ids = (size // 2 + torch.arange(shape[0] * shape[1], device=device).reshape(shape)) % size
    lengths = torch.tensor(_LENGTHS, device=device)
    mask = (torch.arange(shape[1], device=device) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask}


def _equal(numbers: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether numbers are the same up to the rounding of the products that they come from."""
    kind = numbers.device.type
    low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    tolerance = _TOLERANCE[str(low).removeprefix("torch.")]
    return bool((numbers - expected).abs().max() <= tolerance * expected.abs().max())


def _known(layer: Any) -> Compute | None:
    """Return the function for a layer's first tokens, if its architecture is known and its attention is PyTorch's."""
    if not type(layer).__module__.startswith("transformers.models."):
        return None
    name = type(layer).__name__
    attention = cast(Any, getattr(layer, "attention", None))
    if name in _BERTS and not layer.is_decoder and _by_pytorch(attention.self):
        return lambda hidden, mask: _bert(layer, hidden, mask)
    if name == "TransformerBlock" and hasattr(attention, "q_lin") and _by_pytorch(attention):
        return lambda hidden, mask: _distilbert(layer, hidden, mask)
    return None


def _by_pytorch(attention: Any) -> bool:
    return getattr(attention, "config", None) is not None and attention.config._attn_implementation == "sdpa"


def _bert(layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    parts = layer.attention.self
    first = hidden[:, :1]
    attended = _attended(parts, mask, parts.query(first), parts.key(hidden), parts.value(hidden))
    result: torch.Tensor = layer.feed_forward_chunk(layer.attention.output(attended, first))
    return result


def _distilbert(layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    parts = layer.attention
    first = hidden[:, :1]
    attended = parts.out_lin(_attended(parts, mask, parts.q_lin(first), parts.k_lin(hidden), parts.v_lin(hidden)))
    first = layer.sa_layer_norm(attended + first)
    result: torch.Tensor = layer.output_layer_norm(layer.ffn(first) + first)
    return result


def _attended(module: Any, mask: torch.Tensor | None, *parts: torch.Tensor) -> torch.Tensor:
    """Return the attention of queries [texts, 1, hidden] to keys and values [texts, longest, hidden]."""
    width = module.attention_head_size
    query, key, value = (part.view(*part.shape[:2], -1, width).transpose(1, 2) for part in parts)
    mask = None if mask is None else mask[:, :, :1]  # the first token's mask
    attended, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=module.scaling, is_causal=False)
    flat: torch.Tensor = attended.flatten(2)
    return flat
