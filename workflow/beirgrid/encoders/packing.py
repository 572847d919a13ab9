"""No padding: the sequences of a batch one after another, each attending to itself alone.

``Packing`` stands around the forward pass of a transformers model. It takes padded inputs, lets the model compute
on their tokens alone, as one sequence with the positions of each text, and gives padded outputs. What lies above the
transformer (poolings, heads) sees no difference.

On a CPU, attention is a compiled kernel (``tiles``). On a GPU in 16 bits, it is PyTorch's own for sequences of
different lengths. In all other cases, PyTorch multiplies texts of one length together: sorted batches have few
different lengths, and attention needs no mask.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.compiled import once
from ..core.environment import prepare_libraries

if TYPE_CHECKING:
    import torch

NAME = "packed"
# How far a packed model may be from the padded one, relative to the largest number.
_TOLERANCE = 1e-4


class Layout(NamedTuple):
    """Where the tokens of a packed batch lie.

    Attributes:
        lengths: tokens of each text.
        starts: int32 [texts + 1], the sums of the lengths.
        places: int64 [tokens], where each token stands in the padded batch, row after row.
        positions: int64 [tokens], the number of each token within its text, from 0.
    """

    lengths: list[int]
    starts: torch.Tensor
    places: torch.Tensor
    positions: torch.Tensor

    @classmethod
    def of(cls, attention_mask: torch.Tensor, device: Any) -> Layout:
        """Return the layout of a padded batch on a device; computed where the mask is, so that no GPU is awaited."""
        import torch

        mask = attention_mask.bool()
        lengths = mask.sum(1)
        tensors = (
            torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
            mask.flatten().nonzero().flatten(),
            mask.cumsum(1)[mask] - 1,
        )
        return cls(lengths.tolist(), *(tensor.to(device, non_blocking=True) for tensor in tensors))


class _Thread(threading.local):
    """What a thread computes: each one has a batch of its own."""

    planned: Layout | None = None  # the layout of the batch that is computed next
    layout: Layout | None = None  # that of the packed batch that is computed now
    narrow: bool = False  # whether its last layer computes the first token of each text alone


_thread = _Thread()


@contextmanager
def planned(attention_mask: torch.Tensor | None, device: Any) -> Iterator[None]:
    """Plan the layout of the batch that this thread computes within the context, from its mask on the host."""
    _thread.planned = None if attention_mask is None else Layout.of(attention_mask, device)
    try:
        yield
    finally:
        _thread.planned = None


def firsts() -> torch.Tensor | None:
    """Return where the first tokens of this thread's texts are, int32 [texts], or None: all tokens are computed."""
    return _thread.layout.starts[:-1] if _thread.layout and _thread.narrow else None


def sample(transformer: Any) -> dict[str, torch.Tensor]:
    """Return the inputs of three short texts."""
    import torch

    device = next(transformer.parameters()).device
    mask = (torch.arange(9, device=device) < torch.tensor([9, 5, 5], device=device)[:, None]).long()
    low = transformer.config.vocab_size // 2
    ids = (low + torch.arange(27, device=device).reshape(3, 9)) % transformer.config.vocab_size
    return {"input_ids": ids, "attention_mask": mask}


