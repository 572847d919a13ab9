"""Attention by matrix products, for a decoder's single queries on a CPU, where PyTorch's kernel is slow.

In bfloat16, products round the scores before the softmax, like transformers' eager attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Most tokens per text for the product form, which holds all scores in memory.
LONGEST = 1024


def products_are_faster(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Tell whether products are faster than the kernel and need little memory.

    Args:
        query: [texts, heads, queries, width]
        key: [texts, heads, tokens, width]
    """
    return query.device.type == "cpu" and query.shape[1] == key.shape[1] and key.shape[2] <= LONGEST


def by_products(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scaling: float | None = None,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return softmax(query · key · scaling + bias) · value.

    Args:
        query: [texts, heads, queries, width]
        key, value: [texts, heads, tokens, width]
        scaling: 1 / √width unless given.
        bias: is added to the scores, of any shape that fits [texts, heads, queries, tokens].
        mask: which tokens are attended to (bool), or numbers that are added like a bias.

    Returns:
        [texts, heads, queries, width]
    """
    import torch

    scaling = query.shape[3] ** -0.5 if scaling is None else scaling
    if scaling != 1:
        query = query * scaling
    if query.shape[2] == 1:  # oneDNN multiplies a vector faster on this side
        scores = torch.matmul(key, query.transpose(2, 3)).transpose(2, 3)
    else:
        scores = torch.matmul(query, key.transpose(2, 3))
    added = mask
    if mask is not None and mask.dtype == torch.bool:
        added = torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, torch.finfo(scores.dtype).min)
    if bias is not None:  # summed with the mask first: both are smaller than the scores
        scores, added = scores.float(), bias if added is None else bias + added
    if added is not None:
        scores = scores + added
    return torch.matmul(scores.softmax(dim=-1).to(value.dtype), value)
