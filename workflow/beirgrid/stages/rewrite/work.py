"""Stage rewrite: the texts with which a system searches in place of its queries, written by a model or by others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ...collections import collection, rewriting
from ...config.models import Writer
from ...config.values import Seed, Size
from ...core import files, provenance
from ...core.compute import Compute
from ...core.errors import DataError, quantity, quoted, warn
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders import open_model
from ...encoders.protocol import parts
from ...runs.opened import NotSearchable, OpenPart, OpenWriter

# Queries for which a model writes together.
BLOCK = 64


class _Asked(NamedTuple):
    """An open model, and what it is asked for each query."""

    model: Any
    prompt: str
    texts: int
    seed: int

    def write(self, queries: Iterable[str], progress: Progress | None = None) -> list[list[str]]:
        """Return the texts of each query that are not blank, without the blanks around them."""
        prompts = [self.prompt.replace("{query}", query) for query in queries]
        written = self.model.generate(prompts, per_text=self.texts, seed=self.seed, progress=progress)
        return [[text.strip() for text in of_query if text.strip()] for of_query in written]

    def write_once(self, queries: Sequence[str], folder: Path) -> list[dict[str, Any]]:
        """Return the texts of each query, and the seconds that they took.

        Each query has a file in the folder, where the next attempt of a killed job and jobs of other datasets find it.
        """
        places = {query: folder / f"{sha256(query.encode()).hexdigest()[:32]}.json" for query in queries}
        missing = [query for query, place in places.items() if not place.is_file()]
        progress = Progress("rewrite", len(missing), "queries")
        for block in parts(missing, BLOCK):
            started = time.monotonic()
            written = self.write(block, progress)
            seconds = (time.monotonic() - started) / len(block)
            for query, texts in zip(block, written, strict=True):
                files.write_json(places[query], {"query": query, "texts": texts, "seconds": seconds})
        kept = []
        for query in queries:
            with files.reading(places[query]):
                kept.append(files.read_json(places[query]))
        return kept


def rewrite(
    *,
    queries: Annotated[Artifact, "queries.parquet"],
    path: Annotated[Path | None, "file .jsonl with the texts, in place of a generator"] = None,
    model: Writer | None = None,
    generator: Annotated[Artifact | None, "checkpoint of the model that writes them"] = None,
    prompt: Annotated[str, "what the model reads, with {query}"] = "",
    texts: Annotated[Size, "texts of each query"] = 1,
    seed: Annotated[Seed, "seed of the model"] = 0,
    compute: Compute,
    output: Annotated[Path, "rewrites to write (collections.rewriting)"],
) -> Facts:
    """Write texts for the queries of a dataset. A text depends on the seed and its query alone.

    What was written is kept for good, and shared by datasets: no model is asked for a text again.

    Raises:
        DataError: an input is damaged, the file lacks a query, or the model writes nothing at all.
    """
    asked = collection.read_queries(queries)
    if not (generator and model):
        assert path, "a job has a generator or a path"
        rewriting.write(output, rewriting.read_lines(path, asked))
        return {"queries": len(asked), "query_seconds": 0.0, "source": path.name}
    writer = open_model(generator, model, compute.start(), output.parent / "answers")
    asking = _Asked(writer, prompt, texts, seed)
    if model.endpoint:  # its client keeps the answers, and counts all requests
        started = time.monotonic()
        written = asking.write(asked.values(), Progress("rewrite", len(asked), "queries"))
        seconds = time.monotonic() - started
    else:
        written_by = provenance.fingerprint("generator", precision=writer.precision)
        kept = asking.write_once([*asked.values()], output.parent / "texts" / written_by)
        written = [of_query["texts"] for of_query in kept]
        seconds = sum(of_query["seconds"] for of_query in kept)
    of_each = dict(zip(asked, written, strict=True))
    without = _count_empty(of_each, queries)
    rewriting.write(output, of_each)
    facts = {"queries": len(asked), "queries_without_texts": without, "query_seconds": round(seconds, 3)}
    return {**writer.facts(), **facts}


def open_rewrite(
    _: OpenPart,
    *,
    queries: Path,
    path: Path | None,
    model: Writer | None,
    generator: Path | None,
    prompt: str,
    texts: int,
    seed: int,
    compute: Compute,
) -> OpenWriter:
    """Open the model that has written for ``queries``, for single queries.

    Raises:
        NotSearchable: a file has the texts.
    """
    if not (generator and model):
        raise NotSearchable(f"its texts for {queries} are those of the file {path}, which has none for a new query")
    runtime = compute.start()
    writer = open_model(generator, model, runtime)
    asking = _Asked(writer, prompt, texts, seed)

    def write(asked: Mapping[str, str]) -> rewriting.Texts:
        return dict(zip(asked, asking.write(asked.values()), strict=True))

    return OpenWriter(write, runtime.hardware, writer.precision)


def _count_empty(of_each: rewriting.Texts, queries: Path) -> int:
    """Count the queries without a text and warn of them; refuse texts of no query at all."""
    empty = [query for query, texts in of_each.items() if not texts]
    if len(empty) == len(of_each):
        raise DataError(f"the generator writes nothing for any query of {queries}: check its prompt")
    if empty:
        count = f"{len(empty):,} of the {quantity(len(of_each), 'query')} of {queries}"
        warn(f"the generator writes nothing for {count} ({quoted(empty[0])}, say): these are searched as they are")
    return len(empty)
