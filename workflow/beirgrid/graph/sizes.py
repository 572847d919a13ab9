"""Sizes of corpora, datasets and models: from the registry, from files, or assumed."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import IO, NamedTuple

from ..collections import downloads
from ..config.entries import Config, LocalCorpus, ModelEntry
from ..config.places import find_local, resolve_path
from ..core import files, paths

# Assumed of corpora, datasets and models whose registry entries do not say: about the mean of BEIR, BERT-base.
DOCUMENTS, DOCUMENT_WORDS, QUERIES, QUERY_WORDS = 100_000, 150.0, 1000, 12.0
MODEL = {"parameters": 110.0, "embeddings": 24.0, "dimensions": 768.0}
# Of English, about: bytes per word with its space, word pieces per word.
WORD_BYTES, WORD_PIECES = 6.0, 1.35
# Lines read of a local file of texts, and the bytes of text per byte of its gzipped form.
SAMPLED_LINES, GZIPPED = 500, 3


class Sizes:
    """Sizes of everything in a configuration. Numbers of documents and queries are whole, the others are estimates."""

    def __init__(self, config: Config, supplied: list[str]) -> None:
        """Take the configuration, and the grid's datasets that can be run (they share downloads)."""
        self.config = config
        self.supplied = supplied
        self.model = cache(self._model)
        self.queries = cache(self._count_queries)
        self._guessed = cache(self._guess)
        self._sampled = cache(_sample)

    def documents(self, corpus: str, shard: int | None = None) -> int:
        """Return the documents of a corpus or of one of its shards; estimated if the registry does not say."""
        registered = self.config.corpora[corpus].documents
        documents, size = registered or self._guessed(corpus), self.config.encode.shard
        return documents if shard is None or not registered else min(size, documents - shard * size)

    def _guess(self, corpus: str) -> int:
        """Return the documents of a corpus that was fetched, or an estimate from its file."""
        fetched = Path(paths.CORPUS_RECORD.format(corpus=corpus))
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # none yet, or damaged: made again
            return max(1, int(files.read_json(fetched)["facts"]["documents"]))
        file = self._local(corpus, "corpus.jsonl")
        return max(1, round(self._sampled(file).lines)) if file else DOCUMENTS

    def _local(self, corpus: str | None, name: str) -> Path | None:
        """Return a file of a collection in a folder, if it is there."""
        entry = self.config.corpora.get(corpus or "")
        return find_local(resolve_path(entry.path), name) if isinstance(entry, LocalCorpus) else None

    @cached_property
    def words(self) -> dict[str, float]:
        """Words per document of each corpus."""
        known = {self.config.datasets[name].corpus: words for name, words in self._statistics("document_words").items()}
        return {corpus: known.get(corpus) or self._words_in(corpus, "corpus.jsonl") for corpus in self.config.corpora}

    @cached_property
    def query_words(self) -> dict[str, float]:
        """Words per query of each dataset."""
        known = self._statistics("query_words")
        datasets = self.config.datasets.items()
        return {name: known.get(name) or self._words_in(entry.corpus, "queries.jsonl") for name, entry in datasets}

    def _words_in(self, corpus: str | None, name: str) -> float:
        """Return the mean words of the texts in a local file; assumed if there is none."""
        file = self._local(corpus, name)
        return self._sampled(file).words if file else {"corpus.jsonl": DOCUMENT_WORDS}.get(name, QUERY_WORDS)

    def _statistics(self, key: str) -> dict[str, float]:
        """Return what the registry says of datasets; the parts of a mean share what it says of the mean."""
        known = {name: getattr(entry.statistics, key) for name, entry in self.config.datasets.items()}
        return {
            part: value
            for name, value in known.items()
            if value is not None
            for part in (self.config.datasets[name].mean_of or (name,))
        }

    def _count_queries(self, dataset: str) -> int:
        """Return the queries of a dataset: as registered, as fetched, or those that local qrels judge."""
        entry = self.config.datasets[dataset]
        if entry.queries:
            return entry.queries
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # as for a corpus
            return max(1, int(files.read_json(Path(paths.DATASET_RECORD.format(dataset=dataset)))["facts"]["queries"]))
        if not (qrels := self._local(entry.corpus, f"qrels/{entry.split}.tsv")):
            return QUERIES
        with _opened(qrels) as lines:
            return max(1, len({line.split("\t", 1)[0] for line in lines}) - 1)  # a header

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
        """Return a model's parameters and word embeddings, in millions, dimensions of its vectors, width if known."""
        entry = self.config.models[model]
        if entry.training:
            return self.model(entry.training.base)
        given = {key: float(value) for key, value in entry.size.model_dump(exclude_none=True).items()}
        if entry.endpoint and entry.endpoint.dimensions:
            given = {"dimensions": float(entry.endpoint.dimensions), **given}
        return {**MODEL, **_size_on_disk(entry), **given}

    def weights_mb(self, model: str) -> float:
        """Return the MB of a model's weights in float32."""
        return self.model(model)["parameters"] * 4

    def pieces(self, model: str, words: float) -> float:
        """Return the word pieces that a model reads of a text of so many words."""
        return min(words * WORD_PIECES + 2, float(self.config.models[model].max_length or 512))

    def read_flops(self, model: str, texts: float, words: float) -> float:
        """Return the multiplications and additions with which a model reads texts, each of so many words."""
        size, pieces = self.model(model), self.pieces(model, words)
        # Each layer has some 12 width² weights, and takes 4 width additions and products per pair of pieces.
        attention = 1 + pieces / (6 * size.get("width", MODEL["dimensions"]))
        return texts * 2e6 * (size["parameters"] - size["embeddings"]) * pieces * attention


