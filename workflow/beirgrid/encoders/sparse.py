"""Learned sparse encoders: a weight per term of the vocabulary (SPLADE, SPARTA, queries by a table of weights)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.models import SparseModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..models import saved
from . import cutting, kernels
from .base import TextEncoder
from .engine import TOKENIZED, Batch, order, parts
from .loading import load_checkpoint

if TYPE_CHECKING:
    import scipy.sparse
    import torch

# Tokens of all batches at once if the model's own pooling reads a number per token and term: 1 GB in float32.
MOST_TOKENS = 8192
# SPARTA keeps so many terms of a document, as the BEIR package does.
SPARTA_TERMS = 2000


class SparseTextEncoder(TextEncoder[SparseModel, "scipy.sparse.csr_matrix"]):
    """One sparse vector per text over the vocabulary (SparseEncoder): float32 [texts, vocabulary]."""

    def __init__(self, folder: Path, entry: SparseModel, runtime: Runtime) -> None:
        from sentence_transformers import SparseEncoder

        super().__init__(entry, runtime)
        saved.check_use(folder, "SparseEncoder", "dot")
        self.sparta = entry.pooling == "sparta"
        self.model = load_checkpoint(
            sparta if self.sparta else SparseEncoder,
            folder,
            device=runtime.device,
            prompts=saved.prompts(folder, entry.prompts),
            trust_remote_code=entry.trust_remote_code,
        )
        self.table: Any = None
        if type(self.model[0]).__name__ == "Router":
            self.table, self.model = _routes(self.model, folder, runtime.device)
        self.model.eval()
        _refuse_random_layer(self.model, folder)
        if not hasattr(self.model[0], "auto_model"):
            kind = type(self.model[0]).__name__
            raise DataError(f"{folder} starts with a {kind}: a sparse model reads documents with a transformer here")
        if entry.max_length is not None:
            self.model.max_seq_length = entry.max_length
        head = self.transformer.get_output_embeddings()
        in_blocks = _pool_maxima(self.model, self.transformer, runtime, sparta=self.sparta)
        if not in_blocks:
            self.engine.budget = min(self.engine.budget, MOST_TOKENS // self.engine.workers)
        self.set_precision()
        in_16_bits = head is not None and self.precision != "float32"
        if in_16_bits and not in_blocks:
            self.multiply_in_float32(head)  # rounded logits are wrong by up to 0.4 %
        self.rounds_factors = in_16_bits and runtime.kind != "cpu"
        self.check_length()
        # A model knows its dimension once it has seen a text.
        with self.autocast():
            self.dimension: int = self.model.encode_document([""], convert_to_sparse_tensor=False).shape[1]

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> scipy.sparse.csr_matrix:
        """Return float32 [texts, vocabulary]; with SPARTA, how often the query has each word piece.

        A model without inference for queries looks up the weight of each of their tokens.
        """
        if self.table is not None:
            return self._looked_up(texts, progress)
        if self.sparta:
            return self._bag_of_pieces([self.model.prompts["query"] + text for text in texts])
        return super().encode_queries(texts, progress=progress)

    def _vectors(
        self, blocks: Iterable[list[str]], role: str, progress: Progress | None
    ) -> Iterator[scipy.sparse.csr_matrix]:
        with _rounded_factors() if self.rounds_factors else nullcontext():
            yield from super()._vectors(blocks, role, progress)

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the weights of terms: [texts, vocabulary]."""
        return (features["sentence_embedding"].float(),)

    def kept(self, results: tuple[np.ndarray, ...]) -> scipy.sparse.csr_matrix:
        """Return the weights that are not zero."""
        import scipy.sparse

        return scipy.sparse.csr_matrix(results[0])

    def collected(self, batches: list[Batch[scipy.sparse.csr_matrix]]) -> scipy.sparse.csr_matrix:
        """Return the weights of a window's texts in their order."""
        return self.joined([batch.found for batch in batches])[order(batches)]

    def joined(self, blocks: list[scipy.sparse.csr_matrix]) -> scipy.sparse.csr_matrix:
        """Return the weights of all blocks as one matrix."""
        import scipy.sparse

        none = scipy.sparse.csr_matrix((0, self.dimension), dtype=np.float32)
        return scipy.sparse.vstack([none, *blocks], format="csr")

    def _looked_up(self, texts: list[str], progress: Progress | None) -> scipy.sparse.csr_matrix:
        import scipy.sparse

        rows = []
        for part in parts(texts, TOKENIZED):
            found = self.table.encode_query(
                part, prompt=self.model.prompts["query"], convert_to_sparse_tensor=False, show_progress_bar=False
            )
            rows.append(scipy.sparse.csr_matrix(found.cpu().numpy()))
            if progress:
                progress.add(len(part))
        return self.joined(rows)

    def _bag_of_pieces(self, texts: list[str]) -> scipy.sparse.csr_matrix:
        import scipy.sparse

        pieces = [list(chain.from_iterable(cutting.pieces(self.model.tokenizer, text))) for text in texts]
        columns = np.array([piece for text in pieces for piece in text], np.int32)
        starts = np.cumsum([0, *map(len, pieces)])
        bags = scipy.sparse.csr_matrix(
            (np.ones(len(columns), np.float32), columns, starts), (len(texts), self.dimension)
        )
        bags.sum_duplicates()
        return bags


