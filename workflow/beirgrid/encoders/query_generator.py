"""Query generators: sample queries that a document may answer (docT5query, GenQ, GPL).

A row is one query of one document. Rows of a document share its encoder states and their cross-attention keys and
values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from transformers import AttentionInterface, AutoModelForSeq2SeqLM
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from ..config import models
from ..config.models import QUERY_LENGTH as QUERY_LENGTH  # the bench sets another
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from .base import HeadedModel
from .engine import Tokens
from .guards import check_finite
from .protocol import digest_of, parts

# Tokens that each concurrently sampled query takes from a batch's budget, for its keys and values.
TOKENS_PER_ROW = 8
# Steps between checks for finished rows (each check waits for the GPU).
LOOK = 4
# Share of finished rows at which the others are compacted.
ENDED = 0.125
# Our attention in the registries of transformers.
ATTENTION = "rows_of_documents"


class GeneratorModel(HeadedModel[models.QueryGenerator]):
    """Samples queries from a sequence-to-sequence model (AutoModelForSeq2SeqLM), typically T5.

    The entry's ``top_k`` and ``top_p`` restrict the distribution of each token. The random numbers depend only on the
    seed and the document's text. So apart from rounding, a document's queries do not depend on its batch, shard or
    position. Of the model's generation config, only the start, end and padding tokens count (no beams, no penalties).
    """

    def __init__(self, folder: Path, entry: models.QueryGenerator, runtime: Runtime) -> None:
        """Open a checkpoint.

        Raises:
            DataError: the folder does not hold a T5, mT5 or BART with a tokenizer, or the model does not define its
                start and end tokens.
        """
        super().__init__(folder, entry, runtime, AutoModelForSeq2SeqLM)
        self.keep_apart(self.model.get_output_embeddings())
        own = self.model.generation_config
        self.start = own.bos_token_id if own.decoder_start_token_id is None else own.decoder_start_token_id
        self.ends = own.eos_token_id if isinstance(own.eos_token_id, list) else [own.eos_token_id]
        if self.start is None or None in self.ends:
            raise DataError("the checkpoint does not define the decoder's start and end tokens")
        self.padding = self.ends[0] if own.pad_token_id is None else own.pad_token_id
        if self.model.config._attn_implementation != "sdpa" or not self.model._can_set_attn_implementation():
            raise DataError(f"a {type(self.model).__name__} cannot generate queries here: a T5, mT5 or BART can")
        AttentionInterface.register(ATTENTION, attend)
        AttentionMaskInterface.register(ATTENTION, sdpa_mask)
        self.model.set_attn_implementation(ATTENTION)
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
        per_text = self.entry.queries_per_document
        return {"queries": self.generate(texts, per_text=per_text, seed=self.entry.seed, progress=progress)}

    def _tokenized(self, texts: list[str], per_text: int, seed: int) -> Tokens:
        """Tokenize texts, and attach the random numbers of their queries."""
        tokens = self.tokenized_texts(texts, self.entry.prompts.document or "")
        tokens.rows["numbers"] = np.stack([random_numbers(seed, text, per_text) for text in texts])
        return tokens

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Sample the queries of a batch, int64 [texts, queries, tokens], and tell whether their logits are finite."""
        numbers = inputs.pop("numbers")
        with self.autocast():
            states = self.model.get_encoder()(**inputs).last_hidden_state
            mask = inputs["attention_mask"]
            drawn = [self.sample(states, mask, part.flatten(0, 1)) for part in numbers.split(self.rows, dim=1)]
        tokens, finite = zip(*drawn, strict=True)
        queries = torch.cat([part.view(len(numbers), -1, QUERY_LENGTH) for part in tokens], 1)
        return queries, torch.cat([part.view(len(numbers), -1) for part in finite], 1)

    def sample(
        self, states: torch.Tensor, mask: torch.Tensor, numbers: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample rows of tokens for documents; the rows of a document are consecutive.

        Args:
            states: encoded documents, [documents, tokens, width].
            mask: int64 [documents, tokens], 0 where a token is padding.
            numbers: float32 [rows, steps] in [0, 1), the random numbers of each row.

        Returns:
            tokens, int64 [rows, steps], padded after a row's end; whether all logits of a row were finite, bool [rows].
        """
        count, steps = numbers.shape
        pieces = torch.full((count, steps), self.padding, device=states.device)
        finite, ended = torch.tensor([[True], [False]], device=states.device).repeat(1, count)
        ends = torch.tensor(self.ends, device=states.device)
        copies = count // len(states)
        on = _Rows(states, mask, self.start)
        for step in range(steps):
            logits = on.advance(self.model)
            logits, likeliest = logits.topk(min(self.entry.top_k, logits.shape[1]))
            if step == 0:  # all rows of a document are still equal
                logits, likeliest = (each.repeat_interleave(copies, dim=0) for each in (logits, likeliest))
                on.copy(copies)
            drawn = draw(logits, likeliest, numbers[on.rows, step], self.entry.top_p).where(~ended, self.padding)
            pieces[on.rows, step] = drawn
            finite[on.rows] &= logits.isfinite().all(dim=-1) | ended
            on.last = drawn[:, None]
            ended = ended | torch.isin(drawn, ends)
            if step % LOOK == LOOK - 1 and (gone := int(ended.sum())) >= ENDED * len(ended):
                if gone == len(ended):
                    break
                kept = (~ended).nonzero()[:, 0]
                on.keep(kept)
                ended = ended[kept]
        return pieces, finite

    def batch_queries(self, results: tuple[np.ndarray, ...]) -> list[tuple[list[str], bool]]:
        """Decode the queries of each text of a batch, and tell whether all their logits were finite."""
        pieces, finite = results
        with self.reading:
            decoded = self.tokenizer.batch_decode(pieces.reshape(-1, pieces.shape[2]), skip_special_tokens=True)
        queries = parts([query.strip() for query in decoded], pieces.shape[1])
        return [(of_text, bool(row.all())) for of_text, row in zip(queries, finite, strict=True)]


class _Rows:
    """Decoder state of the unfinished rows. There is one row per document until ``copy``, because all copies begin
    alike.
    """

    def __init__(self, states: torch.Tensor, mask: torch.Tensor, start: int) -> None:
        """Start from encoder states [documents, tokens, width] and their mask, int64 [documents, tokens]."""
        self.rows = self.places = torch.arange(len(states), device=states.device)  # in the caller's numbering
        self.copies = 1
        self.states = states
        self.mask = mask[:, None, None, :].bool()
        self.last = torch.full((len(states), 1), start, device=states.device)
        self.cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

    def copy(self, copies: int) -> None:
        """Replace each row by several copies."""
        source = cast(torch.LongTensor, self.rows.repeat_interleave(copies))
        self.cache.self_attention_cache.reorder_cache(source)
        self.copies = copies
        self.rows = self.places = torch.arange(len(source), device=source.device)

    def advance(self, model: Any) -> torch.Tensor:
        """Decode each row's last token; return the logits of the next, float32 [rows, vocabulary]."""
        places = {"places": Places(self.places, self.copies)} if self.copies > 1 else {}
        logits: torch.Tensor = model(
            encoder_outputs=(self.states,),
            attention_mask=self.mask,
            decoder_input_ids=self.last,
            past_key_values=self.cache,
            use_cache=True,
            **places,
        ).logits
        return logits[:, -1].float()

    def keep(self, kept: torch.Tensor) -> None:
        """Keep only the rows ``kept``, int64, and drop documents without rows."""
        documents, of_document, counts = torch.unique_consecutive(
            self.places[kept] // self.copies, return_inverse=True, return_counts=True
        )
        rank = torch.arange(len(kept), device=kept.device) - (counts.cumsum(0) - counts)[of_document]
        self.copies = int(counts.max())
        self.places = of_document * self.copies + rank
        self.rows = self.rows[kept]
        self.last = self.last[kept]
        self.states = self.states[documents]
        self.mask = self.mask[documents]
        self.cache.self_attention_cache.reorder_cache(cast(torch.LongTensor, kept))
        self.cache.cross_attention_cache.reorder_cache(cast(torch.LongTensor, documents))


class Places(NamedTuple):
    """Positions of rows in a grid of documents × copies: ``cells`` int64 [rows], ascending."""

    cells: torch.Tensor
    copies: int


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    places: Places | None = None,
    **options: Any,
) -> Any:  # as transformers' function: a tensor and None
    """Attend as transformers does, with all rows of a document as queries of one product with its keys.

    Args:
        query: [rows, heads, 1, width]; anything that PyTorch takes if there are as many documents as rows
        key, value: [documents, heads, tokens, width]
        attention_mask: bool [documents, 1, 1, tokens]
        places: where the rows stand.
    """
    rows, heads, _, width = query.shape
    documents = key.shape[0]
    if places is None or rows == documents:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    spread = query[:, :, 0]
    if ragged := rows != documents * places.copies:
        spread = query.new_zeros(documents * places.copies, heads, width).index_copy_(0, places.cells, spread)
    spread = spread.reshape(documents, places.copies, heads, width).transpose(1, 2)
    result = sdpa_attention_forward(module, spread, key, value, attention_mask, **options)[0].flatten(0, 1)
    return (result[places.cells] if ragged else result).unsqueeze(1), None


