"""Reopen systems of a finished grid from their records, for single queries."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..collections import collection
from ..config.indexes import Flat
from ..config.systems import places_of
from ..core import lineage, paths, provenance
from ..core.compute import Compute, Runtime
from ..core.errors import BeirgridError, DataError
from ..encoders import open_encoder, open_scorer
from ..pipeline import job
from ..runs import fusion, runs
from ..search import approximate, find, lucene, maxsim
from ..stages.program import run_command

# Stages whose steps can be reopened.
_STAGES = ("retrieve", "retrieve_program", "score", "rerank", "fuse")
# Id of the query that a program is given.
_QUERY = "query"


class Step(NamedTuple):
    """A step of a system: its stage, the function of its job, the function's arguments, and its facts."""

    stage: str
    function: str
    values: dict[str, Any]
    facts: dict[str, Any]


class OpenSystem(NamedTuple):
    """An open system, for several threads.

    Attributes:
        rank: returns the ranking of a query.
        depth: documents that it retrieves, or reranks.
        hardware: of its model, or of this machine.
        precision: of its model.
        first: the first stage of a reranked system.
        read: returns the texts of documents to rerank, by id.
        score: scores texts for a query, float32 [texts].
    """

    rank: Callable[[str], runs.Ranking]
    depth: int
    hardware: str
    precision: str = ""
    first: OpenSystem | None = None
    read: Callable[[set[str]], dict[str, str]] = lambda ids: {}
    score: Callable[[str, list[str]], np.ndarray] = lambda text, documents: np.zeros(0)


def open_system(system: str, dataset: str, device: str, stack: ExitStack, programs: bool = False) -> OpenSystem:
    """Open a system and its components from the records in the working directory.

    Args:
        dataset: a dataset on which the system was run; it names the corpus that is searched.
        device: where models run: auto, cpu or cuda.
        stack: closes what is opened.
        programs: whether commands of records may start. A folder of somebody else may have any command.

    Raises:
        BeirgridError: the system is a run of other software, or a program that may not start.
        DataError: a record, an index or a model is missing or damaged.
    """
    path = paths.RUN_RECORD.format(system=system, dataset=dataset)
    step = read_step(path)
    if step.stage == "retrieve":
        return _open_search(step, device, stack)
    if step.stage == "retrieve_program":
        if programs:
            return _open_program(step, stack)
        raise BeirgridError(
            f"{system!r} is a program, which only latency starts, with --systems {system}: {step.values['command']}"
        )
    parts = [step.values["first_stage"]] if step.stage == "rerank" else step.values.get("runs", ())
    opened = [open_system(*_cell(run), device, stack, programs) for run in parts]
    if step.stage == "rerank":
        return _open_reranked(step, opened[0], device, stack)
    if step.stage == "fuse":
        return _open_fused(step, opened)
    raise BeirgridError(f"{system!r} cannot be searched: its run on {dataset!r} is of other software ({path})")


def _cell(run: Path) -> tuple[str, str]:
    """Return the system and the dataset of a run."""
    return run.parent.name, run.name.removesuffix(".run.gz")


