"""Term weights: how important each word of a document is, as a term frequency (DeepCT)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..config.models import TermWeightsModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from .base import check_finite, token_batches
from .headed import HeadedModel

# A weight of 1 is a term frequency of 100 (Dai and Callan, DeepCT).
SCALE = 100


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
        found: list[dict[str, int]] = [{} for _ in texts]
        ids = self.token_ids(texts)
        for rows in token_batches([len(pieces) for pieces in ids], self.budget):
            weights = self._weights([ids[row] for row in rows], [texts[row] for row in rows])
            for row, of_pieces in zip(rows, weights, strict=True):
                found[row] = self._frequencies(ids[row], of_pieces)
            if progress:
                progress.add(len(rows))
        return found

    def _weights(self, ids: list[list[int]], texts: list[str]) -> np.ndarray:
        """Return the weight of each word piece: float32 [texts, longest]."""
        import torch

        with torch.inference_mode(), self.autocast():
            weights: np.ndarray = self.model(**self.padded(ids)).logits[..., 0].float().cpu().numpy()
        check_finite(weights, [f"{text[:60]!r}" for text in texts], self.precision)
        return weights

    def _frequencies(self, ids: list[int], weights: np.ndarray) -> dict[str, int]:
        words: list[tuple[str, float]] = []
        special = set(self.tokenizer.all_special_ids)
        for number, piece, weight in zip(ids, self.tokenizer.convert_ids_to_tokens(ids), weights, strict=False):
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
