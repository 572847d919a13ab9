"""Learned sparse encoders: a weight per term of the vocabulary (SPLADE, SPARTA)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from ..progress import Progress
from .base import Encoder, load_checkpoint, token_batches

if TYPE_CHECKING:
    import scipy.sparse

# A batch gives a number per token and vocabulary term: 1 GB in float32 for so many tokens.
MOST_TOKENS = 8192
# SPARTA keeps so many terms of a document, as the BEIR package does.
SPARTA_TERMS = 2000


class SparseTextEncoder(Encoder):
    """One sparse vector per text over the word pieces of the vocabulary (SparseEncoder)."""

    def __init__(
        self, folder: Path, spec: dict[str, Any], device: str, precision: str, batch_tokens: dict[str, int]
    ) -> None:
        from sentence_transformers import SparseEncoder

        super().__init__(spec, device, precision, batch_tokens)
        self.budget = min(self.budget, MOST_TOKENS)
        self.sparta = spec.get("pooling") == "sparta"
        if not self.sparta and _kind(folder) not in (None, "SparseEncoder"):
            raise DataError(f"{folder} holds a dense model, which a random layer would turn into a sparse one")
        self.model = load_checkpoint(
            sparta if self.sparta else SparseEncoder,
            folder,
            device=self.device,
            prompts={role: spec.get("prompts", {}).get(role, "") for role in ("query", "document")},
            trust_remote_code=spec.get("trust_remote_code", False),
        )
        self.model.eval()
        if "max_length" in spec:
            self.model.max_seq_length = spec["max_length"]
        self.set_precision()
        self.check_length()
        # A model knows its dimension once it has seen a text.
        with self.autocast():
            self.dimension: int = self.model.encode_document([""], convert_to_sparse_tensor=False).shape[1]

    def encode_documents(self, texts: list[str], progress: Progress | None = None) -> scipy.sparse.csr_matrix:
        """Return float32 [texts, vocabulary]: the weights of the terms that each text has or is about."""
        return self._encode(self.model.encode_document, "document", texts, progress)

    def encode_queries(self, texts: list[str], progress: Progress | None = None) -> scipy.sparse.csr_matrix:
        """Return float32 [texts, vocabulary]; with SPARTA, how often the query has each word piece."""
        if self.sparta:
            return self._bag_of_pieces([self.model.prompts["query"] + text for text in texts])
        return self._encode(self.model.encode_query, "query", texts, progress)

    def _encode(self, encode: Any, role: str, texts: list[str], progress: Progress | None) -> scipy.sparse.csr_matrix:
        import scipy.sparse

        parts = [scipy.sparse.csr_matrix((0, self.dimension), dtype=np.float32)]
        order: list[int] = []
        prompt = self.model.prompts[role]
        with self.autocast():
            for rows in token_batches(self.token_lengths([prompt + text for text in texts]), self.budget):
                weights = encode(
                    [texts[row] for row in rows],
                    batch_size=len(rows),
                    convert_to_sparse_tensor=False,
                    show_progress_bar=False,
                )
                parts.append(scipy.sparse.csr_matrix(weights.float().cpu().numpy()))
                order += rows.tolist()
                if progress:
                    progress.add(len(rows))
        return scipy.sparse.vstack(parts, format="csr")[np.argsort(order)]

    def _bag_of_pieces(self, texts: list[str]) -> scipy.sparse.csr_matrix:
        import scipy.sparse

        pieces = [self.model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        columns = np.array([piece for text in pieces for piece in text], np.int32)
        starts = np.cumsum([0, *map(len, pieces)])
        bags = scipy.sparse.csr_matrix(
            (np.ones(len(columns), np.float32), columns, starts), (len(texts), self.dimension)
        )
        bags.sum_duplicates()
        return bags


def _kind(folder: Path) -> str | None:
    """Return which sentence-transformers class saved a checkpoint, or None if none or an old one did."""
    saved = folder / "config_sentence_transformers.json"
    return json.loads(saved.read_text(encoding="utf-8")).get("model_type") if saved.is_file() else None


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
