"""Stage retrieve: find the top documents per query with Lucene, dense vectors, impact postings or token vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ...collections import collection, rewriting
from ...config.models import DenseModel, Model, ModelEntry
from ...config.query_changes import Rm3
from ...config.systems import AnyIndex
from ...config.values import Size
from ...core import provenance
from ...core.compute import Compute
from ...core.errors import quantity, quoted, warn
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders import open_encoder, query_checkpoint
from ...encoders.guards import CollapseCheck, check_finite
from ...encoders.protocol import Encoder
from ...models.endpoints import kept_answers
from ...runs import runs
from ...runs.opened import OpenPart, OpenSystem, OpenWriter
from ...runs.restrictions import Found, Restrictions
from ...search import approximate, lucene, maxsim, module
from ...search.maxsim import TokenVectors

System = Annotated[str, "name of the system, used as the tag of the run"]
Queries = Annotated[Artifact, "queries.parquet"]
Rewrites = Annotated[Artifact | None, "texts with which the system searches in place of the queries"]
Method = Annotated[str, "how it searches with these texts (collections.rewriting)"]
Depth = Annotated[Size, "documents per query"]
Output = Annotated[Path, "run to write, .run.gz"]
# A search with BM25 finds all documents for queries that have candidates. It takes so many queries at a time:
_WITH_CANDIDATES = 64
# More hits than Lucene can find.
_EVERY = 2**31 - 1


def retrieve_lexical(
    *,
    system: System,
    index: Annotated[Artifact, "Lucene index"],
    queries: Queries,
    rewrites: Rewrites = None,
    method: Method = "",
    fields: Annotated[lucene.Fields, "fields of the index"],
    language: Annotated[str, "ISO 639-1 code that picks the analyzer"] = "en",
    k1: Annotated[float, "saturation of term frequencies"] = 0.9,
    b: Annotated[float, "normalisation by document length"] = 0.4,
    rm3: Annotated[Rm3 | None, "parameters of RM3, to search again with more words"] = None,
    depth: Depth = 1000,
    threads: Annotated[Size, "threads of Lucene"] = 1,
    memory: Annotated[Size, "Java heap in MB"] = 1500,
    output: Output,
) -> Facts:
    """Search a corpus with BM25.

    Raises:
        DataError: queries or index are damaged.
        BeirgridError: Java or Lucene fails.
    """
    bm25: dict[str, Any] = {"fields": fields, "language": language, "k1": k1, "b": b, "rm3": rm3}
    texts = collection.read_queries(queries)
    limits = Restrictions(queries, depth)
    run: runs.Run = {}
    if rewrites:
        texts = rewriting.for_words(method, texts, rewriting.read(rewrites))
    with closing(lucene.Searcher(index, **bm25, memory_mb=memory)) as searcher:
        started = time.monotonic()  # Java runs
        for start, stop in limits.blocks(len(texts), _WITH_CANDIDATES):
            block = dict(islice(texts.items(), start, stop))
            hits = searcher.search_all(block, limits.searched(_EVERY), threads)
            run |= {query: limits.ranking(query, *found) for query, found in hits.items()}
        seconds = round(time.monotonic() - started, 3)
    runs.write(output, run, system)
    return {"query_seconds": seconds, "queries": len(texts), "device": "cpu"}


def retrieve_vectors(
    *,
    system: System,
    model: Model,
    checkpoint: Annotated[Artifact | None, "folder of the model's checkpoint"] = None,
    query_tower: Annotated[Artifact | None, "folder of its query encoder's checkpoint, if that is another one"] = None,
    two_towers: Annotated[bool, "the model has a separate query encoder"] = False,
    corpus: Annotated[Artifact, "corpus.parquet, for the document ids"],
    queries: Queries,
    rewrites: Rewrites = None,
    method: Method = "",
    tokens: Annotated[tuple[Artifact, ...], "token vectors of the shards (late interaction)"] = (),
    indexes: Annotated[tuple[Artifact, ...], "indexes of the shards; none to score every document's tokens"] = (),
    index: Annotated[AnyIndex | None, "kind of the indexes, unless flat"] = None,
    dimensions: Annotated[Size | None, "number of dimensions in the indexes"] = None,
    candidates: Annotated[Size | None, "nearest tokens per query token; without it, every document is scored"] = None,
    depth: Depth = 1000,
    compute: Compute,
    output: Output,
) -> Facts:
    """Encode the queries with a model and search all shards: exactly, unless their indexes are approximate.

    Shards are in row order.

    Raises:
        DataError: an input is damaged, or an index has another dimension (or vocabulary) than the queries' vectors.
    """
    texts = collection.read_queries(queries)
    rewritten = rewriting.read(rewrites) if rewrites else {}
    if rewritten:
        texts = rewriting.for_vectors(method, texts, rewritten)
    limits = Restrictions(queries, depth)
    documents = collection.count(corpus)
    with kept_answers(output) as answers:
        encoder = open_encoder(query_checkpoint(checkpoint, query_tower), model, compute.start(), answers)
        shards: dict[str, Any] = {"indexes": indexes, "tokens": tokens, "candidates": candidates}
        shards |= {"index": index, "dimensions": dimensions}
        if method == "hyde":
            shards["passages"] = rewritten
        if tokens:
            steps = len(texts) * len(tokens)
            shards["progress"] = Progress(f"retrieve from {len(tokens)} shards", steps, "searches")
        started = time.monotonic()  # the model is open
        ids_of = partial(collection.read_ids, corpus)
        run = _ranked(texts, encoder, limits, ids_of, documents, model, compute, **shards)
        seconds = round(time.monotonic() - started, 3)
        facts = encoder.facts() | (_truncated(encoder, method, texts, rewritten) if rewritten else {})
        runs.write(output, run, system)
    return {"query_seconds": seconds, **facts, "queries": len(texts)}


def _ranked(
    texts: Mapping[str, str],
    encoder: Encoder[Any],
    limits: Restrictions,
    ids_of: Callable[..., Any],
    documents: int,
    model: ModelEntry,
    compute: Compute,
    *,
    indexes: Sequence[Any],
    tokens: Sequence[Path],
    index: AnyIndex | None,
    dimensions: int | None,
    candidates: int | None,
    progress: Progress | None = None,
    passages: rewriting.Texts | None = None,
) -> runs.Run:
    """Encode queries by id, and search all shards. ``ids_of`` returns the ids of rows of the corpus."""
    vectors = encoder.encode_queries(list(texts.values()))
    if passages:
        vectors = _means(vectors, [passages[query] for query in texts], encoder)
    _check(vectors, texts, encoder.precision)

    def find(start: int, stop: int, deep: int) -> Found:
        block: Any = vectors.texts(range(start, stop)) if isinstance(vectors, TokenVectors) else vectors[start:stop]
        if tokens and candidates and not limits.candidates:
            return maxsim.search(tokens, indexes, block, candidates, progress)
        if tokens:  # of a dataset with candidates, all documents are scored, and then those of each query are taken
            return maxsim.search_exhaustively(tokens, block, deep, progress)
        if index:
            assert isinstance(model, DenseModel)
            cut = approximate.truncate(block, dimensions, model.similarity)
            runtime = compute.start()
            return approximate.search_shards(indexes, cut, deep, index, runtime.device, runtime.gpu_search)
        found: Found = module(model.family).find(indexes, block, deep, compute)
        return found

    return limits.run(list(texts), documents, find, ids_of)


def _means(vectors: np.ndarray, passages: Sequence[list[str]], encoder: Encoder[np.ndarray]) -> np.ndarray:
    """Return the means of queries' vectors and those of the passages of each: float32 [queries, dimension]."""
    read = encoder.encode_documents(list(chain.from_iterable(passages)))
    of_each = np.split(read, np.cumsum([len(of_query) for of_query in passages])[:-1])
    together = (np.vstack([query, *of_query]) for query, of_query in zip(vectors, of_each, strict=True))
    return np.array([of_query.mean(0, np.float64) for of_query in together], np.float32)


