"""Term weights: how important each word of a document is, as a term frequency (DeepCT)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..config.models import TermWeightsModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from .base import check_finite
from .engine import order, windows
from .headed import HeadedModel

if TYPE_CHECKING:
    import torch

# A weight of 1 is a term frequency of 100 (Dai and Callan, DeepCT).
SCALE = 100


class PieceWeights(NamedTuple):
    """The word pieces of a text, int64 [pieces], and their weights, float32 [pieces]."""

    ids: np.ndarray
    weights: np.ndarray


class TermWeighter(HeadedModel[TermWeightsModel]):
    """A term frequency per word of a text, from a model that gives each word piece one number.

    A word weighs what its first piece does. Options of the entry: ``smoothing`` (``sqrt``: of the weight,
    before it is scaled) and ``keep_terms`` (words whose frequency rounds to 0 stay, with 1).
    """

    def __init__(self, folder: Path, entry: TermWeightsModel, runtime: Runtime) -> None:
        from transformers import AutoModelForTokenClassification

        super().__init__(entry, runtime)
        self.open(AutoModelForTokenClassification, folder)
        if self.model.num_labels != 1:
            raise DataError(f"{folder} has {self.model.num_labels} labels; term weights are one number per word piece")
        self.keep_apart(self.model.classifier)

    def weigh(self, texts: list[str], *, progress: Progress | None = None) -> list[dict[str, int]]:
        """Return word to term frequency of each text, in the order of the text; a repeated word counts its highest."""
        pieces = self.piece_weights(texts, progress=progress)
        check_finite([text.weights.sum() for text in pieces], [f"{text[:60]!r}" for text in texts], self.precision)
        return [self._frequencies(*text) for text in pieces]

    def piece_weights(self, texts: list[str], *, progress: Progress | None = None) -> list[PieceWeights]:
        """Return the weight of each word piece that the model reads of each text."""
        tokenized = map(self.tokenized, windows(texts))
        forward = partial(self.compute, self.results)
        found: list[PieceWeights] = []
        for batches in self.engine.run(tokenized, self.tokenizer, forward, self.kept, progress):
            of_window = [text for batch in batches for text in batch.found]
            found += [of_window[place] for place in order(batches)]
        return found

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return a weight for each token, float32 [texts, longest], the tokens, and which of them are no padding."""
        weights = self.model(**inputs).logits[..., 0].float()
        return weights, inputs["input_ids"], inputs["attention_mask"]

    def kept(self, results: tuple[np.ndarray, ...]) -> list[PieceWeights]:
        """Return the word pieces of each text of a batch, without padding."""
        return [PieceWeights(ids[mask > 0], weights[mask > 0]) for weights, ids, mask in zip(*results, strict=True)]

    def _frequencies(self, ids: np.ndarray, weights: np.ndarray) -> dict[str, int]:
        words: list[tuple[str, float]] = []
        special = set(self.tokenizer.all_special_ids)
        pieces = self.tokenizer.convert_ids_to_tokens(ids.tolist())
        for number, piece, weight in zip(ids.tolist(), pieces, weights, strict=True):
            if number in special:
                continue
            if piece.startswith("##") and words:
                words[-1] = (words[-1][0] + piece[2:], words[-1][1])
            else:
                words.append((piece, max(float(weight), 0.0)))
        found: dict[str, int] = {}
        for word, weight in words:
            smooth = weight**0.5 if self.entry.smoothing == "sqrt" else weight
            frequency = max(round(SCALE * smooth), int(self.entry.keep_terms))
            if frequency:
                found[word] = max(frequency, found.get(word, 0))
        return found