def random_numbers(seed: int, text: str, queries: int) -> np.ndarray:
    """Derive random numbers in [0, 1) from seed and text only: float32 [queries, QUERY_LENGTH]."""
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest_of(seed, text)[:16], "big")))
    return generator.random((queries, QUERY_LENGTH), np.float32)


def draw(logits: torch.Tensor, pieces: torch.Tensor, numbers: torch.Tensor, top_p: float) -> torch.Tensor:
    """Draw a token per row from the nucleus of the most likely ones, with transformers' distribution.

    transformers draws its random numbers per batch, so a row would depend on the rest of its batch.

    Args:
        logits: float32 [rows, top_k], descending.
        pieces: int64 [rows, top_k], their tokens.
        numbers: float32 [rows] in [0, 1): positions in the cumulative distribution, most likely token first.
        top_p: probability mass of the nucleus.

    Returns:
        int64 [rows].
    """
    chances = logits.softmax(dim=-1)
    reached = chances.cumsum(dim=-1)
    # The nucleus: tokens whose preceding cumulative probability is below top_p. The number is scaled to its mass.
    mass = (chances * (reached - chances < top_p)).sum(dim=-1, keepdim=True)
    place = (reached <= numbers[:, None] * mass).sum(dim=-1, keepdim=True)
    return pieces.gather(-1, place.clamp(max=pieces.shape[-1] - 1))[:, 0]
