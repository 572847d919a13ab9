"""Find the most likely tokens of hidden states, mostly in low precision.

The product with the vocabulary is the most expensive of a decoder step. It must be exact, because bfloat16 logits tie.
But only the largest results are used, and a bfloat16 product proves that the others are smaller. This module imports
torch, so import it only where a model is open.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

# Tokens per group of ``largest``.
GROUP = 32
# Relative rounding errors: of bfloat16, and of a float32 sum.
_BFLOAT16, _FLOAT32 = 2.0**-8, 2.0**-23


class Likeliest(NamedTuple):
    """The most likely tokens of each row.

    Attributes:
        logits: float32 [rows, count], descending.
        pieces: int64 [rows, count].
        certain: bool [rows], whether the choice is proven exact.
    """

    logits: torch.Tensor
    pieces: torch.Tensor
    certain: torch.Tensor

    @classmethod
    def of_all(cls, logits: torch.Tensor, pieces: torch.Tensor) -> Likeliest:
        """Wrap the most likely of all tokens."""
        return cls(logits, pieces, torch.ones(len(logits), dtype=torch.bool, device=logits.device))


def largest(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest values of each row and their columns, like torch.topk but faster.

    The largest values are in the groups with the largest maxima, so the other groups are not sorted.

    Args:
        values: [rows, columns]
        count: values per row; all columns if there are fewer.
    """
    rows, columns = values.shape
    groups = columns // GROUP
    grid = values[:, : groups * GROUP].reshape(rows, GROUP, groups)
    best = grid.amax(1).topk(min(count, groups), sorted=False).indices[:, None]
    members = torch.arange(GROUP, device=values.device)[:, None]
    found = grid.gather(2, best.expand(-1, GROUP, -1)).flatten(1)
    where = (members * groups + best).flatten(1)
    rest = torch.arange(groups * GROUP, columns, device=values.device).expand(rows, -1)
    found, where = torch.cat([found, values[:, groups * GROUP :]], 1), torch.cat([where, rest], 1)
    values, places = found.topk(min(count, columns))
    return values, where.gather(1, places)


class Head(Protocol):
    """Chooses tokens from the output of a model's own head."""

    def likeliest(self, returned: torch.Tensor, count: int) -> Likeliest:
        """Return the most likely tokens of each row of the head's output, float32 [rows, width]."""


def take_head(model: Any, shortlist: bool) -> list[Head]:
    """Return replacements of a model's LM head, fastest first. The model then returns hidden states.

    Only T5's head is known to be a plain product. Other models return logits as before.
    """
    if type(model).__name__ not in (
        "T5ForConditionalGeneration",
        "MT5ForConditionalGeneration",
        "UMT5ForConditionalGeneration",
    ):
        return [LogitsHead()]
    layer = model.get_output_embeddings()
    layer.forward = lambda hidden: hidden
    return [ShortlistHead(layer.weight), WholeHead(layer.weight)] if shortlist else [WholeHead(layer.weight)]


class LogitsHead:
    """Chooses tokens for a model that returns logits."""

    def likeliest(self, returned: torch.Tensor, count: int) -> Likeliest:
        """Return the most likely tokens of logits, float32 [rows, vocabulary]."""
        return Likeliest.of_all(*largest(returned, count))


class WholeHead:
    """A model's LM head in float32."""

    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights

    def likeliest(self, returned: torch.Tensor, count: int) -> Likeliest:
        """Return the best tokens of hidden states, float32 [rows, width]."""
        with torch.autocast(returned.device.type, enabled=False):
            return Likeliest.of_all(*largest(returned @ self.weights.T, count))


class ShortlistHead(WholeHead):
    """An LM head that preselects tokens in bfloat16 and computes their logits in float32.

    For hidden states h = h' + e and weights w = w' + f, of which h' and w' are the roundings to bfloat16, the error of
    a logit is |h w - h' w'| = |e w + h' f| <= |e| |w| + |h'| |f|. Roundings of the sum and of its result come on top.
    The logit of a token outside the list is at most the list's smallest logit plus this bound. If the ``count``-th
    exact logit is larger, that token is not among the best.
    """

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__(weights)
        self.low = weights.bfloat16()
        self.longest = weights.norm(dim=1).max()
        self.rounded_off = (weights - self.low.float()).norm(dim=1).max()

    def likeliest(self, returned: torch.Tensor, count: int) -> Likeliest:
        """Return the most likely tokens of hidden states, float32 [rows, width], and for which rows they are proven."""
        hidden = returned
        with torch.autocast(hidden.device.type, enabled=False):
            low = hidden.bfloat16()
            listed, pieces = largest(low @ self.low.T, 2 * count + 16)
            exact = torch.bmm(self.weights[pieces], hidden[:, :, None])[:, :, 0]
            logits, places = exact.topk(min(count, exact.shape[1]))
            least = listed[:, -1].float()
            length = hidden.norm(dim=1)
            error = (hidden - low.float()).norm(dim=1) * self.longest + low.float().norm(dim=1) * self.rounded_off
            error = error + _BFLOAT16 * least.abs() + 2 * hidden.shape[1] * _FLOAT32 * length * self.longest
            certain = logits[:, -1] > least + error
            if listed.shape[1] == len(self.weights):
                certain = torch.ones_like(certain)
            return Likeliest(logits, pieces.gather(1, places), certain)