class _Sample(NamedTuple):
    """How many lines a file of texts has, about, and the mean words of its texts."""

    lines: float
    words: float


def _sample(path: Path) -> _Sample:
    """Return what the first lines of a file of texts tell about all of it; a damaged line ends the sample."""
    sizes: list[int] = []
    words: list[int] = []
    with contextlib.suppress(OSError, EOFError, ValueError, AttributeError), _opened(path) as lines:
        for line in islice(lines, SAMPLED_LINES):
            row = json.loads(line)
            words.append(len(f"{row.get('title') or ''} {row.get('text') or ''}".split()))
            sizes.append(len(line.encode()))
    whole = path.stat().st_size * (GZIPPED if path.suffix == ".gz" else 1)
    if not sizes:
        return _Sample(whole / (WORD_BYTES * DOCUMENT_WORDS), DOCUMENT_WORDS)
    return _Sample(len(sizes) if len(sizes) < SAMPLED_LINES else whole * len(sizes) / sum(sizes), fmean(words))


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _size_on_disk(model: ModelEntry) -> dict[str, float]:
    """Return the size of a model in a folder, read from its files; nothing if they are not there."""
    folder = resolve_path(model.folder) if model.folder is not None else None
    parameters = sum(map(_parameters, folder.rglob("*.safetensors"))) if folder else 0
    if not (folder and parameters and (folder / "config.json").is_file()):
        return {}
    shape = files.read_json(folder / "config.json")
    width = shape.get("hidden_size", shape.get("d_model", shape.get("dim", MODEL["dimensions"])))
    embeddings = min(shape.get("vocab_size", 0) * width, 0.9 * parameters)
    sizes = {"parameters": parameters / 1e6, "embeddings": embeddings / 1e6}
    return {**sizes, "dimensions": float(width), "width": float(width)}


def _parameters(weights: Path) -> int:
    """Return the parameters of a safetensors file, whatever type they are stored in, by its header."""
    with weights.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            header = json.loads(stream.read(min(length, weights.stat().st_size)))
        except ValueError:  # not a safetensors file: fetching the model says so
            return 0
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