class Packing:
    """Around the forward pass of the transformer under a model's heads: computes without padding where it can.

    Attributes:
        active: whether the next batches have no padding; a query's expansion has tokens that no other token attends to.
        narrow: whether the last layer computes the first token of each text alone (``last_layer``).
    """

    def __init__(self, model: Any) -> None:
        self.transformer = transformer = _innermost(model)
        self.active = True
        self.narrow = False
        if not _may_pack(transformer):
            return
        _register()
        self.offset = _first_position(transformer)
        self.plain, implementation = transformer.forward, transformer.config._attn_implementation
        transformer.forward = self._forward
        transformer.set_attn_implementation(NAME)
        if not self._equals_plain():
            transformer.forward = self.plain
            transformer.set_attn_implementation(implementation)

    @property
    def used(self) -> bool:
        """Whether the model computes without padding: its attention is the one that knows packed batches."""
        return bool(self.transformer.config._attn_implementation == NAME)

    def _equals_plain(self) -> bool:
        """Whether three short texts give the same numbers packed and padded: relative position biases do not."""
        import torch

        inputs = sample(self.transformer)
        with torch.inference_mode():
            packed, plain = self._forward(**inputs)[0], self.plain(**inputs)[0]
        kept = inputs["attention_mask"][:, :, None]
        return equal(packed * kept, plain * kept)

    def _forward(
        self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None, **inputs: Any
    ) -> Any:
        """Compute as the model does: [texts, longest] to [texts, longest, hidden], zero where padding is.

        If the last layer is narrow, only the first token of each text is not zero.
        A model in training computes with padding: packed attention has no dropout.
        """
        given = input_ids is not None and attention_mask is not None and attention_mask.ndim == 2
        packs = self.used and self.active and not self.transformer.training
        if not (packs and given and position_ids is None):
            return self.plain(
                input_ids=input_ids, attention_mask=attention_mask, **_present(position_ids=position_ids), **inputs
            )
        layout = _thread.planned or Layout.of(attention_mask, input_ids.device)
        inputs = {name: value for name, value in inputs.items() if name != "token_type_ids"} | {
            name: value.flatten()[layout.places][None]
            for name, value in _present(input_ids=input_ids, token_type_ids=inputs.get("token_type_ids")).items()
        }
        _thread.layout, _thread.narrow = layout, self.narrow and min(layout.lengths) > 0
        try:
            output = self.plain(position_ids=layout.positions[None] + self.offset, **inputs)
            places = layout.places if (first := firsts()) is None else layout.places[first]
        finally:
            _thread.layout = None
        tokens = output.last_hidden_state[0]
        hidden = tokens.new_zeros(attention_mask.numel(), tokens.shape[1]).index_copy_(0, places, tokens)
        output.last_hidden_state = hidden.view(*attention_mask.shape, -1)
        if getattr(self.transformer, "pooler", None) is not None:  # it reads the first token of each text
            output.pooler_output = self.transformer.pooler(output.last_hidden_state)
        return output


def equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether numbers of a model are the same, up to rounding."""
    return bool((found - expected).abs().max() <= _TOLERANCE * expected.abs().max())


def _present(**inputs: Any) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if value is not None}


def _innermost(model: Any) -> Any:
    """Return the transformer under all heads: that of DPR is a model under a model."""
    while (inner := getattr(model, "base_model", model)) is not model:
        model = inner
    return model


def _may_pack(transformer: Any) -> bool:
    """Whether a model takes positions and lets us choose its attention, and would attend by PyTorch's kernel.

    A model that attends otherwise needs what that kernel does not compute (Gemma 2 caps its logits).
    """
    return (
        getattr(transformer, "_supports_attention_backend", False)
        and transformer.config._attn_implementation == "sdpa"
        and not transformer.config.is_encoder_decoder
        and "position_ids" in inspect.signature(transformer.forward).parameters
    )


def _first_position(transformer: Any) -> int:
    """Return the number of a text's first position: RoBERTa and its kin count from behind the padding token's."""
    import torch

    for module in transformer.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(getattr(module, "padding_idx", None), int) and isinstance(table, torch.nn.Embedding):
            return int(module.padding_idx) + 1
    return 0


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    def mask(*arguments: Any, **options: Any) -> Any:
        return None if _thread.layout else sdpa_mask(*arguments, **options)

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, mask)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return softmax(query · key · scaling) · value, within each text: [1, tokens, heads, width].

    Args:
        module: the attention layer; ``is_causal`` is its own unless given.
        query, key, value: [1, heads, tokens, width], those of all texts one after another. Heads of keys may be fewer.
            There may be a single query of each text, its first token's, if neither window nor causality hides a token.
        attention_mask: that of a padded batch; packed ones have none.
        scaling: 1 / √width unless given.
        sliding_window: a token attends to so many tokens before it, itself included, and after it unless causal.
        is_causal: whether tokens attend to no later ones.
        options: of transformers, for padded batches.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if (layout := _thread.layout) is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal, **options
        )
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    kind, device = query.dtype, query.device.type
    if torch.is_autocast_enabled(device):  # rotations of positions may have left float32
        kind = torch.get_autocast_dtype(device)
    alike = query.shape[2:] == value.shape[2:]
    if device == "cpu" and kind != torch.float64 and alike and not query.requires_grad:
        return _by_tiles(query, key, value, kind, layout, scaling, sliding_window, causal), None
    query, key, value = query.to(kind), key.to(kind), value.to(kind)
    compute = _by_kernel if _has_kernel(query, value) else _by_length
    return compute(query, key, value, layout, scaling, sliding_window, causal), None


@once
def compiled_tiles() -> Any:
    """Return the module of the kernel for CPUs, compiled."""
    prepare_libraries()
    from . import tiles

    return tiles


def _by_tiles(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kind: torch.dtype,
    layout: Layout,
    scaling: float | None,
    window: int | None,
    causal: bool,
) -> torch.Tensor:
    """Attend by the kernel for CPUs: in bfloat16 if asked and the processor multiplies it, otherwise in float32."""
    import torch

    tiles, width = compiled_tiles(), query.shape[3]
    multiplied = kind if kind == torch.bfloat16 and tiles.HAS_PAIRS and width % 2 == 0 else torch.float32
    tokens = [part[0].transpose(0, 1).to(multiplied).contiguous() for part in (query, key, value)]
    words = (part.view(torch.uint32).numpy() for part in tokens)
    found = torch.empty(tokens[0].shape)
    scaling = width**-0.5 if scaling is None else scaling
    reach = len(found) if window is None else window - 1
    tiles.attend(*words, layout.starts.numpy(), scaling, reach, 0 if causal else reach, found.numpy())
    return found.to(kind)[None]


def _has_kernel(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether PyTorch's kernel for packed sequences takes these: 16 bits, heads up to 256 wide, Ampere or newer."""
    import torch

    fits = query.element_size() == 2 and query.shape[3] == value.shape[3] <= 256 and query.shape[3] % 8 == 0
    return query.is_cuda and fits and torch.cuda.get_device_capability(query.device) >= (8, 0)


