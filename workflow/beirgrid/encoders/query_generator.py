"""Query generators: sampled queries that a document may answer (docT5query, GenQ, GPL)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..config import models
from ..core.compute import Runtime
from ..core.progress import Progress
from .base import check_finite, token_batches
from .headed import HeadedModel

if TYPE_CHECKING:
    import torch

# Word pieces of a query at most (Nogueira and Lin, docTTTTTquery).
QUERY_LENGTH = 64
# Queries of a text that are sampled at once: GPL asks for thousands of each document of a very small corpus.
AT_ONCE = 40


class QueryGenerator(HeadedModel[models.QueryGenerator]):
    """Queries sampled from a sequence-to-sequence model (AutoModelForSeq2SeqLM), T5 above all.

    The entry's ``top_k`` and ``top_p`` cut the distribution that each word piece is drawn from.
    The random numbers come from the seed and the document's text alone, so its queries do not depend on
    its batch, shard or position, but for what rounding does to the logits in batches of other shapes.
    """

    def __init__(self, folder: Path, entry: models.QueryGenerator, runtime: Runtime) -> None:
        from transformers import AutoModelForSeq2SeqLM, GenerationConfig

        super().__init__(entry, runtime)
        if self.precision == "float16" and self.automatic:
            self.precision = "float32"  # T5 overflows in float16
        self.open(AutoModelForSeq2SeqLM, folder)
        self.keep_apart(self.model.get_output_embeddings())
        # The checkpoint's own settings for generation (beams, penalties) would change the sampling.
        own = self.model.generation_config
        names = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        self.model.generation_config = GenerationConfig.from_dict({name: getattr(own, name, None) for name in names})

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
        prompt = self.entry.prompts.document or ""
        ids = self.token_ids([texts[row] for row in written], prompt)
        for batch in token_batches([len(pieces) * min(per_text, AT_ONCE) for pieces in ids], self.budget):
            rows = [written[i] for i in batch]
            for start in range(0, per_text, AT_ONCE):
                places = range(start, min(start + AT_ONCE, per_text))
                queries = self._sample([ids[i] for i in batch], [texts[row] for row in rows], places, seed)
                for row, first in zip(rows, range(0, len(queries), len(places)), strict=True):
                    found[row] += queries[first : first + len(places)]
            if progress:
                progress.add(len(rows))
        return found

    def _sample(self, ids: list[list[int]], texts: list[str], places: range, seed: int) -> list[str]:
        """Return the queries at some places of each text's queries, one text of the batch after the other."""
        import torch

        numbers = np.concatenate([random_numbers(seed, text, places.stop)[places.start :] for text in texts])
        draw = Draw(
            torch.from_numpy(numbers).to(self.runtime.device),
            [f"{text[:60]!r}" for text in texts for _ in places],
            self.entry.top_k,
            self.entry.top_p,
            self.precision,
        )
        with torch.inference_mode(), self.autocast():
            pieces = self.model.generate(
                **self.padded(ids),
                do_sample=True,
                top_k=0,
                num_return_sequences=len(places),
                max_new_tokens=QUERY_LENGTH,
                logits_processor=[draw],
            )
        return [query.strip() for query in self.tokenizer.batch_decode(pieces, skip_special_tokens=True)]


class Draw:
    """A logits processor of transformers that draws each row's next word piece and rules out all others.

    transformers' own sampling takes its random numbers for a whole batch, so that a text's queries would
    depend on what else is in it. ``numbers``: float32 [rows, steps] in [0, 1), what each row draws with.
    """

    def __init__(self, numbers: torch.Tensor, names: list[str], top_k: int, top_p: float, precision: str) -> None:
        self.numbers, self.names, self.top_k, self.top_p, self.precision = numbers, names, top_k, top_p, precision
        self.step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return ``scores``, float32 [rows, vocabulary], with -inf for all but the piece that is drawn."""
        import torch

        best, pieces = scores.float().topk(min(self.top_k, scores.shape[-1]), dim=-1)
        check_finite(best.cpu().numpy(), self.names, self.precision)
        chances = best.softmax(dim=-1)
        reached = chances.cumsum(dim=-1)
        # The nucleus: pieces before which less than top_p is reached. The number is scaled to its mass.
        mass = (chances * (reached - chances < self.top_p)).sum(dim=-1, keepdim=True)
        place = (reached <= self.numbers[:, self.step, None] * mass).sum(dim=-1, keepdim=True)
        self.step += 1
        drawn = pieces.gather(-1, place.clamp(max=pieces.shape[-1] - 1))
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0.0)


def random_numbers(seed: int, text: str, queries: int) -> np.ndarray:
    """Return float32 [queries, QUERY_LENGTH] in [0, 1) that follow from seed and text alone."""
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))
    return generator.random((queries, QUERY_LENGTH), np.float32)