def _truncated(encoder: Encoder[Any], method: str, texts: Mapping[str, str], rewrites: rewriting.Texts) -> Facts:
    """Count the texts that are longer than the model reads, where that is known, and warn of them."""
    read = chain.from_iterable(rewrites.values()) if method == "hyde" else texts.values()
    count = encoder.truncated([*read], "document" if method == "hyde" else "query")
    if count:
        longer = quantity(count, "rewritten text is", "rewritten texts are")
        warn(f"{longer} longer than the model reads (max_length), which cuts off the end")
    return {} if count is None else {"rewrites_truncated": count}


def open_retrieve_lexical(
    open_part: OpenPart,
    *,
    index: Path,
    queries: Path,
    rewrites: Path | None,
    method: str,
    fields: str,
    language: str,
    k1: float,
    b: float,
    rm3: Rm3 | None,
    depth: int,
    memory: int,
) -> OpenSystem:
    """Open a Lucene index, and the writer of rewritten queries, for single queries."""
    limits = Restrictions(queries, depth)
    writer: OpenWriter | None = open_part(rewrites) if rewrites else None
    searcher = lucene.Searcher(index, fields=fields, language=language, k1=k1, b=b, rm3=rm3, memory_mb=memory)

    def rank(texts: Mapping[str, str]) -> runs.Run:
        deep = limits.searched(_EVERY)
        if writer:
            texts = rewriting.for_words(method, texts, writer.write(texts))
        return {query: limits.ranking(query, *searcher.search(text, deep)) for query, text in texts.items()}

    return OpenSystem(rank, depth, writer=writer)


