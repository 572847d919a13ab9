"""Term weighting (DeepCT): the importance of each word of a document, as a term frequency."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForTokenClassification

from ..config.models import TermWeightsModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from .base import HeadedModel
from .guards import check_finite
from .protocol import parts

# A weight of 1 is a term frequency of 100 (Dai and Callan, DeepCT).
SCALE = 100


class PieceWeights(NamedTuple):
    """The token ids of a text, int64 [tokens], and their weights, float32 [tokens]."""

    ids: np.ndarray
    weights: np.ndarray


class TermWeighter(HeadedModel[TermWeightsModel]):
    """Predicts a term frequency per word from a model with one number per subword token.

    A word has the weight of its first token. Options of the entry: ``smoothing`` (``sqrt``: square root of the weight
    before scaling) and ``keep_terms`` (words whose frequency rounds to 0 are kept with 1).
    """

    def __init__(self, folder: Path, entry: TermWeightsModel, runtime: Runtime) -> None:
        super().__init__(folder, entry, runtime, AutoModelForTokenClassification)
        if self.model.num_labels != 1:
            raise DataError(f"{folder} has {self.model.num_labels} labels; term weighting needs one number per token")
        self.keep_apart(self.model.classifier)

    def weigh(self, texts: list[str], *, progress: Progress | None = None) -> list[dict[str, int]]:
        """Return the term frequency of each word of each text, in text order. A repeated word has its highest
        frequency.
        """
        pieces = self.piece_weights(texts, progress=progress)
        check_finite([text.weights.sum() for text in pieces], [f"{text[:60]!r}" for text in texts], self.precision)
        return [self._frequencies(*text) for text in pieces]

    def expansions(self, texts: list[str], progress: Progress) -> dict[str, list[Any]]:
        """Return the columns of the expansions of texts: words and their frequencies."""
        weighed = self.weigh(texts, progress=progress)
        return {"terms": [[*terms] for terms in weighed], "frequencies": [[*terms.values()] for terms in weighed]}

    def piece_weights(self, texts: list[str], *, progress: Progress | None = None) -> list[PieceWeights]:
        """Return the weight of each token that the model reads of each text."""
        tokenized = map(self.tokenized_texts, parts(texts))
        forward = partial(self.compute, self.results)
        weights: list[PieceWeights] = []
        for batches, order in self.engine.run(tokenized, self.tokenizer, forward, self.batch_weights, progress):
            of_window = [text for batch in batches for text in batch]
            weights += [of_window[place] for place in order]
        return weights

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return a weight per token, float32 [texts, longest], with the tokens and the attention mask."""
        weights = self.model(**inputs).logits[..., 0].float()
        return weights, inputs["input_ids"], inputs["attention_mask"]

    def batch_weights(self, results: tuple[np.ndarray, ...]) -> list[PieceWeights]:
        """Split a batch into the weights of each text, without padding."""
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
        frequencies: dict[str, int] = {}
        for word, weight in words:
            smooth = weight**0.5 if self.entry.smoothing == "sqrt" else weight
            frequency = max(round(SCALE * smooth), int(self.entry.keep_terms))
            if frequency:
                frequencies[word] = max(frequency, frequencies.get(word, 0))
        return frequencies
