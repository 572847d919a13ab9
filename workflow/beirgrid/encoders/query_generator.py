"""Query generators: sampled queries that a document may answer (docT5query, GenQ, GPL)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..config import models
from ..core.compute import Runtime, multiplies_bfloat16
from ..core.progress import Progress
from .base import check_finite
from .engine import Tokens, windows
from .headed import HeadedModel

if TYPE_CHECKING:
    import torch

# Word pieces of a query at most (Nogueira and Lin, docTTTTTquery).
QUERY_LENGTH = 64
# Tokens of a batch's budget per query that is sampled at once: its keys and values take so much memory.
TOKENS_PER_ROW = 8


class Queries(NamedTuple):
    """The queries of a text, and whether all logits that they were drawn from are finite."""

    texts: list[str]
    finite: bool


class GeneratorModel(HeadedModel[models.QueryGenerator]):
    """Queries sampled from a sequence-to-sequence model (AutoModelForSeq2SeqLM), T5 above all.

    The entry's ``top_k`` and ``top_p`` cut the distribution that each word piece is drawn from.
    The random numbers come from the seed and the document's text alone, so its queries do not depend on
    its batch, shard or position, but for what rounding does to the logits in batches of other shapes.
    """

    def __init__(self, folder: Path, entry: models.QueryGenerator, runtime: Runtime) -> None:
        from transformers import AutoModelForSeq2SeqLM

        from .decoding import TokenSampler

        super().__init__(entry, runtime)
        self.open(AutoModelForSeq2SeqLM, folder)
        self.keep_apart(self.model.get_output_embeddings())
        # bfloat16 may choose what float32 computes, where the hardware multiplies it.
        fast = runtime.kernels == "auto"
        shortlist = fast and multiplies_bfloat16(runtime.device)
        self.sampler = TokenSampler(self.model, top_k=entry.top_k, top_p=entry.top_p, shortlist=shortlist, fast=fast)
        self.engine.workers = 1  # a step reads all weights of the decoder: the more rows share it, the better
        self.rows = max(1, runtime.batch_tokens // TOKENS_PER_ROW)

    def generate(
        self, texts: list[str], *, per_text: int, seed: int, progress: Progress | None = None
    ) -> list[list[str]]:
        """Return ``per_text`` sampled queries of each text; a blank text has none.

        The first queries of a text are the same whatever ``per_text`` is.
        """
        found: list[list[str]] = [[] for _ in texts]
        written = [row for row, text in enumerate(texts) if text.strip()]
        if progress:
            progress.add(len(texts) - len(written))
        tokenized = (self._tokenized([texts[row] for row in rows], per_text, seed) for rows in windows(written))
        most = max(1, self.rows // per_text)
        computed = self.engine.run(tokenized, self.tokenizer, self.results, self.kept, progress, most)
        for window, batches in zip(windows(written), computed, strict=True):
            for batch in batches:
                rows = [window[place] for place in batch.rows]
                finite = np.where([queries.finite for queries in batch.found], 0, np.nan)
                check_finite(finite, [f"{texts[row][:60]!r}" for row in rows], self.precision)
                for row, queries in zip(rows, batch.found, strict=True):
                    found[row] = queries.texts
        return found

    def _tokenized(self, texts: list[str], per_text: int, seed: int) -> Tokens:
        """Return what the model reads of texts, and the numbers that their queries are drawn with."""
        tokens = self.tokenized(texts, self.entry.prompts.document or "")
        tokens.rows["numbers"] = np.stack([random_numbers(seed, text, per_text) for text in texts])
        return tokens

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the queries of a batch, int64 [texts, queries, pieces], and whether their logits are finite."""
        import torch

        numbers = inputs.pop("numbers")
        with self.autocast():
            states = self.sampler.encode(inputs)
            drawn = [
                self.sampler.sample(states, inputs["attention_mask"], part.flatten(0, 1))
                for part in numbers.split(self.rows, dim=1)
            ]
        pieces = torch.cat([part.pieces.view(len(numbers), -1, QUERY_LENGTH) for part in drawn], 1)
        finite = torch.cat([part.finite.view(len(numbers), -1) for part in drawn], 1)
        return pieces, finite

    def kept(self, results: tuple[np.ndarray, ...]) -> list[Queries]:
        """Return the queries of each text of a batch."""
        pieces, finite = results
        with self.reading:
            found = self.tokenizer.batch_decode(pieces.reshape(-1, pieces.shape[2]), skip_special_tokens=True)
        written = [query.strip() for query in found]
        count = pieces.shape[1]
        return [
            Queries(written[text * count : (text + 1) * count], bool(finite[text].all())) for text in range(len(pieces))
        ]


def random_numbers(seed: int, text: str, queries: int) -> np.ndarray:
    """Return float32 [queries, QUERY_LENGTH] in [0, 1) that follow from seed and text alone."""
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))
    return generator.random((queries, QUERY_LENGTH), np.float32)
