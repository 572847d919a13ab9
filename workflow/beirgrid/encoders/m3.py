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
from ..models import saved
from .base import TextEncoder
from .sparse import SparseTextEncoder, transformer, transformer_alone

if TYPE_CHECKING:
    import scipy.sparse
    import torch


class M3SparseEncoder(SparseTextEncoder):
    """Encodes a text to one sparse vector: the largest weight of each of its tokens."""

    def __init__(self, folder: Path, entry: SparseModel, runtime: Runtime) -> None:
        TextEncoder.__init__(self, entry, runtime)
        self.table, self.sparta, self.rounds_factors = None, False, False
        self.load(transformer_alone, folder, "pooler", prompts=saved.prompts(folder, entry))
        if entry.max_length is not None:
            self.model.max_seq_length = entry.max_length
        self.set_precision()
        self.check_length()
        self.head = linear(folder, "sparse").to(runtime.device)
        self.dimension = len(self.tokenizer)

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Compute the weight of each token, 0 for special ones, and return it with the tokens: both [texts, tokens]."""
        import torch

        ids, tokenizer = features["input_ids"], self.tokenizer
        special = (tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
        with torch.autocast(self.runtime.kind, enabled=False):
            weights = self.head(features["token_embeddings"].float()).relu().squeeze(-1)
        left_out = torch.tensor([token for token in special if token is not None], device=ids.device)
        return weights * (features["attention_mask"].bool() & ~torch.isin(ids, left_out)), ids

    def batch_vectors(self, results: tuple[np.ndarray, ...]) -> scipy.sparse.csr_matrix:
        """Convert to a CSR matrix: a token that occurs more than once has its largest weight."""
        import scipy.sparse

        weights, ids = results
        rows, places = np.nonzero(weights)
        cells = rows * self.dimension + ids[rows, places]
        unique, inverse = np.unique(cells, return_inverse=True)
        largest = np.zeros(len(unique), np.float32)
        np.maximum.at(largest, inverse, weights[rows, places])
        shape = (len(weights), self.dimension)
        return scipy.sparse.csr_matrix((largest, np.divmod(unique, self.dimension)), shape=shape)


def open_sparse(folder: Path, entry: SparseModel, runtime: Runtime) -> SparseTextEncoder:
    """Open a sparse model: BGE-M3's head, or a model of sentence-transformers."""
    return (M3SparseEncoder if entry.pooling == "bge-m3" else SparseTextEncoder)(folder, entry, runtime)


def linear(folder: Path, head: str) -> Any:
    """Open the linear layer of a head, which fetch converted.

    Raises:
        DataError: the checkpoint lacks it.
    """
    import torch
    from safetensors.torch import load_file

    if not (path := folder / f"{head}_linear.safetensors").is_file():
        raise DataError(f"{folder} has no {path.name}: it is not BGE-M3, or its entry lacks pickled: true")
    weights = load_file(path)
    rows, columns = weights["weight"].shape
    layer = torch.nn.Linear(columns, rows)
    layer.load_state_dict(weights)
    return layer.float().eval()


def vectors_of_tokens(folder: str, *, local_files_only: bool, trust_remote_code: bool, **options: Any) -> Any:
    """Build a MultiVectorEncoder with BGE-M3's projection; the first token of a text has no vector."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Dense
    from torch.nn import Identity

    first, layer = transformer(folder, local_files_only, trust_remote_code), linear(Path(folder), "colbert")
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    projection = Dense(
        layer.in_features,
        layer.out_features,
        activation_function=Identity(),
        init_weight=layer.weight.detach(),
        init_bias=layer.bias.detach(),
        **tokens,
    )
    mask = MultiVectorMask()
    mask.register_forward_hook(_drop_first)
    return MultiVectorEncoder(modules=[first, projection, mask], **options)


def _drop_first(module: Any, inputs: Any, features: dict[str, torch.Tensor]) -> None:
    """Leave the first token of each text out of the mask. The same token inside a text stays."""
    features["attention_mask"][:, 0] = False
