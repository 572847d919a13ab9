"""Reopen systems of a finished grid from their records, for single queries."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..collections import collection
from ..core import paths, provenance
from ..core.compute import Compute, Runtime
from ..core.errors import BeirgridError, DataError
from ..encoders import open_encoder, open_model
from ..pipeline import job
from ..runs import fusion, runs
from ..search import lucene
from ..stages.retrieve import search

# Arguments of the job that made a run.
Values = dict[str, Any]


class NotSearchable(BeirgridError):
    """A system, or a part of it, is a program, or a run of other software."""


class OpenSystem(NamedTuple):
    """An open system, with the first stage and the functions of a reranked one."""

    rank: Callable[[str], runs.Ranking]  # of a query
    depth: int  # documents that it retrieves, or reranks
    hardware: str = "cpu"  # of its model: cpu, or the name of the GPU
    precision: str = ""  # of its model
    first: OpenSystem | None = None
    read: Callable[[set[str]], dict[str, str]] = lambda ids: {}  # texts of documents by id
    score: Callable[[str, list[str]], np.ndarray] = lambda text, documents: np.zeros(0)  # float32 [texts]


def open_system(system: str, dataset: str, device: str) -> OpenSystem:
    """Open a system and its components from the records in the working directory.

    Args:
        dataset: a dataset on which the system was run; it names the corpus that is searched.
        device: where models run: auto, cpu or cuda.

    Raises:
        NotSearchable: the system, or a part of it, is a program, or a run of other software.
        DataError: a record, an index or a model is missing or damaged.
    """
    path = paths.RUN_RECORD.format(system=system, dataset=dataset)
    if "source_sha256" in provenance.read_record(path)["facts"]:
        raise NotSearchable(f"{system!r} cannot be searched: its run on {dataset!r} is of other software ({path})")
    values = read_job(path)
    if "model" in values:
        return _open_model(values, device)
    if "command" in values:  # a folder of somebody else may have any command
        raise NotSearchable(f"{system!r} is a program, which only a run starts: {values['command']}")
    runs_read = [values["first_stage"]] if "first_stage" in values else values.get("runs", ())
    names = [(run.parent.name, run.name.removesuffix(".run.gz")) for run in runs_read]
    parts = [open_system(*cell, device) for cell in names]
    if "first_stage" in values:
        return _open_reranked(values, parts[0], device)
    return _open_fused(values, parts) if parts else _open_bm25(values)


@contextmanager
def hold_back_output() -> Iterator[None]:
    """Hold back what Java and other libraries print; print it on standard error only if the block fails."""
    streams, copies = (sys.stdout, sys.stderr), [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as said:
        for number, stream in enumerate(streams, start=1):
            stream.flush()
            os.dup2(said.fileno(), number)
        try:
            yield
        except BaseException:
            sys.stdout.flush()
            said.seek(0)
            os.write(copies[1], said.read())
            raise
        finally:
            for number, (stream, copy) in enumerate(zip(streams, copies, strict=True), start=1):
                stream.flush()
                os.dup2(copy, number)
                os.close(copy)


def _open_reranked(reranking: Values, first: OpenSystem, device: str) -> OpenSystem:
    values, depth = read_job(reranking["scores"]), reranking["depth"]
    runtime: Runtime = dataclasses.replace(values["compute"], device=device).start()
    scorer = open_model(values["checkpoint"], values["model"], runtime)

    def read(ids: set[str]) -> dict[str, str]:
        return {document.id: document.full_text for document in collection.pick_documents(values["corpus"], ids)}

    def score(text: str, documents: list[str]) -> np.ndarray:
        return scorer.score([text] * len(documents), documents) if documents else np.zeros(0, np.float32)

    def rank(text: str) -> runs.Ranking:
        ranking = first.rank(text)
        top = read({*ranking.ids[:depth]})
        of_pairs = zip(top, score(text, list(top.values())).tolist(), strict=True)
        return runs.reordered("", ranking, {("", document): of_pair for document, of_pair in of_pairs}, depth)

    return OpenSystem(rank, depth, runtime.hardware, scorer.precision, first, read, score)


def _open_fused(values: Values, parts: Sequence[OpenSystem]) -> OpenSystem:
    method, depth = values["method"], values["depth"]
    options = {name: values[name] for name in ("k", "norm", "weights")}

    def rank(text: str) -> runs.Ranking:
        return fusion.fuse([{"": part.rank(text)} for part in parts], method, depth, **options)[""]

    neural = next((part for part in parts if part.precision), parts[0])
    return OpenSystem(rank, depth, neural.hardware, neural.precision)


def read_job(path: str | Path) -> Values:
    """Return the arguments of the job of a record.

    Raises:
        DataError: the record is missing or damaged, or records a job of another version; or something that the job
            read was made again since.
    """
    record = provenance.read_record(path)
    provenance.check({"record": Path(path)})
    try:
        function = job.stage_function(record["job"]["stage"])
        return job.arguments(function, job.options(record["job"]))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (BeirgridError, KeyError) as error:
        why = f"it records a job of another version of beirgrid ({error})"
        raise DataError(f"{path}: {why}. Delete this record, and run the grid again") from None


def _open_bm25(values: Values) -> OpenSystem:
    depth = values["depth"]
    options = {name: values[name] for name in ("fields", "language", "k1", "b")}
    searcher = lucene.Searcher(values["index"], **options, memory_mb=values["memory"])
    return OpenSystem(lambda text: runs.canonical("", *searcher.search(text, depth)), depth)


def _open_model(values: Values, device: str) -> OpenSystem:
    """Open the model and the indexes of a retrieval. All ids of the corpus are held in memory."""
    depth, model = values["depth"], values["model"]
    runtime: Runtime = dataclasses.replace(values["compute"], device=device).start()
    encoder = open_encoder(values["checkpoint"], model, runtime)
    ids = collection.read_ids(values["corpus"], np.arange(collection.count(values["corpus"]))[None])
    shards = {name: values[name] for name in ("indexes", "tokens", "index", "dimensions", "candidates")}

    def rank(text: str) -> runs.Ranking:
        vectors = encoder.encode_queries([text])
        scores, rows = (
            np.asarray(of_queries[0]) for of_queries in search(vectors, depth, model, Compute(device="cpu"), **shards)
        )
        scores, rows = scores[rows >= 0], rows[rows >= 0]
        return runs.canonical("", ids.take(rows).to_pylist(), scores, depth)

    return OpenSystem(rank, depth, runtime.hardware, encoder.precision)


@functools.cache
def cpu_name() -> str:
    """Return the name of the processor, as Linux has it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), platform.processor() or platform.machine())
