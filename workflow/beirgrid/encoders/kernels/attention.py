"""Attention in bfloat16 by oneDNN's matrix products, for CPUs with AVX-512 but without AMX.

PyTorch's own function takes as long in bfloat16 as in float32 there. Here, scores are rounded to bfloat16 before the
softmax, as in transformers' "eager" attention. One text is computed at a time, so its scores stay in the processor's
cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .linear import reorders

if TYPE_CHECKING:
    import torch

NAME = "products_of_bfloat16"
# Numbers of tokens for which products are faster, and the scores of a text take at most about 30 MB.
_TOKENS = range(32, 1025)
# Lengths are rounded up to a multiple of this: oneDNN compiles its products once per shape.
_STEP = 16


def usable(precision: str) -> bool:
    """Tell whether the products are faster than PyTorch's attention on this CPU. With AMX, this was not measured."""
    import torch

    return precision == "bfloat16" and reorders(torch.bfloat16) and not torch.cpu._is_amx_tile_supported()


def use(transformer: Any) -> None:
    """Let a transformer call ``attend`` where it would call PyTorch's attention."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    if transformer.config._attn_implementation != "sdpa" or not transformer._can_set_attn_implementation():
        return
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
    """Attend as transformers does. Whatever is not an encoder's attention in bfloat16 is left to PyTorch's function.

    Args:
        module: the attention layer.
        query, key, value: [texts, heads, tokens, width]
        attention_mask: bool [texts, 1, tokens, tokens], or None
        scaling: factor of the scores.
        options: further arguments of transformers' function.

    Returns:
        [texts, tokens, heads, width], and no weights.
    """
    import torch
    from torch.nn.functional import pad
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    lengths = _lengths(module, query, key, attention_mask, options)
    if lengths is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    texts, heads, tokens, width = query.shape
    query = query * (width**-0.5 if scaling is None else scaling)
    query, key, value = (pad(part, (0, 0, 0, -tokens % _STEP)) for part in (query, key, value))
    scores = query.new_empty(heads, query.shape[2], query.shape[2])
    result = query.new_empty(texts, tokens, heads, value.shape[-1])
    for text, length in enumerate(lengths):
        torch.bmm(query[text], key[text].transpose(1, 2), out=scores)
        scores[..., length:] = -torch.inf
        torch.softmax(scores, -1, out=scores)
        result[text] = torch.bmm(scores, value[text])[:, :tokens].transpose(0, 1)
    return result, None


def _lengths(
    module: Any, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, options: dict[str, Any]
) -> list[int] | None:
    """Return the number of tokens of each text, or None unless each of its tokens attends to all of them."""
    import torch

    tokens = query.shape[2]
    if query.dtype != torch.bfloat16 or query.shape != key.shape or tokens not in _TOKENS:
        return None
    if options.get("dropout") or any(options.get(name) is not None for name in ("position_bias", "softcap")):
        return None
    if mask is None:
        causal = options.get("is_causal")
        return None if (getattr(module, "is_causal", True) if causal is None else causal) else [tokens] * len(query)
    if mask.dtype != torch.bool or mask.shape[1] != 1:
        return None
    counts = mask[:, :, :1].sum(-1, keepdim=True)
    if not bool((mask == (torch.arange(tokens) < counts)).all() and (counts > 0).all()):
        return None
    return [int(count) for count in counts.flatten()]
