"""Equal texts of a shard are encoded once and have equal vectors."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from checkpoints import encode_texts

from beirgrid.encoders.protocol import DenseVectors, Encoder, SparseRows, TokenRows
from beirgrid.search.maxsim import TokenVectors
from beirgrid.stages.encode import work as encode

DIMENSION = 4
# Blocks of three texts: repeated within a block, in the next one, in one of old texts only, and twice at the end.
TEXTS = ["a", "b", "a", "b", "c", "a", "a", "a", "c", "d", "e", "d", "e"]
FAMILIES: dict[str, tuple[type[Encoder[Any]], str]] = {
    "dense": (DenseVectors, "0.npy"),
    "sparse": (SparseRows, "0.npz"),
    "late-interaction": (TokenRows, "0.tokens"),
}


def noisy(kind: type[Encoder[Any]], read: list[str]) -> Encoder[Any]:
    """Return an encoder whose vectors tell the number of the text among all that it read, as rounding might."""

    class Noisy(kind):  # type: ignore[misc, valid-type]
        precision = "float32"
        dimension = DIMENSION
        numbers = count(1)

        def facts(self) -> dict[str, str]:
            return {}

        def encoded(self, texts: list[str], role: str) -> Any:
            read.extend(texts)
            rows = [[ord(text), next(self.numbers), 1, 2] for text in texts]
            vectors = np.array(rows, np.float32)
            if kind is TokenRows:  # a token, or two of "c"
                counts = np.array([1 + (text == "c") for text in texts])
                return TokenVectors(np.repeat(vectors, counts, axis=0), counts)
            return scipy.sparse.csr_matrix(vectors) if kind is SparseRows else vectors

    encoder: Encoder[Any] = Noisy()
    return encoder


def stored(path: Path, number: int) -> list[list[float]]:
    """Return the vector of each text, of late interaction that of its first token."""
    if path.suffix == ".npz":
        return scipy.sparse.load_npz(path).toarray().tolist()
    if path.suffix == ".npy":
        return np.load(path).tolist()
    offsets = np.load(path / "offsets.npy")
    assert np.diff(offsets).tolist() == [1 + (text == "c") for text in TEXTS[:number]]
    return np.load(path / "vectors.npy")[offsets[:-1]].tolist()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("number", [len(TEXTS), 2], ids=["repeated", "distinct"])
def test_equal_texts_have_equal_vectors(tmp_path, monkeypatch, family, number):
    kind, name = FAMILIES[family]
    read: list[str] = []
    monkeypatch.setattr(encode, "WINDOW", 3)
    monkeypatch.setattr(encode, "open_encoder", lambda *_: noisy(kind, read))
    entry = {"family": family} | ({"similarity": "dot"} if family == "dense" else {})
    assert encode_texts(tmp_path / name, tmp_path, TEXTS[:number], entry) == 0
    vectors = stored(tmp_path / name, number)
    assert [chr(round(vector[0])) for vector in vectors] == TEXTS[:number]
    assert len({tuple(vector) for vector in vectors}) == len({*TEXTS[:number]})
    # A block without new texts reads its first one again, and drops the vector.
    assert Counter(read) == Counter({*TEXTS[:number]}) + Counter("ae" if number > 2 else "")
