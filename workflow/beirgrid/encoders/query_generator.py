"""Query generators: sampled queries that a document may answer (docT5query, GenQ, GPL)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..config import models
from ..core.compute import Runtime
from ..core.progress import Progress
from .base import check_finite, token_batches
from .headed import HeadedModel

# Word pieces of a query at most (Nogueira and Lin, docTTTTTquery).
QUERY_LENGTH = 64
# Tokens of a batch's budget per query that is sampled at once: its keys and values take so much memory.
TOKENS_PER_ROW = 8


class QueryGenerator(HeadedModel[models.QueryGenerator]):
    """Queries sampled from a sequence-to-sequence model (AutoModelForSeq2SeqLM), T5 above all.

    The entry's ``top_k`` and ``top_p`` cut the distribution that each word piece is drawn from.
    The random numbers come from the seed and the document's text alone, so its queries do not depend on
    its batch, shard or position, but for what rounding does to the logits in batches of other shapes.
    """

    def __init__(self, folder: Path, entry: models.QueryGenerator, runtime: Runtime) -> None:
        from transformers import AutoModelForSeq2SeqLM

        from .decoding import Sampler

        super().__init__(entry, runtime)
        if self.precision == "float16" and self.automatic:
            self.precision = "float32"  # T5 overflows in float16
        self.open(AutoModelForSeq2SeqLM, folder)
        self.keep_apart(self.model.get_output_embeddings())
        # bfloat16 may choose what float32 computes, where the hardware multiplies it.
        shortlist = runtime.resolve("auto") == "bfloat16"
        self.sampler = Sampler(self.model, top_k=entry.top_k, top_p=entry.top_p, shortlist=shortlist)
        self.rows = max(1, self.budget // TOKENS_PER_ROW)

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
        ids = self.token_ids([texts[row] for row in written], self.entry.prompts.document or "")
        for batch in self._batches([len(pieces) for pieces in ids], per_text):
            rows = [written[i] for i in batch]
            queries = self._sample([ids[i] for i in batch], [texts[row] for row in rows], per_text, seed)
            for row, of_text in zip(rows, queries, strict=True):
                found[row] = of_text
            if progress:
                progress.add(len(rows))
        return found

    def _batches(self, lengths: list[int], per_text: int) -> Iterator[np.ndarray]:
        """Yield indices of texts that are read, and whose queries are sampled, at once."""
        most = max(1, self.rows // per_text)
        for batch in token_batches(lengths, self.budget):
            yield from (batch[start : start + most] for start in range(0, len(batch), most))

    def _sample(self, ids: list[list[int]], texts: list[str], per_text: int, seed: int) -> list[list[str]]:
        """Return the queries of each text of a batch."""
        import torch

        found: list[list[str]] = [[] for _ in texts]
        with torch.inference_mode(), self.autocast():
            inputs = self.padded(ids)
            states = self.sampler.encode(inputs)
            for start in range(0, per_text, self.rows):
                places = slice(start, min(start + self.rows, per_text))
                numbers = np.concatenate([random_numbers(seed, text, places.stop)[places] for text in texts])
                on_device = torch.from_numpy(numbers).to(self.runtime.device)
                drawn = self.sampler.sample(states, inputs["attention_mask"], on_device)
                pieces, finite = drawn.pieces.cpu(), drawn.finite.cpu().numpy()
                names = [f"{text[:60]!r}" for text in texts for _ in range(places.stop - places.start)]
                check_finite(np.where(finite, 0, np.nan), names, self.precision)
                queries = self.tokenizer.batch_decode(pieces, skip_special_tokens=True)
                for row, query in enumerate(queries):
                    found[row * len(texts) // len(queries)].append(query.strip())
        return found


def random_numbers(seed: int, text: str, queries: int) -> np.ndarray:
    """Return float32 [queries, QUERY_LENGTH] in [0, 1) that follow from seed and text alone."""
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))
    return generator.random((queries, QUERY_LENGTH), np.float32)