def open_retrieve_vectors(
    open_part: OpenPart,
    *,
    model: ModelEntry,
    checkpoint: Path | None,
    query_tower: Path | None,
    two_towers: bool,
    corpus: Path,
    queries: Path,
    rewrites: Path | None,
    method: str,
    depth: int,
    compute: Compute,
    index: AnyIndex | None,
    tokens: Sequence[Path],
    indexes: Sequence[Path],
    dimensions: int | None,
    candidates: int | None,
) -> OpenSystem:
    """Open the model of the queries, and the indexes, for single queries. All ids of the corpus are in memory."""
    limits = Restrictions(queries, depth)
    writer: OpenWriter | None = open_part(rewrites) if rewrites else None
    runtime = compute.start()
    documents = collection.count(corpus)
    encoder = open_encoder(query_checkpoint(checkpoint, query_tower), model, runtime)
    ids = collection.read_ids(corpus, np.arange(documents)[None])
    shards: dict[str, Any] = {
        "tokens": tokens,
        "indexes": [approximate.read_index(path, index) for path in indexes] if index else indexes,
        "index": index,
        "dimensions": dimensions,
        "candidates": candidates,
    }

    def rank(texts: Mapping[str, str], **others: Any) -> runs.Run:
        searched = shards | others
        if writer:
            written = writer.write(texts)
            texts = rewriting.for_vectors(method, texts, written)
            searched["passages"] = written if method == "hyde" else None
        return _ranked(texts, encoder, limits, lambda _: ids, documents, model, Compute(device="cpu"), **searched)

    exact = _built_from(indexes) if index else []
    rank_exactly = partial(rank, indexes=exact, index=None, dimensions=None) if exact else None
    return OpenSystem(rank, depth, runtime.hardware, encoder.precision, exact=rank_exactly, writer=writer)


def _built_from(indexes: Sequence[Path]) -> list[Path]:
    """Return the exact indexes from which others were built, as their records name them; none if one is gone."""
    inputs = [source for path in indexes for source in provenance.record_of(path).inputs]
    exact = [path for option, path, _ in inputs if option == "exact"]
    return exact if all(path.exists() for path in exact) else []


def _check(vectors: Any, texts: Mapping[str, str], precision: str) -> None:
    """Refuse vectors of queries that are not finite, or all the same."""
    checked = vectors.sums() if isinstance(vectors, TokenVectors) else vectors
    check_finite(checked, [f"query {quoted(query)}" for query in texts], precision)
    collapse = CollapseCheck(precision)
    collapse.add(checked, list(texts.values()))
    collapse.check("all queries")
