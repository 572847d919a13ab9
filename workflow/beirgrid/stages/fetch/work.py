"""Stage fetch: bring corpora, datasets, checkpoints and external runs into one form, and check them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from ...collections import collection, ingest, overlaps, predictions, slices
from ...collections.sources import open_source
from ...config.datasets import Corpus, Dataset, Slice
from ...config.systems import Published
from ...config.values import Size
from ...core import files
from ...core.checkout import resolve_path
from ...core.errors import DataError, quantity
from ...core.provenance import Artifact, Facts, Made
from ...models import checkpoints, endpoints, saved
from ...models.checkpoints import CheckpointEntry
from ...runs.restrictions import Allow, adopt


def fetch_corpus(
    *,
    name: Annotated[str, "name of the corpus"],
    entry: Annotated[Corpus, "registry entry of the corpus, JSON"],
    output: Annotated[Path, "corpus.parquet to write: _id, title, text, in the source's order"],
) -> Facts:
    """Fetch the documents of a corpus.

    Raises:
        DataError: the corpus cannot be read, is empty, has duplicate ids, or differs from its entry in the number of
            documents.
    """
    with files.atomic(output) as temporary:
        facts = ingest.write_corpus(name, entry, open_source(entry), temporary)
    return {**facts, "bytes": files.size(output), "sha256": files.sha256(output)}


def fetch_dataset(
    *,
    name: Annotated[str, "name of the dataset"],
    entry: Annotated[Dataset, "registry entry of the dataset, JSON"],
    corpus_entry: Annotated[Corpus, "registry entry of its corpus, JSON"],
    corpus: Annotated[Artifact, "the fetched corpus.parquet"],
    queries: Annotated[Path, "queries.parquet to write: _id, text and, of some datasets, excluded or candidates"],
    qrels: Annotated[Path, "qrels.tsv to write"],
) -> Facts:
    """Fetch the judged queries and the qrels of a dataset, checked against each other and the corpus.

    Raises:
        DataError: queries, qrels and corpus do not match each other or the dataset's entry.
    """
    found = ingest.read_judged(name, entry, corpus_entry, open_source(corpus_entry), corpus)
    # Both files are complete before either is renamed, so that new queries never stand beside old qrels.
    with files.atomic(queries) as new_queries, files.atomic(qrels) as new_qrels:
        _write_queries(found, new_queries)
        _write_qrels(found, new_qrels)
    hashes = {path.name: files.sha256(path) for path in (queries, qrels)}
    return {**found.facts, "sha256": hashes}


def _write_queries(found: ingest.Judged, path: Path) -> None:
    table = pa.table([list(found.texts), list(found.texts.values())], schema=collection.QUERIES_SCHEMA)
    not_ranked = [found.excluded.get(query, []) for query in found.texts]
    if any(not_ranked):
        table = table.append_column(collection.EXCLUDED, [not_ranked])
    if found.candidates:
        table = table.append_column(collection.CANDIDATES, [[found.candidates[query] for query in found.texts]])
    pq.write_table(table, path)


def _write_qrels(found: ingest.Judged, path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.write("query-id\tcorpus-id\tscore" + "\tchanged" * bool(found.changes) + "\n")
        for query in found.texts:
            for document, grade in found.grades.get(query, {}).items():
                changed = f"\t{int(document in found.changes.get(query, ()))}" if found.changes else ""
                stream.write(f"{query}\t{document}\t{grade}{changed}\n")


def fetch_slice(
    *,
    name: Annotated[str, "key of the slice"],
    entry: Annotated[Slice, "registry entry of the slice, JSON"],
    queries: Annotated[Artifact, "the fetched queries.parquet"],
    others: Annotated[Artifact | None, "queries.parquet of the dataset that has the queries of the slice"] = None,
    tested: Annotated[tuple[Artifact, ...], "corpus and qrels of the dataset, if there is a training set"] = (),
    training: Annotated[tuple[Artifact, ...], "corpus, qrels and queries of the training set"] = (),
    dataset: Annotated[Dataset | None, "registry entry of the dataset, JSON, if the slice names a column"] = None,
    corpus_entry: Annotated[Corpus | None, "registry entry of its corpus, JSON, as above"] = None,
) -> Made:
    """Choose the queries of a slice of a dataset. The record has their ids.

    Raises:
        BeirgridError: a slice names a language, and py3langid is not installed.
        DataError: a query is not judged, no query has the column, or no or every query is chosen.
    """
    texts = collection.read_queries(queries)
    met = [slices.of_length(texts, entry.least_words, entry.most_words)]
    if entry.path:
        met.append(slices.listed(resolve_path(entry.path), texts))
    if entry.column and dataset and corpus_entry:
        met.append(slices.of_value(name, entry.column, entry.value, open_source(corpus_entry).queries(dataset)))
    if others:
        met.append(slices.in_both(f"{others} ({name}.dataset)", texts, collection.read_queries(others)))
    if training:
        if (len(tested), len(training)) != (2, 3):
            raise DataError(f"{training[0]}: a slice needs two files of its dataset and three of its training set")
        corpus, qrels = tested
        met.append(overlaps.seen(overlaps.texts(corpus, qrels, queries), overlaps.texts(*training)))
    facts = {}
    if entry.language:
        languages = slices.languages(name, texts, entry.language)
        met.append({query for query, language in languages.items() if language == entry.language})
        facts["unsure"] = [*languages.values()].count(slices.UNSURE)
    kept = [query for query in texts if all(query in of_key for of_key in met) != entry.invert]
    if not 0 < len(kept) < len(texts):
        file = resolve_path(entry.path) if entry.path else queries
        number = f"{len(kept):,} of {quantity(len(texts), 'query')}"
        raise DataError(f"{file} ({name}): {number}: a slice has some, and not all. Change its keys")
    return Made({"queries": len(kept), "of": len(texts), **facts}, {"kept": kept})


def fetch_expansion(
    *,
    entry: Annotated[Published, "entry of the published expansion, JSON"],
    corpus: Annotated[Artifact, "the fetched corpus.parquet"],
    output: Annotated[Path, ".parquet to write, a row per document"],
) -> Facts:
    """Fetch published queries (doc2query expansions) for the documents of a corpus.

    Raises:
        DataError: the files cannot be fetched or read, or do not fit the corpus.
    """
    with files.scratch(f"{output}-files") as folder, files.scratch(f"{output}-buckets") as buckets:
        folder.mkdir()
        buckets.mkdir()
        place = predictions.obtain(entry, folder)
        with files.atomic(output) as temporary:
            facts = predictions.write(entry, predictions.read(place), corpus, temporary, buckets)
    return {**facts, "bytes": files.size(output)}


def fetch_model(
    *,
    name: Annotated[str, "name of the model"],
    entry: Annotated[CheckpointEntry, "registry entry of the model, JSON"],
    prompts: Annotated[tuple[Literal["query", "document"], ...], "sides with a prompt in the entry"] = (),
    source: Annotated[str, "source of the registry entry's keys, for the record"] = "",
    connection: Annotated[str, "connection settings of an endpoint's server, JSON"] = "",
    output: Annotated[Path, "folder to write"],
) -> Facts:
    """Fetch a model's checkpoint and verify its hashes; for an endpoint, fetch its responses to fixed texts.

    Raises:
        DataError: the checkpoint cannot be fetched, differs from its entry, or has prompts that the entry does not
            mention.
    """
    with files.atomic(output, directory=True) as temporary:
        if entry.endpoint:
            facts = endpoints.fetch(entry.family, entry.endpoint.connected(connection), temporary)
        else:
            facts = checkpoints.fetch(name, entry, temporary)
            saved.check_prompts(name, temporary, prompts)
    facts |= {"bytes": files.size(output)} | ({} if entry.endpoint else {"states": saved.own_settings(output)})
    facts |= {"entry": source} if source else {}
    return facts


def fetch_run(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    run: Annotated[Path, "run of other software, TREC format, plain or .gz"],
    queries: Annotated[Artifact, "queries.parquet"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    depth: Annotated[Size, "documents per query to keep"] = 1000,
    allow: Allow = (),
    output: Annotated[Path, "run to write, .run.gz"],
) -> Facts:
    """Fetch a run of other software, and check it against the dataset and its corpus.

    Raises:
        DataError: a line cannot be read, a document is not in the corpus, or a query with qrels is missing.
    """
    facts = adopt(run, system, queries, corpus, depth, allow, output)
    return {**facts, "source": str(run), "source_sha256": files.sha256(run)}