def _by_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Layout,
    scaling: float | None,
    window: int | None,
    causal: bool,
) -> torch.Tensor:
    """Attend by PyTorch's kernel for packed sequences (FlashAttention)."""
    import torch
    from torch.nn.attention.varlen import varlen_attn

    reach = -1 if window is None else window - 1
    longest, is_single = max(layout.lengths), query.shape[2] < key.shape[2]
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    found = varlen_attn(
        query,
        key,
        value,
        torch.arange(len(layout.starts), dtype=torch.int32, device=query.device) if is_single else layout.starts,
        layout.starts,
        1 if is_single else longest,
        longest,
        scale=scaling,
        window_size=(reach, 0 if causal else reach),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(found, type(query))
    return found[None]


def _by_length(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Layout,
    scaling: float | None,
    window: int | None,
    causal: bool,
) -> torch.Tensor:
    """Attend for all neighbouring texts of one length together."""
    from torch.nn.functional import scaled_dot_product_attention

    found = query.new_empty(query.shape[2], query.shape[1], value.shape[3])
    is_single = query.shape[2] < key.shape[2]
    start = first = 0
    for length, texts in groupby(layout.lengths):
        count = len(list(texts))
        stop, last = start + count * length, first + count * (1 if is_single else length)
        queries, keys, values = (
            part[0, :, one:other].view(part.shape[1], count, -1, part.shape[3]).transpose(0, 1)
            for part, one, other in ((query, first, last), (key, start, stop), (value, start, stop))
        )
        mask = _within(window, length, causal, query.device) if window is not None and window < length else None
        output = scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            is_causal=causal and mask is None,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        found[first:last] = output.transpose(1, 2).flatten(0, 1)
        start, first = stop, last
    return found[None]


def _within(window: int, length: int, causal: bool, device: Any) -> torch.Tensor:
    """Return which tokens (columns) each token (rows) attends to in a window: bool [length, length]."""
    import torch

    places = torch.arange(length, device=device)
    apart = places[:, None] - places
    return (apart.abs() < window) & ((apart >= 0) if causal else True)
