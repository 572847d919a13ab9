"""Stage fetch: collections, checkpoints, published expansions and runs of other software."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..config import entries
from ..core import files, paths
from ..core.checkout import expanded, resolve_path
from ..core.provenance import Stamp
from ..models import checkpoints
from . import artifacts
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Inputs, Settings, Stage

_COLLECTION = ("ir_datasets", "datasets", "pyarrow")
FETCH = Stamp("fetch", 1, (*_COLLECTION, "torch", "safetensors"))
_CORPUS_KEYS = ("source", "id", "task", "revision", "split", "subset", "path", "documents", "allow")
_DATASET_KEYS = ("corpus", "id", "revision", "split", "queries", "queries_are_documents")
_MODEL_KEYS = ("checkpoint", "revision", "path", "package", "adapter", "files", "pickled", "trust_remote_code")
# Checking a run of another program: its documents are looked up in the corpus (fitted to 5,183 and to 1,000,000).
# The run is held twice, and written with gzip.
ADOPTED = {"documents": Cost(seconds=5e-7), "hits": Cost(seconds=1e-5, memory=240e-6, disk=15e-6)}
# MB of a document's published queries: 40 of 36 bytes, assumed. The compressed download is a third.
PUBLISHED_MB = 40 * 36e-6


def _resolved(keys: Settings) -> Settings:
    """Make the folder that an entry names, and that of its adapter, absolute: a job may start elsewhere."""
    places = {name: _resolved(value) for name, value in keys.items() if name == "adapter"}
    return keys | places | ({"path": str(resolve_path(keys["path"]))} if keys.get("path") else {})


def _corpus_entry(grid: Grid, corpus: str) -> Settings:
    return _resolved(grid.config.corpora[corpus].own_keys(*_CORPUS_KEYS))


def _local_files(grid: Grid, corpus: str, *names: str) -> list[str]:
    """Return files of a local collection; none of a downloaded one."""
    entry = grid.config.corpora[corpus]
    if not isinstance(entry, entries.LocalCorpus):
        return []
    folder = resolve_path(entry.path)
    return [str([*files.forms(folder / name), folder / name][0]) for name in names]


class FetchCorpus(Stage):
    """Documents of a corpus."""

    rule, run = "fetch_corpus", "stages.fetch:fetch_corpus"
    stamp, downloads = FETCH, True
    outputs, main = {"corpus": paths.CORPUS, "record": paths.CORPUS_RECORD}, "corpus"
    costs = {
        "download_mb": Cost(seconds=0.05, disk=1),  # ir_datasets keeps what it downloads
        "text_mb": Cost(seconds=0.05, disk=0.6),  # fitted to 200,000 and 1,000,000 documents; parquet
        "documents": Cost(memory=150e-6),  # a set of ids
    }

    def files(self, grid: Grid, corpus: str) -> Iterable[str]:
        return _local_files(grid, corpus, "corpus.jsonl")

    def settings(self, grid: Grid, corpus: str) -> Settings:
        return {"entry": _corpus_entry(grid, corpus)}

    def options(self, grid: Grid, corpus: str) -> Settings:
        return {"name": corpus}

    def work(self, sizes: Sizes, corpus: str) -> Amounts:
        return {"download_mb": sizes.download_mb(corpus)}


class FetchDataset(Stage):
    """Judged queries and qrels of a dataset."""

    rule, run = "fetch_dataset", "stages.fetch:fetch_dataset"
    stamp, downloads = Stamp("fetch_dataset", 3, _COLLECTION), True
    outputs = {"queries": paths.QUERIES, "qrels": paths.QRELS, "record": paths.DATASET_RECORD}
    costs = {"documents": Cost(seconds=5e-7, memory=100e-6)}  # judged ids are looked up in the corpus; fitted

    def inputs(self, grid: Grid, dataset: str) -> Inputs:
        return {"corpus": artifacts.documents(grid.corpus(dataset))}

    def files(self, grid: Grid, dataset: str) -> Iterable[str]:
        corpus = grid.config.corpora[grid.corpus(dataset)]
        qrels = f"qrels/{grid.config.datasets[dataset].qrels(corpus)[1]}.tsv"
        judged = [] if dataset in grid.not_judged else [qrels]
        return _local_files(grid, grid.corpus(dataset), "queries.jsonl", *judged)

    def settings(self, grid: Grid, dataset: str) -> Settings:
        entry = grid.config.datasets[dataset].own_keys(*_DATASET_KEYS)
        return {"entry": entry, "corpus_entry": _corpus_entry(grid, grid.corpus(dataset))}

    def options(self, grid: Grid, dataset: str) -> Settings:
        return {"name": dataset}


class FetchExpansion(Stage):
    """Published queries for the documents of a corpus."""

    rule, run = "fetch_expansion", "stages.fetch:fetch_expansion"
    stamp, downloads = Stamp("fetch_expansion", 1, ("huggingface_hub", "pyarrow")), True
    outputs, main = {"result": paths.PUBLISHED, "record": paths.PUBLISHED_RECORD}, "result"
    costs = {  # measured on 150,000 documents with 40 queries each
        "job": Cost(memory=550),  # a bucket of 65,536 documents with their queries
        # With the download; rows of ids; parquet. Buckets and downloads, while it runs.
        "documents": Cost(seconds=0.12 * PUBLISHED_MB, memory=200e-6, disk=0.9 * PUBLISHED_MB),
        "scratch_mb": Cost(disk=1.6),
    }

    def inputs(self, grid: Grid, system: str, corpus: str) -> Inputs:
        return {"corpus": artifacts.documents(corpus)}

    def files(self, grid: Grid, system: str, corpus: str) -> Iterable[str]:
        entry = grid.expansion(system, corpus)
        if not isinstance(entry, entries.LocalExpansion):
            return []
        path = resolve_path(entry.path)
        return map(str, sorted(path.iterdir()) if path.is_dir() else [path])

    def settings(self, grid: Grid, system: str, corpus: str) -> Settings:
        return {"entry": _resolved(grid.expansion(system, corpus).own_keys())}

    def constraints(self, grid: Grid) -> dict[str, str]:
        return {"system": grid.one_of(grid.with_published)}

    def work(self, sizes: Sizes, system: str, corpus: str) -> Amounts:
        published = PUBLISHED_MB * sizes.documents(corpus)
        return {"scratch_mb": published, "download_mb": published / 3}


class FetchModel(Stage):
    """Checkpoint of a model, or a description of the server that runs it."""

    rule, run = "fetch_model", "stages.fetch:fetch_model"
    stamp, downloads, recipes = FETCH, True, (None,)
    outputs, main = {"checkpoint": paths.CHECKPOINT, "record": paths.MODEL_RECORD}, "checkpoint"
    costs = {
        "download_mb": Cost(seconds=0.05),
        "weights_mb": Cost(seconds=0.005, disk=1),  # hashing, fitted; float32
        "pickled_job": Cost(seconds=8, memory=550),  # PyTorch: 986 MB in all for 400 MB of weights
        "pickled_mb": Cost(seconds=0.005, memory=2),  # weights read and written
        "scratch_mb": Cost(disk=1),  # the pickle
    }

    def files(self, grid: Grid, model: str) -> Iterable[str]:
        return map(str, sorted(checkpoints.source_files(grid.model(model))))

    def settings(self, grid: Grid, model: str) -> Settings:
        entry = grid.model(model)
        if entry.endpoint:
            return {"entry": {"family": entry.family, "endpoint": entry.endpoint.identity()}}
        keys = entry.own_keys(*_MODEL_KEYS)
        if not entry.trust_remote_code:
            keys.pop("trust_remote_code", None)  # fetches no code, whatever it says
        if entry.path is not None:  # a folder has no place on the hub
            keys = {key: value for key, value in keys.items() if key not in ("checkpoint", "revision")}
        return {"entry": _resolved(keys)}

    def options(self, grid: Grid, model: str) -> Settings:
        """Name the sides with a prompt: a checkpoint's own prompt for another side is refused."""
        entry = grid.model(model)
        own = entry.prefixes.own or bool(getattr(entry, "engine", None))
        sides = [side for side in ("query", "document") if own or getattr(entry.prefixes, side) is not None]
        connection = json.dumps(entry.endpoint.connection()) if entry.endpoint else None
        return {"name": model, "prompts": sides, "source": entry.source or None, "connection": connection}

    def work(self, sizes: Sizes, model: str) -> Amounts:
        entry = sizes.config.models[model]
        weights = 0.0 if entry.endpoint else sizes.weights_mb(model)
        downloaded = weights if entry.origin == "checkpoint" else 0.0
        pickled = {"pickled_job": 1.0, "pickled_mb": weights, "scratch_mb": weights} if entry.pickled else {}
        return {"weights_mb": weights, "download_mb": downloaded, **pickled}


class FetchRun(Stage):
    """Run that other software made."""

    rule, run = "fetch_run", "stages.fetch:fetch_run"
    stamp, group, named, systems = Stamp("fetch_run", 1, ("pyarrow",)), "cell", ("system",), ("external",)
    outputs, main = {"run": paths.RUN, "record": paths.RUN_RECORD}, "run"
    costs = ADOPTED

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        return {"corpus": artifacts.documents(grid.corpus(dataset)), "queries": artifacts.queries(dataset)}

    def files(self, grid: Grid, system: str, dataset: str) -> Iterable[str]:
        run = grid.system_as(entries.External, system).run.replace("{dataset}", dataset)
        return [str(Path(expanded(run)).absolute())]

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        [run] = self.files(grid, system, dataset)
        allow = tuple(grid.system_as(entries.Foreign, system).allow)
        return {"run": run, "depth": grid.config.retrieve.depth, "allow": allow}
