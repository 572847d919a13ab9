"""Batched sampling from the decoder of a sequence-to-sequence model.

A row is one query of one document. Rows of a document share its encoder states and their cross-attention keys and
values. This module imports torch and transformers, so import it only where a model is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from transformers import AttentionInterface
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from ..core.errors import DataError

NAME = "rows_of_documents"
# Steps between checks for finished rows (each check waits for the GPU), and the share of finished rows at which the
# others are compacted.
LOOK, ENDED = 4, 0.125


class Places(NamedTuple):
    """Positions of rows in a grid of documents × copies: ``cells`` int64 [rows], ascending."""

    cells: torch.Tensor
    copies: int


def share_documents(model: Any) -> None:
    """Make rows of a document attend to one shared copy of its states.

    Raises:
        DataError: the attention of the architecture cannot be replaced (LongT5, LED).
    """
    if model.config._attn_implementation != "sdpa" or not model._can_set_attn_implementation():
        raise DataError(f"a {type(model).__name__} cannot generate queries here: a T5, mT5 or BART can")
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    places: Places | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
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


class _Rows:
    """Decoder state of the unfinished rows. There is one row per document until ``copy``, because all copies begin
    alike.
    """

    def __init__(self, states: torch.Tensor, mask: torch.Tensor, start: int) -> None:
        """Start from encoder states [documents, tokens, width] and their mask, int64 [documents, tokens]."""
        self.rows = self.places = torch.arange(len(states), device=states.device)  # in the caller's numbering
        self.copies, self.states, self.mask = 1, states, mask[:, None, None, :].bool()
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
        self.rows, self.last = self.rows[kept], self.last[kept]
        self.states, self.mask = self.states[documents], self.mask[documents]
        self.cache.self_attention_cache.reorder_cache(cast(torch.LongTensor, kept))
        self.cache.cross_attention_cache.reorder_cache(cast(torch.LongTensor, documents))


class TokenSampler:
    """Samples tokens from a sequence-to-sequence model. It uses the start, end and padding tokens of the model's
    generation config, and ignores the rest (beams, penalties).
    """

    def __init__(self, model: Any, *, top_k: int, top_p: float) -> None:
        """Take over a model of transformers.

        Args:
            model: the model, whose logits are float32.
            top_k: number of most likely tokens to sample from.
            top_p: probability mass of the nucleus to sample from.

        Raises:
            DataError: the model does not define its start and end tokens, or is of another architecture.
        """
        self.model, self.top_k, self.top_p = model, top_k, top_p
        own = model.generation_config
        self.start = own.bos_token_id if own.decoder_start_token_id is None else own.decoder_start_token_id
        self.ends = own.eos_token_id if isinstance(own.eos_token_id, list) else [own.eos_token_id]
        if self.start is None or None in self.ends:
            raise DataError("the checkpoint does not define the decoder's start and end tokens")
        self.padding = self.ends[0] if own.pad_token_id is None else own.pad_token_id
        share_documents(model)

    def encode(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Encode tokenised documents: [documents, tokens, width]."""
        states: torch.Tensor = self.model.get_encoder()(**inputs).last_hidden_state
        return states

    def sample(
        self, states: torch.Tensor, mask: torch.Tensor, numbers: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample rows of tokens for documents; the rows of a document are consecutive.

        Args:
            states: output of ``encode``.
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
            logits, likeliest = logits.topk(min(self.top_k, logits.shape[1]))
            if step == 0:  # all rows of a document are still equal
                logits, likeliest = (each.repeat_interleave(copies, dim=0) for each in (logits, likeliest))
                on.copy(copies)
            drawn = draw(logits, likeliest, numbers[on.rows, step], self.top_p).where(~ended, self.padding)
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