@contextmanager
def hold_back_output(log: Path | None = None) -> Iterator[None]:
    """Hold back what Java and other libraries print; print it on standard error only if the block fails.

    Args:
        log: file to which the text is appended if the block succeeds.
    """
    streams, copies = (sys.stdout, sys.stderr), [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as said:
        for number, stream in enumerate(streams, start=1):
            stream.flush()
            os.dup2(said.fileno(), number)
        failed = True
        try:
            yield
            failed = False
        finally:
            for number, (stream, copy) in enumerate(zip(streams, copies, strict=True), start=1):
                stream.flush()
                os.dup2(copy, number)
                os.close(copy)
            said.seek(0)
            text = said.read()
            if failed:
                os.write(2, text)
            elif log and text:
                with log.open("ab") as kept:
                    kept.write(text)


def _open_reranked(step: Step, first: OpenSystem, device: str, stack: ExitStack) -> OpenSystem:
    values, depth = read_step(step.values["scores"]).values, step.values["depth"]
    runtime, computing = _start(values, device, stack), threading.Lock()
    scorer = open_scorer(values["checkpoint"], values["model"], runtime)

    def read(ids: set[str]) -> dict[str, str]:
        return {document.id: document.full_text for document in collection.pick_documents(values["corpus"], ids)}

    def score(text: str, documents: list[str]) -> np.ndarray:
        with computing:
            return scorer.score([text] * len(documents), documents) if documents else np.zeros(0, np.float32)

    def rank(text: str) -> runs.Ranking:
        ranking = first.rank(text)
        top = read({*ranking.ids[:depth]})
        of_pairs = zip(top, score(text, list(top.values())).tolist(), strict=True)
        return runs.reordered("", ranking, {("", document): of_pair for document, of_pair in of_pairs}, depth)

    return OpenSystem(rank, depth, _hardware(runtime), scorer.precision, first, read, score)


def _open_fused(step: Step, parts: Sequence[OpenSystem]) -> OpenSystem:
    method, depth = step.values["method"], step.values["depth"]
    options = {name: step.values[name] for name in ("k", "norm", "weights")}
    if step.values["tune"]:
        options["weights"] = step.facts["weights"]

    def rank(text: str) -> runs.Ranking:
        return fusion.fuse([{"": part.rank(text)} for part in parts], method, depth, **options)[""]

    neural = next((part for part in parts if part.precision), parts[0])
    return OpenSystem(rank, depth, neural.hardware, neural.precision)


def _open_program(step: Step, stack: ExitStack) -> OpenSystem:
    """Open a program, which starts anew for each query. The documents that its command reads are written once."""
    values, folder = step.values, Path(stack.enter_context(tempfile.TemporaryDirectory()))
    places = {"depth": values["depth"], "threads": values["threads"], "corpus": folder / "corpus.jsonl"}
    places |= {"index": values["index"]} if values["index"] else {}
    if "corpus" in places_of(values["command"]):
        collection.write_jsonl(collection.read_documents(values["corpus"]), places["corpus"])

    def rank(text: str) -> runs.Ranking:
        place = Path(tempfile.mkdtemp(dir=folder))
        run = place / "run.trec"
        run_command(values["command"], place, values["corpus"], {_QUERY: text}, {**places, "run": run})
        found_nothing = run.is_file() and not run.stat().st_size
        return runs.EMPTY if found_nothing else runs.read(run).get(_QUERY, runs.EMPTY)

    return OpenSystem(rank, values["depth"], cpu_name())


def read_step(path: str | Path) -> Step:
    """Read a step from its record. A step that cannot be reopened has no values.

    Raises:
        DataError: the record is missing or damaged, or records a job of another version; or something that the step
            read was made again since.
    """
    record = provenance.read_record(path)
    lineage.check({"record": Path(path)})
    stage = str(record["stage"])
    if stage not in _STAGES:
        return Step(stage, "", {}, {})
    try:
        name = record["job"]["stage"]
        values = job.arguments(job.stage_function(name), job.options(record["job"]))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (BeirgridError, KeyError) as error:
        why = f"it records a job of another version of beirgrid ({error})"
        raise DataError(f"{path}: {why}. Delete this record, and run the grid again") from None
    grouped = values.pop("asked", None)  # what every search with a model takes
    return Step(stage, name, values | (vars(grouped) if grouped else {}), record["facts"])


def _start(values: Mapping[str, Any], device: str, stack: ExitStack) -> Runtime:
    """Start the runtime of a command, on the requested device or else the command's own."""
    compute: Compute = dataclasses.replace(values["compute"], device=device)
    return stack.enter_context(compute.start())


def _open_search(step: Step, device: str, stack: ExitStack) -> OpenSystem:
    """Open the index and, if any, the model of a retrieval. All ids of the corpus are held in memory."""
    values, depth = step.values, step.values["depth"]
    if step.function == "retrieve_lexical":
        options = {name: values[name] for name in ("fields", "language", "k1", "b")}
        searcher = lucene.Searcher(values["index"], **options, memory_mb=values["memory"])
        return OpenSystem(lambda text: runs.canonical("", *searcher.search(text, depth)), depth, cpu_name())
    runtime = _start(values, device, stack)
    encoder, computing = open_encoder(values["checkpoint"], values["model"], runtime), threading.Lock()
    ids = collection.read_ids(values["corpus"], np.arange(collection.count(values["corpus"]))[None])

    def rank(text: str) -> runs.Ranking:
        with computing:  # tokenizer and model are not thread-safe
            vectors = encoder.encode_queries([text])
        scores, rows = (np.asarray(of_queries[0]) for of_queries in _search_vectors(step, vectors, depth))
        scores, rows = scores[rows >= 0], rows[rows >= 0]
        return runs.canonical("", ids.take(rows).to_pylist(), scores, depth)

    return OpenSystem(rank, depth, _hardware(runtime), encoder.precision)


def _search_vectors(step: Step, vectors: Any, depth: int) -> Any:
    values = step.values
    if step.function == "retrieve_late_interaction":
        if values["candidates"] is None:
            return maxsim.search_exhaustively(values["tokens"], vectors, depth)
        return maxsim.search(values["tokens"], values["indexes"], vectors, values["candidates"])
    if step.function == "retrieve_dense":
        cut = approximate.truncate(vectors, values["dimensions"], values["model"].similarity)
        return approximate.search_shards(values["indexes"], cut, depth, values["index"] or Flat())
    return find(values["model"].family, values["indexes"], vectors, depth, Compute(device="cpu"))


def _hardware(runtime: Runtime) -> str:
    """Return the name of the GPU or of the processor that a runtime uses."""
    return runtime.hardware if runtime.kind == "cuda" else cpu_name()


@functools.cache
def cpu_name() -> str:
    """Return the name of the processor, as Linux has it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
    fields = (line.partition(":") for line in lines)
    names = (value.strip() for key, _, value in fields if key.strip() == "model name" and value.strip())
    return next(names, platform.processor() or platform.machine())
