"""Learned sparse encoders: a weight per term of the vocabulary (SPLADE, SPARTA, queries by a table of weights)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

from ..config.models import SparseModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..models import saved
from .base import TextEncoder
from .engine import TOKENIZED
from .kernels.maxima import Maxima
from .loading import first_module, m3_head
from .protocol import SparseRows, parts

# Token budget over all concurrent batches if the model's own pooling needs a number per token and term: 1 GB in
# float32.
MOST_TOKENS = 8192
# Terms that SPARTA keeps per document, as in the BEIR package.
SPARTA_TERMS = 2000


class SparseVectors(TextEncoder[SparseModel, scipy.sparse.csr_matrix], SparseRows):
    """An encoder of one sparse vector per text: float32 [texts, vocabulary]."""

    def open(self, loader: Any, folder: Path, unused: str = "") -> None:
        """Open a checkpoint with the prompts and the length of the model's entry."""
        self.load(loader, folder, unused, prompts=saved.prompts(folder, self.entry))
        if self.entry.max_length is not None:
            self.model.max_seq_length = self.entry.max_length


class SparseTextEncoder(SparseVectors):
    """Encodes a text to a sparse vector over the vocabulary (SparseEncoder)."""

    def __init__(self, folder: Path, entry: SparseModel, runtime: Runtime) -> None:
        super().__init__(entry, runtime)
        saved.check_use(folder, "SparseEncoder", "dot")
        self.sparta = entry.pooling == "sparta"
        self.open(transformer_alone if self.sparta else SparseEncoder, folder)
        self.table: Any = None
        if type(self.model[0]).__name__ == "Router":
            self.table, self.model = _routes(self.model, folder, runtime.device)
        _refuse_random_layer(self.model, folder)
        head = self.transformer.get_output_embeddings()
        in_blocks = _pool_maxima(self.model, self.transformer, runtime, sparta=self.sparta)
        if not in_blocks:
            self.engine.budget = min(self.engine.budget, MOST_TOKENS // self.engine.workers)
        self.set_precision()
        in_16_bits = head is not None and self.precision != "float32"
        if in_16_bits and not in_blocks:
            self.multiply_in_float32(head)  # bfloat16 logits are off by up to 0.4 %
        self.rounds_factors = in_16_bits and runtime.kind != "cpu"
        # A model knows its dimension only after it has encoded a text.
        with self.autocast():
            self.dimension: int = self.model.encode_document([""], convert_to_sparse_tensor=False).shape[1]

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> scipy.sparse.csr_matrix:
        """Encode queries: float32 [texts, vocabulary]. For SPARTA, the values are the tokens' counts.

        A model without query inference looks up a weight per query token.
        """
        if self.table is None and not self.sparta:
            return super().encode_queries(texts, progress=progress)
        weigh = self._counts if self.sparta else self._table_weights
        return self.concatenation([weigh(part) for part in parts(texts, TOKENIZED)])

    def vectors(
        self, blocks: Iterable[list[str]], role: str, progress: Progress | None = None
    ) -> Iterator[scipy.sparse.csr_matrix]:
        """Yield the vectors of each block of texts."""
        with _rounded_factors() if self.rounds_factors else nullcontext():
            yield from super().vectors(blocks, role, progress)

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Select the term weights: [texts, vocabulary]."""
        return (features["sentence_embedding"].float(),)

    def batch_vectors(self, results: tuple[np.ndarray, ...]) -> scipy.sparse.csr_matrix:
        """Convert the weights to a CSR matrix."""
        return scipy.sparse.csr_matrix(results[0])

    def _table_weights(self, texts: list[str]) -> scipy.sparse.csr_matrix:
        options = {"prompt": self.model.prompts["query"], "convert_to_sparse_tensor": False, "show_progress_bar": False}
        return scipy.sparse.csr_matrix(self.table.encode_query(texts, **options).cpu().numpy())

    def _counts(self, texts: list[str]) -> scipy.sparse.csr_matrix:
        prompt = self.model.prompts["query"]
        read = self.tokenizer([prompt + text for text in texts], add_special_tokens=False, verbose=False)["input_ids"]
        tokens = np.concatenate(read).astype(np.int32)
        ends = np.cumsum([0, *map(len, read)])
        ones = np.ones(len(tokens), np.float32)
        counts = scipy.sparse.csr_matrix((ones, tokens, ends), (len(texts), self.dimension))
        counts.sum_duplicates()
        return counts


class M3SparseEncoder(SparseVectors):
    """Encodes a text to one sparse vector: the largest weight of each of its tokens, as FlagEmbedding 1.4.2 computes it
    (https://github.com/FlagOpen/FlagEmbedding, inference/embedder/encoder_only/m3.py).
    """

    def __init__(self, folder: Path, entry: SparseModel, runtime: Runtime) -> None:
        super().__init__(entry, runtime)
        self.open(transformer_alone, folder, "pooler")
        self.set_precision()
        self.head = {name: weight.to(runtime.device) for name, weight in m3_head(folder, "sparse").items()}
        ends = (getattr(self.tokenizer, f"{name}_token_id") for name in ("cls", "eos", "pad", "unk"))
        self.special = torch.tensor([token for token in ends if token is not None], device=runtime.device)
        self.dimension = len(self.tokenizer)

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Compute the weight of each token, 0 for special ones, and return it with the tokens: both [texts, tokens]."""
        ids = features["input_ids"]
        with torch.autocast(self.runtime.kind, enabled=False):
            weights = torch.nn.functional.linear(features["token_embeddings"], **self.head).relu().squeeze(-1)
        return weights * (features["attention_mask"].bool() & ~torch.isin(ids, self.special)), ids

    def batch_vectors(self, results: tuple[np.ndarray, ...]) -> scipy.sparse.csr_matrix:
        """Convert to a CSR matrix: a token that occurs more than once has its largest weight."""
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


def _routes(model: Any, folder: Path, device: str) -> tuple[Any, Any]:
    """Return the query table and the document transformer of a model with a router."""
    routes = model[0].sub_modules
    if set(routes) != {"query", "document"} or [type(module) for module in routes["query"]] != [SparseStaticEmbedding]:
        raise DataError(f"{folder} must route queries and documents to a table of weights and a transformer")
    query, document = (
        SparseEncoder(modules=[*routes[side], *list(model)[1:]], prompts=model.prompts, device=device)
        for side in ("query", "document")
    )
    return query.eval(), document.eval()


def _refuse_random_layer(model: Any, folder: Path) -> None:
    """Refuse what is no sparse model: sentence-transformers adds an untrained layer to a dense one, and a table of
    weights has no transformer.
    """
    trained = any(module["type"].endswith(".SparseAutoEncoder") for module in saved.modules(folder))
    if not trained and any(type(module).__name__ == "SparseAutoEncoder" for module in model):
        raise DataError(f"{folder} holds a dense model; an untrained layer would be added to make it sparse")
    if not hasattr(model[0], "auto_model"):
        kind = type(model[0]).__name__
        raise DataError(
            f"{folder} starts with a {kind}: only sparse models that encode documents with a transformer are supported"
        )


def _pool_maxima(model: Any, transformer: Any, runtime: Runtime, *, sparta: bool) -> bool:
    """Compute logits inside max pooling, a block of terms at a time. Only a maximum can be computed this way.

    Call this before ``set_precision``, which keeps the pooling in float32.

    Returns:
        whether the pooling was replaced. If not, it needs a number per token and term.
    """
    head = transformer.get_output_embeddings()
    reorder = runtime.kernels == "auto"
    # Whether max pooling follows the logits, and nothing else.
    alone = len(model) == 2 and type(model[1]) is SpladePooling and model[1].pooling_strategy == "max"
    if sparta:
        maxima = Maxima(transformer.get_input_embeddings().weight[: len(model.tokenizer)], reorder=reorder)
        weigh: Any = partial(_sparta_weights, special=model.tokenizer.all_special_ids)
    elif reorder and alone and _is_last(head, transformer):
        maxima = Maxima(head.weight, head.bias)
        weigh = model[1].forward
        head.forward = lambda hidden: hidden
    else:
        return False

    def forward(features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        # One "token" with the largest logits has the same weights as all tokens: the logarithm is monotonic.
        largest = maxima(features["token_embeddings"], features["attention_mask"])[:, None]
        weighed: dict[str, torch.Tensor] = weigh(
            {**features, "token_embeddings": largest, "attention_mask": largest.new_ones(largest.shape[:2])}
        )
        return weighed

    model[-1].forward = forward
    return True


def _is_last(head: Any, transformer: Any) -> bool:
    """Tell whether a language model returns its linear head's output unchanged."""
    if not isinstance(head, torch.nn.Linear):
        return False
    returned: list[torch.Tensor] = []
    hook = head.register_forward_hook(lambda *call: returned.append(call[2]))
    with hook, torch.inference_mode():
        logits = transformer(input_ids=torch.tensor([[0, 1, 2]], device=head.weight.device))[0]
    return len(returned) == 1 and torch.equal(returned[0], logits)


def _sparta_weights(features: dict[str, torch.Tensor], special: list[int]) -> dict[str, torch.Tensor]:
    """Compute term weights from the terms' best matches among a document's tokens, its one "token".

    The weight of a term is log(1 + max over tokens of relu(input embedding of the term · token)), as in the SPARTA
    paper (Zhao et al., 2021) without its bias term, which BEIR's checkpoint lacks. BEIR's implementation includes
    padding in the maximum, so its weights depend on the batch; this one does not.
    """
    weights = features["token_embeddings"][:, 0].relu().log1p()
    weights[:, special] = 0
    largest = weights.topk(min(SPARTA_TERMS, weights.shape[1]))
    return {"sentence_embedding": weights.new_zeros(weights.shape).scatter_(1, largest.indices, largest.values)}


@contextmanager
def _rounded_factors() -> Iterator[None]:
    """Allow TF32 in float32 products on a GPU, which are faster that way."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def transformer_alone(folder: str, **options: Any) -> Any:
    """Build a SparseEncoder of the plain transformer in ``folder``; the encoder sets what follows it."""
    return SparseEncoder(modules=[first_module(folder, options), torch.nn.Identity()], **options)
