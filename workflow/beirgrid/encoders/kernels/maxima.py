"""Compute the largest product of each vocabulary term with a text's tokens, for learned sparse models.

BERT's vocabulary has 30,522 terms, so all products would take 30,522 numbers per token. This module multiplies a block
of terms at a time, and takes the maxima while the products are in the processor's cache.
"""

from __future__ import annotations

import torch

from . import linear

# Terms per block. On a GPU, a block for 65,536 tokens takes 512 MB.
TERMS = {"cpu": 1024, "cuda": 2048}


class Maxima:
    """Multiplies tokens by the vectors of all terms, in float32 (TF32 on a GPU if PyTorch allows it).

    On a CPU it copies the vectors, so later changes of the model have no effect on it.
    """

    def __init__(self, terms: torch.Tensor, bias: torch.Tensor | None = None, *, reorder: bool = True) -> None:
        """Set up with the term vectors.

        Args:
            terms: float32 [terms, width].
            bias: added to the products, float32 [terms].
            reorder: whether to store the vectors in oneDNN's layout (``linear``).
        """
        size = TERMS[terms.device.type]
        bias = terms.new_zeros(len(terms)) if bias is None else bias
        blocks = zip(torch.split(terms, size), torch.split(bias, size), strict=True)
        self.blocks = [_layer(*block, reorder=reorder) for block in blocks]

    def __call__(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the largest product of each term with a token of each text: float32 [texts, terms].

        Args:
            tokens: float32 [texts, longest, width]
            mask: [texts, longest], 0 for padding. The products of a text without tokens are -inf.
        """
        texts, longest, _ = tokens.shape
        mask = mask.bool()
        # Padding becomes a copy of the text's first token, which changes no maximum.
        first = tokens[torch.arange(texts, device=tokens.device), mask.int().argmax(1)]
        rows = tokens.where(mask[:, :, None], first[:, None]).flatten(0, 1)
        with torch.autocast(tokens.device.type, enabled=False):
            largest = torch.cat([block(rows).view(texts, longest, -1).amax(1) for block in self.blocks], 1)
        return largest.masked_fill_(~mask.any(1, keepdim=True), -torch.inf)


def _layer(terms: torch.Tensor, bias: torch.Tensor, *, reorder: bool) -> torch.nn.Linear:
    layer = torch.nn.Linear(terms.shape[1], len(terms), device="meta")
    layer.weight = torch.nn.Parameter(terms.detach(), requires_grad=False)
    layer.bias = torch.nn.Parameter(bias.detach(), requires_grad=False)
    if reorder and terms.device.type == "cpu":
        linear.reorder(layer)
    return layer
