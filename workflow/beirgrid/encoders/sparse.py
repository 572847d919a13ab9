"""Learned sparse encoders: a weight per term of the vocabulary (SPLADE, SPARTA)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from ..data import saved
from . import cutting, linear
from .base import TextEncoder, load_checkpoint
from .engine import Batch, order

if TYPE_CHECKING:
    import scipy.sparse
    import torch

# A batch gives a number per token and vocabulary term: 1 GB in float32 for so many tokens.
MOST_TOKENS = 8192
# SPARTA keeps so many terms of a document, as the BEIR package does.
SPARTA_TERMS = 2000


class SparseTextEncoder(TextEncoder[SparseModel, "scipy.sparse.csr_matrix"]):
    """One sparse vector per text over the vocabulary (SparseEncoder): float32 [texts, vocabulary]."""

    def __init__(self, folder: Path, entry: SparseModel, runtime: Runtime) -> None:
        from sentence_transformers import SparseEncoder

        super().__init__(entry, runtime)
        saved.check_use(folder, "SparseEncoder", "dot")
        self.engine.budget = min(self.engine.budget, MOST_TOKENS // self.engine.workers)
        self.sparta = entry.pooling == "sparta"
        self.model = load_checkpoint(
            sparta if self.sparta else SparseEncoder,
            folder,
            device=runtime.device,
            prompts={"query": entry.prompts.query or "", "document": entry.prompts.document or ""},
            trust_remote_code=entry.trust_remote_code,
        )
        self.model.eval()
        _refuse_random_layer(self.model, folder)
        if not hasattr(self.model[0], "auto_model"):
            kind = type(self.model[0]).__name__
            raise DataError(f"{folder} starts with a {kind}: a sparse model encodes queries as it does documents here")
        if entry.max_length is not None:
            self.model.max_seq_length = entry.max_length
        _activate_maxima(self.model)
        self.set_precision()
        head = self.transformer.get_output_embeddings()
        if head is not None and runtime.kind == "cpu":
            linear.reorder(head)  # a copy: the input embeddings have the same weights
        in_16_bits = head is not None and self.precision != "float32"
        if in_16_bits:
            head.forward = _to_float32(head.forward, runtime.kind)
        self.rounds_factors = in_16_bits and runtime.kind != "cpu"
        self.check_length()
        # A model knows its dimension once it has seen a text.
        with self.autocast():
            self.dimension: int = self.model.encode_document([""], convert_to_sparse_tensor=False).shape[1]

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> scipy.sparse.csr_matrix:
        """Return float32 [texts, vocabulary]; with SPARTA, how often the query has each word piece."""
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


def _refuse_random_layer(model: Any, folder: Path) -> None:
    """Refuse what sentence-transformers makes of a model that is not sparse: it puts an untrained layer on top."""
    saved = folder / "modules.json"
    trained = "SparseAutoEncoder" in saved.read_text(encoding="utf-8") if saved.is_file() else False
    if not trained and any(type(module).__name__ == "SparseAutoEncoder" for module in model):
        raise DataError(f"{folder} holds a dense model, which a random layer would turn into a sparse one")


def _activate_maxima(model: Any) -> None:
    """Let SPLADE take the maximum over tokens before the activation, which only grows: the weights are the same.

    So one number per text and term is activated instead of one per token and term.
    """
    import torch
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    def forward(features: dict[str, torch.Tensor], times: int) -> dict[str, torch.Tensor]:
        padding = (features["attention_mask"] == 0)[:, :, None]
        weights = torch.relu(features["token_embeddings"].masked_fill_(padding, -torch.inf).amax(1))
        for _ in range(times):
            weights = torch.log1p(weights)
        features["sentence_embedding"] = weights
        return features

    for module in model:
        if isinstance(module, SpladePooling) and module.pooling_strategy == "max":
            times = 2 if module.activation_function == "log1p_relu" else 1
            module.forward = partial(forward, times=times)


def _to_float32(decode: Callable[[torch.Tensor], torch.Tensor], device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a vocabulary head whose logits are float32 sums, as rounded ones are wrong by up to 0.4 %."""
    import torch

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, enabled=False):
            return decode(hidden.float())

    return forward


@contextmanager
def _rounded_factors() -> Iterator[None]:
    """Let float32 products of a GPU round what they multiply (TF32), so that they cost less.

    A CPU is as fast without rounding: float32 products with reordered weights reach 152 and 184 GFLOP/s on two cores of
    an AMD EPYC (384 and 768 dimensions, 30,522 terms), products with factors rounded to bfloat16 140 and 177.
    """
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def sparta(folder: str, *, local_files_only: bool, trust_remote_code: bool, **options: Any) -> Any:
    """Return a SparseEncoder over the plain transformer in ``folder``."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer

    only = {"local_files_only": local_files_only, "trust_remote_code": trust_remote_code}
    transformer = Transformer(folder, model_kwargs=only, processor_kwargs=only, config_kwargs=only)
    return SparseEncoder(modules=[transformer, _sparta_pooling(transformer)], **options)


def _sparta_pooling(transformer: Any) -> Any:
    """Return a module that gives each term its best match among a document's tokens.

    The weight of a term is log(1 + max over tokens of relu(input embedding of the term · token)), as in
    the SPARTA paper (Zhao et al., 2021) without its bias term, which BEIR's checkpoint does not have.
    """
    import torch

    class SpartaPooling(torch.nn.Module):
        def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            terms = transformer.auto_model.get_input_embeddings().weight[: len(transformer.tokenizer)].float()
            tokens = features["token_embeddings"]
            # Padding takes part in BEIR's implementation, which makes weights depend on the batch: not here.
            padding = (features["attention_mask"] == 0)[:, :, None]
            texts = zip(tokens, padding, strict=True)  # one at a time: a number per token and term
            best = torch.stack([(text @ terms.T).masked_fill(pad, -torch.inf).amax(0) for text, pad in texts])
            best[:, transformer.tokenizer.all_special_ids] = 0
            weights = torch.log1p(torch.relu(best))
            kept = torch.topk(weights, min(SPARTA_TERMS, weights.shape[1]))
            features["sentence_embedding"] = torch.zeros_like(weights).scatter_(1, kept.indices, kept.values)
            return features

    return SpartaPooling()
