"""Sizes of corpora, datasets and models: from the registry, from files, or assumed."""

from __future__ import annotations

import contextlib
import json
import math
from functools import cache, cached_property
from pathlib import Path

from ..config.entries import Config, LocalCorpus, ModelEntry
from ..config.places import find_local, resolve_path
from ..core import files, paths
from ..data import downloads

# Assumed of corpora, datasets and models whose registry entries do not say: about the mean of BEIR, BERT-base.
DOCUMENTS, DOCUMENT_WORDS, QUERIES, QUERY_WORDS = 100_000, 150.0, 1000, 12.0
MODEL = {"parameters": 110.0, "embeddings": 24.0, "dimensions": 768.0}
# Of English, about: bytes per word with its space, word pieces per word.
WORD_BYTES, WORD_PIECES = 6.0, 1.35


class Sizes:
    """Sizes of everything in a configuration. Numbers of documents and queries are whole, the others are estimates."""

    def __init__(self, config: Config, supplied: list[str]) -> None:
        """Take the configuration, and the grid's datasets that can be run (they share downloads)."""
        self.config = config
        self.supplied = supplied
        self.model = cache(self._model)
        self._guessed = cache(self._guess)

    def documents(self, corpus: str, shard: int | None = None) -> int:
        """Return the documents of a corpus or of one of its shards; estimated if the registry does not say."""
        registered = self.config.corpora[corpus].documents
        documents, size = registered or self._guessed(corpus), self.config.encode.shard
        return documents if shard is None or not registered else min(size, documents - shard * size)

    def _guess(self, corpus: str) -> int:
        """Return the documents of a corpus that was fetched, or an estimate from the size of its file."""
        fetched = Path(paths.CORPUS_RECORD.format(corpus=corpus))
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # none yet, or damaged: made again
            return max(1, int(files.read_json(fetched)["facts"]["documents"]))
        entry = self.config.corpora[corpus]
        file = find_local(resolve_path(entry.path), "corpus.jsonl") if isinstance(entry, LocalCorpus) else None
        return max(1, int(file.stat().st_size / (WORD_BYTES * DOCUMENT_WORDS))) if file else DOCUMENTS

    @cached_property
    def words(self) -> dict[str, float]:
        """Words per document of each corpus."""
        known = {self.config.datasets[name].corpus: words for name, words in self._statistics("document_words").items()}
        return {corpus: known.get(corpus, DOCUMENT_WORDS) for corpus in self.config.corpora}

    @cached_property
    def query_words(self) -> dict[str, float]:
        """Words per query of each dataset."""
        known = self._statistics("query_words")
        return {dataset: known.get(dataset, QUERY_WORDS) for dataset in self.config.datasets}

    def _statistics(self, key: str) -> dict[str, float]:
        """Return what the registry says of datasets; the parts of a mean share what it says of the mean."""
        known = {name: getattr(entry.statistics, key) for name, entry in self.config.datasets.items()}
        return {
            part: value
            for name, value in known.items()
            if value is not None
            for part in (self.config.datasets[name].mean_of or (name,))
        }

    def queries(self, dataset: str) -> int:
        """Return the queries of a dataset."""
        return self.config.datasets[dataset].queries or QUERIES

    def judged(self, dataset: str) -> float:
        """Return the relevant judgements of a dataset: two per query if the registry does not say."""
        return self.queries(dataset) * self._statistics("relevant").get(dataset, 2.0)

    def text_mb(self, corpus: str, shard: int | None = None) -> float:
        """Return the MB of text of a corpus or a shard."""
        return self.documents(corpus, shard) * self.words[corpus] * WORD_BYTES / 1e6

    def download_mb(self, corpus: str) -> float:
        """Return a corpus's share of what is downloaded: the forums of CQADupStack come in one file."""
        entry = self.config.corpora[corpus]
        if isinstance(entry, LocalCorpus):
            return 0.0
        file, size = downloads.size(entry.id)
        if not size:
            return self.text_mb(corpus) / 3  # as JSON lines are compressed, about
        others = {self.config.datasets[name].corpus or "" for name in self.supplied}
        return size / max(
            1, sum(downloads.size(getattr(self.config.corpora[name], "id", "") or "")[0] == file for name in others)
        )

    def _model(self, model: str) -> dict[str, float]:
        """Return a model's parameters and word embeddings, in millions, and the dimensions of its vectors."""
        entry = self.config.models[model]
        if entry.training:
            return self.model(entry.training.base)
        given = {key: float(value) for key, value in entry.size.model_dump(exclude_none=True).items()}
        return {**MODEL, **_size_on_disk(entry), **given}

    def weights_mb(self, model: str) -> float:
        """Return the MB of a model's weights in float32."""
        return self.model(model)["parameters"] * 4

    def pieces(self, model: str, words: float) -> float:
        """Return the word pieces that a model reads of a text of so many words."""
        return min(words * WORD_PIECES + 2, float(self.config.models[model].max_length or 512))

    def read_flops(self, model: str, texts: float, words: float) -> float:
        """Return the multiplications and additions with which a model reads texts, each of so many words."""
        size = self.model(model)
        return texts * 2e6 * (size["parameters"] - size["embeddings"]) * self.pieces(model, words)


def _size_on_disk(model: ModelEntry) -> dict[str, float]:
    """Return the size of a model in a folder, read from its files; nothing if they are not there."""
    folder = resolve_path(model.path) if model.path is not None else None
    parameters = sum(map(_parameters, folder.rglob("*.safetensors"))) if folder else 0
    if not (folder and parameters and (folder / "config.json").is_file()):
        return {}
    shape = files.read_json(folder / "config.json")
    width = shape.get("hidden_size", shape.get("d_model", shape.get("dim", MODEL["dimensions"])))
    embeddings = min(shape.get("vocab_size", 0) * width, 0.9 * parameters)
    return {"parameters": parameters / 1e6, "embeddings": embeddings / 1e6, "dimensions": float(width)}


def _parameters(weights: Path) -> int:
    """Return the parameters of a safetensors file, whatever type they are stored in, by its header."""
    with weights.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            header = json.loads(stream.read(min(length, weights.stat().st_size)))
        except ValueError:  # not a safetensors file: fetching the model says so
            return 0
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
