"""Attention for CPUs that multiply bfloat16.

PyTorch's fused kernel multiplies tiles too small for the hardware there (heads of 32 numbers): on 256 tokens it
takes 5.6 ms for what two whole products and a softmax do in 3.4 ms, which makes MiniLM 1.2 times as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NAME = "whole_products"
# Attention weights worked on at a time: few enough for the processor's cache (8 MB in bfloat16).
WEIGHTS = 4 * 2**20


def use(transformer: Any) -> None:
    """Let a transformers model attend by ``attend``, if it would attend by PyTorch's kernel and lets us choose.

    A model that attends otherwise needs what neither of them computes (Gemma 2 caps its logits).
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    kernel = transformer.config._attn_implementation
    if kernel == "sdpa" and getattr(transformer, "_supports_attention_backend", False):
        AttentionInterface.register(NAME, attend)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        transformer.set_attn_implementation(NAME)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return softmax(query · key / √width) · value, in the inputs' type: [texts, tokens, heads, width].

    Args:
        query, key, value: [texts, heads, tokens, width]
        attention_mask: bool, broadcast to [texts, heads, tokens, tokens], True where a token may be attended to

    A token that may attend to nothing gets the mean of all values: a padded position whose window holds only padding,
    in models with a sliding window. No other position reads that value, but NaN times a weight of 0 would be NaN.

    Causal attention, groups of heads and added biases go to PyTorch's kernel.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    causal = options.get("is_causal", getattr(module, "is_causal", False))
    biased = attention_mask is not None and attention_mask.dtype != torch.bool
    biased = biased or options.get("position_bias") is not None
    if causal or biased or query.shape[1] != key.shape[1]:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    texts, heads, tokens, width = query.shape
    query = query * (width**-0.5 if scaling is None else scaling)
    key = key.transpose(2, 3)
    result = query.new_empty(texts, tokens, heads, value.shape[3])
    step = max(1, WEIGHTS // (heads * tokens * key.shape[3]))
    for start in range(0, texts, step):
        part = slice(start, start + step)
        weights = torch.matmul(query[part], key[part])
        if attention_mask is not None:
            weights.masked_fill_(~attention_mask[part], torch.finfo(weights.dtype).min)
        result[part] = torch.matmul(weights.softmax(-1), value[part]).transpose(1, 2)
    return result, None
