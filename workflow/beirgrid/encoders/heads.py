"""Dense vectors and the other heads of BGE-M3, from one encoding of each text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.models import DenseModel
from ..core.compute import Runtime
from . import m3
from .dense import DenseEncoder
from .engine import Batch, order
from .late_interaction import in_order, without_skipped

if TYPE_CHECKING:
    import torch

_LAYERS = {"sparse": "sparse", "tokens": "colbert"}


class HeadsEncoder(DenseEncoder):
    """Encodes documents to a tuple: the dense vectors, then the vectors of each head in ``heads``, in that order.

    The head sparse gives a CSR matrix, float32 [texts, vocabulary]. The head tokens gives ``TokenVectors``, without the
    first token of each text.

    Attributes:
        dimensions: dimension of each head's vectors, the dense one's first.
    """

    output = ""  # all tokens of the last layer are read

    def __init__(self, folder: Path, entry: DenseModel, runtime: Runtime, heads: tuple[str, ...]) -> None:
        super().__init__(folder, entry, runtime)
        self.heads = {head: m3.linear(folder, _LAYERS[head]).to(runtime.device) for head in heads}
        self.terms = len(self.model.tokenizer)
        own = (self.terms if head == "sparse" else layer.out_features for head, layer in self.heads.items())
        self.dimensions = (self.dimension, *own)

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Compute the numbers of each head: one tensor for the dense one, two for each other."""
        found = list(super().results(features))
        for head, layer in self.heads.items():
            found += (m3.weights_of_tokens if head == "sparse" else m3.projected)(self, layer, features)
        return tuple(found)

    def kept(self, results: tuple[np.ndarray, ...]) -> Any:
        """Convert the numbers of each head to its vectors."""
        dense, *others = results
        pairs = zip(self.heads, others[::2], others[1::2], strict=True)
        return (dense, *(self._vectors_of(head, values, mask) for head, values, mask in pairs))

    def _vectors_of(self, head: str, values: np.ndarray, which: np.ndarray) -> Any:
        if head == "sparse":
            return m3.largest_weights(values, which, self.terms)
        return without_skipped(values, which)

    def collected(self, batches: list[Batch[Any]]) -> Any:
        """Join the batches of a window head by head, in the order of the texts."""
        import scipy.sparse

        parts = [[Batch(batch.rows, batch.found[place]) for batch in batches] for place in range(len(self.dimensions))]
        found: list[Any] = [super().collected(parts[0])]
        for head, part in zip(self.heads, parts[1:], strict=True):
            if head == "sparse":
                found.append(scipy.sparse.vstack([batch.found for batch in part], format="csr")[order(part)])
            else:
                found.append(in_order(part))
        return tuple(found)
