"""The two further heads of BGE-M3, beside its dense vectors: a weight per token (sparse), and a vector per token.

As FlagEmbedding 1.4.2 computes them: https://github.com/FlagOpen/FlagEmbedding, inference/embedder/encoder_only/m3.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.models import SparseModel
from ..core.compute import Runtime
from ..core.errors import DataError
from .loading import first_module
from .sparse import SparseTextEncoder, SparseVectors, transformer_alone

if TYPE_CHECKING:
    import scipy.sparse
    import torch


class M3SparseEncoder(SparseVectors):
    """Encodes a text to one sparse vector: the largest weight of each of its tokens."""

    def __init__(self, folder: Path, entry: SparseModel, runtime: Runtime) -> None:
        import torch

        super().__init__(entry, runtime)
        self.open(transformer_alone, folder, "pooler")
        self.set_precision()
        self.head = {name: weight.to(runtime.device) for name, weight in _linear(folder, "sparse").items()}
        ends = (getattr(self.tokenizer, f"{name}_token_id") for name in ("cls", "eos", "pad", "unk"))
        self.special = torch.tensor([token for token in ends if token is not None], device=runtime.device)
        self.dimension = len(self.tokenizer)

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Compute the weight of each token, 0 for special ones, and return it with the tokens: both [texts, tokens]."""
        import torch

        ids = features["input_ids"]
        with torch.autocast(self.runtime.kind, enabled=False):
            weights = torch.nn.functional.linear(features["token_embeddings"], **self.head).relu().squeeze(-1)
        return weights * (features["attention_mask"].bool() & ~torch.isin(ids, self.special)), ids

    def batch_vectors(self, results: tuple[np.ndarray, ...]) -> scipy.sparse.csr_matrix:
        """Convert to a CSR matrix: a token that occurs more than once has its largest weight."""
        import scipy.sparse

        weights, ids = results
        rows, places = np.nonzero(weights)
        cells, inverse = np.unique(rows * self.dimension + ids[rows, places], return_inverse=True)
        largest = np.zeros(len(cells), np.float32)
        np.maximum.at(largest, inverse, weights[rows, places])
        shape = (len(weights), self.dimension)
        return scipy.sparse.csr_matrix((largest, np.divmod(cells, self.dimension)), shape=shape)


def open_sparse(folder: Path, entry: SparseModel, runtime: Runtime) -> SparseVectors:
    """Open a sparse model: BGE-M3's head, or a model of sentence-transformers."""
    return (M3SparseEncoder if entry.pooling == "bge-m3" else SparseTextEncoder)(folder, entry, runtime)


def _linear(folder: Path, head: str) -> dict[str, torch.Tensor]:
    """Read ``weight`` and ``bias`` of a head, which fetch converted."""
    from safetensors.torch import load_file

    if not (path := folder / f"{head}_linear.safetensors").is_file():
        raise DataError(f"{folder} has no {path.name}: it is not BGE-M3, or its entry lacks pickled: true")
    return {name: weight.float() for name, weight in load_file(path).items()}


def vectors_of_tokens(folder: str, **options: Any) -> Any:
    """Build a MultiVectorEncoder with BGE-M3's projection; the first token of a text has no vector."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Dense
    from torch.nn import Identity

    first, head = first_module(folder, options), _linear(Path(folder), "colbert")
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    weights = {"init_weight": head["weight"], "init_bias": head["bias"]}
    projection = Dense(*head["weight"].shape[::-1], activation_function=Identity(), **weights, **tokens)
    mask = MultiVectorMask()
    mask.register_forward_hook(_drop_first)
    return MultiVectorEncoder(modules=[first, projection, mask], **options)


def _drop_first(module: Any, inputs: Any, features: dict[str, torch.Tensor]) -> None:
    """Leave the first token of each text out of the mask. The same token inside a text stays."""
    features["attention_mask"][:, 0] = False
