"""The last layer of a transformer of which only each text's first token is read: it computes these tokens alone.

Most cross-encoders, and dense models with CLS pooling, read one token of a text. From the other tokens, the last layer
needs keys and values only. Queries, attention's output and the feed-forward network are five sixths of its products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import packing

if TYPE_CHECKING:
    import torch


# A layer, the hidden states of all tokens [1, tokens, hidden], those of first tokens to its results [1, texts, hidden].
Compute = Callable[[Any, "torch.Tensor", "torch.Tensor"], "torch.Tensor"]


def narrow(packed: packing.Packing, read: Callable[[dict[str, torch.Tensor]], torch.Tensor]) -> None:
    """Let the last layer compute first tokens alone, if the model then gives the same.

    Args:
        packed: the transformer; nothing changes where it computes with padding, or has layers of an unknown form.
        read: inputs of a batch to what is read of the model, a row for each text.
    """
    import torch

    layers = [(layer, compute) for layer in packed.transformer.modules() if (compute := _known(layer))]
    if not (packed.used and layers):
        return
    layer, compute = layers[-1]
    plain = layer.forward

    def forward(hidden: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        firsts = packing.firsts()
        return plain(hidden, *arguments, **options) if firsts is None else compute(layer, hidden, hidden[:, firsts])

    with torch.inference_mode():
        try:
            expected = read(packing.sample(packed.transformer))
            layer.forward, packed.narrow = forward, True
            alike = packing.equal(read(packing.sample(packed.transformer)), expected)
        except Exception:  # if the modules do not fit together, whoever opens the model says so
            alike = False
    if not alike:
        layer.forward, packed.narrow = plain, False


def _known(layer: torch.nn.Module) -> Compute | None:
    """Return what computes the first tokens of a layer, if its form is known."""
    attention = getattr(layer, "attention", None)
    if hasattr(layer, "feed_forward_chunk") and hasattr(getattr(attention, "self", None), "query"):
        return _bert
    return _distilbert if hasattr(layer, "sa_layer_norm") and hasattr(attention, "q_lin") else None


def _bert(layer: Any, hidden: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Compute a layer of BERT, RoBERTa, XLM-RoBERTa or ELECTRA."""
    parts = layer.attention.self
    found = _attended(parts, parts.query(own), parts.key(hidden), parts.value(hidden))
    result: torch.Tensor = layer.feed_forward_chunk(layer.attention.output(found, own))
    return result


def _distilbert(layer: Any, hidden: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    parts = layer.attention
    found = parts.out_lin(_attended(parts, parts.q_lin(own), parts.k_lin(hidden), parts.v_lin(hidden)))
    own = layer.sa_layer_norm(found + own)
    result: torch.Tensor = layer.output_layer_norm(layer.ffn(own) + own)
    return result


def _attended(module: Any, *parts: torch.Tensor) -> torch.Tensor:
    """Return the attention of queries [1, texts, hidden] to keys and values [1, tokens, hidden]: [1, texts, hidden]."""
    width = module.attention_head_size
    query, key, value = (part.view(*part.shape[:2], -1, width).transpose(1, 2) for part in parts)
    return packing.attend(module, query, key, value, None, scaling=module.scaling)[0].flatten(2)