def _routes(model: Any, folder: Path, device: str) -> tuple[Any, Any]:
    """Return what reads queries and what reads documents of a model that routes them: a table, and a transformer."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    routes = model[0].sub_modules
    if set(routes) != {"query", "document"} or [type(module) for module in routes["query"]] != [SparseStaticEmbedding]:
        raise DataError(f"{folder} routes queries and documents otherwise than to a table and a transformer")
    query, document = (
        SparseEncoder(modules=[*routes[side], *list(model)[1:]], prompts=model.prompts, device=device)
        for side in ("query", "document")
    )
    return query.eval(), document


def _refuse_random_layer(model: Any, folder: Path) -> None:
    """Refuse what sentence-transformers makes of a model that is not sparse: it puts an untrained layer on top."""
    saved = folder / "modules.json"
    trained = "SparseAutoEncoder" in saved.read_text(encoding="utf-8") if saved.is_file() else False
    if not trained and any(type(module).__name__ == "SparseAutoEncoder" for module in model):
        raise DataError(f"{folder} holds a dense model, which a random layer would turn into a sparse one")


def _pool_maxima(model: Any, transformer: Any, runtime: Runtime, *, sparta: bool) -> bool:
    """Let the pooling multiply tokens by terms itself, a block of terms at a time. Only a maximum can be found so.

    Call this before ``set_precision``, which leaves the pooling out of 16 bits.

    Returns:
        Whether the pooling does. If not, it reads a number per token and term.
    """
    pooling, head = model[-1], transformer.get_output_embeddings()
    if sparta:
        maxima = kernels.term_maxima(runtime, transformer.get_input_embeddings().weight[: len(model.tokenizer)])
        weigh = partial(_sparta_weights, special=model.tokenizer.all_special_ids)
    elif runtime.kernels == "auto" and _is_splade(model) and _is_last(head, transformer):
        maxima = kernels.term_maxima(runtime, head.weight, head.bias)
        weigh = partial(_splade_weights, times=2 if pooling.activation_function == "log1p_relu" else 1)
        head.forward = lambda hidden: hidden
    else:
        return False

    def forward(features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        features["sentence_embedding"] = weigh(maxima(features["token_embeddings"], features["attention_mask"]))
        return features

    pooling.forward = forward
    return True


def _is_splade(model: Any) -> bool:
    """Return whether a model is a transformer and the maximum over its logits, with nothing in between."""
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    return len(model) == 2 and type(model[1]) is SpladePooling and model[1].pooling_strategy == "max"


def _is_last(head: Any, transformer: Any) -> bool:
    """Return whether a language model returns the output of its linear head unchanged."""
    import torch

    if not isinstance(head, torch.nn.Linear):
        return False
    returned: list[torch.Tensor] = []
    hook = head.register_forward_hook(lambda *call: returned.append(call[2]))
    with hook, torch.inference_mode():
        logits = transformer(input_ids=torch.tensor([[0, 1, 2]], device=head.weight.device))[0]
    return len(returned) == 1 and torch.equal(returned[0], logits)


def _splade_weights(maxima: torch.Tensor, times: int) -> torch.Tensor:
    """Return the weights of terms from their largest logits. The maximum may come first: the logarithm only grows."""
    weights = maxima.relu_()
    for _ in range(times):
        weights = weights.log1p_()
    return weights


def _sparta_weights(maxima: torch.Tensor, special: list[int]) -> torch.Tensor:
    """Return the weights of terms from their best matches among a document's tokens.

    The weight of a term is log(1 + max over tokens of relu(input embedding of the term · token)), as in the SPARTA
    paper (Zhao et al., 2021) without its bias term, which BEIR's checkpoint does not have. In BEIR's implementation,
    padding takes part, so weights depend on the batch. Here, it does not.
    """
    maxima[:, special] = 0
    weights = maxima.relu_().log1p_()
    kept = weights.topk(min(SPARTA_TERMS, weights.shape[1]))
    return weights.new_zeros(weights.shape).scatter_(1, kept.indices, kept.values)


@contextmanager
def _rounded_factors() -> Iterator[None]:
    """Let float32 products of a GPU round what they multiply (TF32), so that they cost less."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def sparta(folder: str, *, local_files_only: bool, trust_remote_code: bool, **options: Any) -> Any:
    """Return a SparseEncoder over the plain transformer in ``folder``; ``_pool_maxima`` gives it its pooling."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer

    only = {"local_files_only": local_files_only, "trust_remote_code": trust_remote_code}
    transformer = Transformer(folder, model_kwargs=only, processor_kwargs=only, config_kwargs=only)
    return SparseEncoder(modules=[transformer, torch.nn.Identity()], **options)
