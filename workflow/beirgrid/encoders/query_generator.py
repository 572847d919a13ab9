"""Query generators: sample queries that a document may answer (docT5query, GenQ, GPL)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config import models
from ..core.compute import Runtime
from ..core.progress import Progress
from .engine import Tokens, parts
from .guards import check_finite
from .headed import HeadedModel

if TYPE_CHECKING:
    import torch

# Maximum tokens per query (Nogueira and Lin, docTTTTTquery).
QUERY_LENGTH = 64
# Tokens that each concurrently sampled query takes from a batch's budget, for its keys and values.
TOKENS_PER_ROW = 8


class GeneratorModel(HeadedModel[models.QueryGenerator]):
    """Samples queries from a sequence-to-sequence model (AutoModelForSeq2SeqLM), typically T5.

    The entry's ``top_k`` and ``top_p`` restrict the distribution of each token. The random numbers depend only on the
    seed and the document's text. So apart from rounding, a document's queries do not depend on its batch, shard or
    position.
    """

    def __init__(self, folder: Path, entry: models.QueryGenerator, runtime: Runtime) -> None:
        from transformers import AutoModelForSeq2SeqLM

        from .decoding import TokenSampler

        super().__init__(folder, entry, runtime, AutoModelForSeq2SeqLM)
        self.keep_apart(self.model.get_output_embeddings(), self.limit)
        self.sampler = TokenSampler(self.model, top_k=entry.top_k, top_p=entry.top_p)
        self.engine.workers = 1  # each step reads all decoder weights, so more rows per step are faster
        self.rows = max(1, runtime.batch_tokens // TOKENS_PER_ROW)

    def generate(
        self, texts: list[str], *, per_text: int, seed: int, progress: Progress | None = None
    ) -> list[list[str]]:
        """Sample ``per_text`` queries of each text; a blank text gets none.

        A text's first queries do not depend on ``per_text``.
        """
        generated: list[list[str]] = []
        tokenized = (self._tokenized(part, per_text, seed) for part in parts(texts))
        most = max(1, self.rows // per_text)
        computed = self.engine.run(tokenized, self.tokenizer, self.results, self.batch_queries, progress, most)
        for part, (batches, order) in zip(parts(texts), computed, strict=True):
            of_window = [queries for batch in batches for queries in batch]
            queries, finite = zip(*(of_window[place] for place in order), strict=True)
            check_finite(np.where(finite, 0, np.nan), [f"{text[:60]!r}" for text in part], self.precision)
            generated += [of_text if text.strip() else [] for text, of_text in zip(part, queries, strict=True)]
        return generated

    def expansions(self, texts: list[str], progress: Progress) -> dict[str, list[Any]]:
        """Return the columns of the expansions of texts: the entry's number of queries for each."""
        per_text, seed = self.entry.queries_per_document, self.entry.seed
        return {"queries": self.generate(texts, per_text=per_text, seed=seed, progress=progress)}

    def _tokenized(self, texts: list[str], per_text: int, seed: int) -> Tokens:
        """Tokenize texts, and attach the random numbers of their queries."""
        tokens = self.tokenized_texts(texts, self.entry.prompts.document or "")
        tokens.rows["numbers"] = np.stack([random_numbers(seed, text, per_text) for text in texts])
        return tokens

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Sample the queries of a batch, int64 [texts, queries, tokens], and tell whether their logits are finite."""
        import torch

        numbers = inputs.pop("numbers")
        with self.autocast():
            states = self.sampler.encode(inputs)
            drawn = [
                self.sampler.sample(states, inputs["attention_mask"], part.flatten(0, 1))
                for part in numbers.split(self.rows, dim=1)
            ]
        pieces, finite = zip(*drawn, strict=True)
        shape = (len(numbers), -1, QUERY_LENGTH)
        return torch.cat([part.view(shape) for part in pieces], 1), torch.cat(
            [part.view(shape[:2]) for part in finite], 1
        )

    def batch_queries(self, results: tuple[np.ndarray, ...]) -> list[tuple[list[str], bool]]:
        """Decode the queries of each text of a batch, and tell whether all their logits were finite."""
        pieces, finite = results
        with self.reading:
            decoded = self.tokenizer.batch_decode(pieces.reshape(-1, pieces.shape[2]), skip_special_tokens=True)
        queries = parts([query.strip() for query in decoded], pieces.shape[1])
        return [(of_text, bool(row.all())) for of_text, row in zip(queries, finite, strict=True)]


def random_numbers(seed: int, text: str, queries: int) -> np.ndarray:
    """Derive random numbers in [0, 1) from seed and text only: float32 [queries, QUERY_LENGTH]."""
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))
    return generator.random((queries, QUERY_LENGTH), np.float32)
