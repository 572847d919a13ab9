"""Memory at two sizes of a corpus: each stage of a grid, and exact search of many vectors.

    bench/scale.py [corpus] [vectors] [tokens] [texts] [--folder FOLDER] [--sizes SMALL LARGE]

``corpus`` runs a grid over synthetic documents (200,000 and 1,000,000) with random-weight models, in shards of
100,000. ``vectors`` runs ``index dense`` on random vectors (1,000,000 and 10,000,000 of 64 dimensions), a shard of
500,000 after the other, then ``retrieve dense`` on all. ``tokens`` does the same with ``index late-interaction`` and
``retrieve late-interaction`` for documents (100,000 and 1,000,000) of 10 token vectors of 32 dimensions, a shard of
50,000 after the other.
``texts`` encodes, expands and scores 20 documents of 1,000 and of 100,000 words with a random-weight model of each
family, for 5 queries as long.
What is printed comes from the records beside the
artifacts: the peak is the resident memory of the stage's process and of its largest child (Java); pages of mapped
files count, though the system may take them back at any time, and Java takes the heap that it is given before it
cleans up. 3 GB on disk, deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]  # the tests make the random models
QUERIES, SHARD = 500, {"corpus": 100_000, "vectors": 500_000, "tokens": 50_000}
DIMENSION, TOKENS, TOKEN_DIMENSION = 64, 10, 32
LONG_DOCUMENTS = 20
# Records by stage.
Records = dict[str, list[dict[str, Any]]]


def call(*arguments: str | Path) -> None:
    """Run a Python module; end with its output if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "HF_HUB_OFFLINE": "1"}
    from stage_words import stage_command

    module, *words = arguments
    own = module == "beirgrid"
    command = stage_command(*words) if own else [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}")


def texts(number: int, words: int, seed: int) -> Iterator[str]:
    """Yield random texts over a vocabulary of 5,000 words whose frequencies are as uneven as those of text."""
    choose = random.Random(seed)  # noqa: S311
    vocabulary = ["".join(choose.choices("abcdefghij", k=4)) for _ in range(5000)]
    weights = [1 / rank for rank in range(10, 5010)]
    for start in range(0, number, 10_000):
        drawn = choose.choices(vocabulary, weights, k=min(10_000, number - start) * words)
        yield from (" ".join(drawn[at : at + words]) for at in range(0, len(drawn), words))


def write_collection(folder: Path, documents: int) -> None:
    """Write documents, queries and qrels in BEIR layout."""
    (folder / "qrels").mkdir(parents=True)
    for name, number, words in (("corpus", documents, 3), ("queries", QUERIES, 3)):
        with (folder / f"{name}.jsonl").open("w") as stream:
            for row, text in enumerate(texts(number, words, seed=len(name))):
                stream.write(json.dumps({"_id": f"{name[0]}{row}", "title": "", "text": text}) + "\n")
    rows = "".join(f"q{query}\tc{query * 7 % documents}\t1\n" for query in range(QUERIES))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")


def corpus(folder: Path, documents: int) -> Records:
    """Run a grid of BM25, a dense system and a reranker; return the records of each stage."""
    import checkpoints

    write_collection(folder / "data", documents)
    dense, reranker = checkpoints.save_dense(folder / "dense"), checkpoints.save_cross_encoder(folder / "ce")
    models = {
        "tiny": {"family": "dense", "path": str(dense), "similarity": "cosine", "max_length": 32},
        "ce": {"family": "cross-encoder", "path": str(reranker), "max_length": 32},
    }
    settings = {
        "corpora": {"synthetic": {"source": "local", "path": str(folder / "data"), "documents": documents}},
        "datasets": {"synthetic": {"corpus": "synthetic", "queries": QUERIES}},
        "models": models,
        "systems": {
            "tiny": {"retriever": "tiny"},
            "tiny+ce": {"first_stage": "tiny", "reranker": "ce", "depth": 10},
        },
        "grid": {"systems": ["bm25-flat", "tiny", "tiny+ce"], "datasets": ["synthetic"]},
        "encode": {"shard": SHARD["corpus"]},
        "device": "cpu",
    }
    (folder / "grid.yaml").write_text(json.dumps(settings))  # JSON is YAML
    call("snakemake", "--cores", "1", "--configfile", folder / "grid.yaml", "--directory", folder)
    return records(folder / "results")


def write_vectors(folder: Path, number: int) -> None:
    """Write random vectors by shard, a matching encoder, and documents and queries."""
    import checkpoints
    import numpy as np

    generator = np.random.default_rng(0)
    checkpoints.save_dense(folder / "checkpoint", dimension=DIMENSION)
    for shard, start in enumerate(range(0, number, SHARD["vectors"])):
        rows = min(SHARD["vectors"], number - start)
        np.save(folder / f"{shard}.npy", generator.standard_normal((rows, DIMENSION), np.float32))
    write_texts(folder, number)


def write_tokens(folder: Path, number: int) -> None:
    """Write random token vectors by shard, a matching encoder, and documents and queries."""
    import checkpoints
    import numpy as np

    from beirgrid.search import maxsim

    generator = np.random.default_rng(0)
    checkpoints.save_pylate(folder / "checkpoint", dimension=TOKEN_DIMENSION)
    for shard, start in enumerate(range(0, number, SHARD["tokens"])):
        counts = np.full(min(SHARD["tokens"], number - start), TOKENS)
        vectors = generator.standard_normal((counts.sum(), TOKEN_DIMENSION), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        (folder / f"{shard}.tokens").mkdir()
        block = [maxsim.TokenVectors(vectors, counts)]
        maxsim.write_vectors(folder / f"{shard}.tokens", block, len(counts), TOKEN_DIMENSION)
    write_texts(folder, number)


def write_texts(folder: Path, documents: int) -> None:
    """Write documents, which only supply ids, and the queries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from beirgrid.collections import collection

    with pq.ParquetWriter(folder / "corpus.parquet", collection.CORPUS_SCHEMA) as writer:
        for start in range(0, documents, collection.ROW_GROUP):
            names = [f"d{row}" for row in range(start, min(start + collection.ROW_GROUP, documents))]
            writer.write_table(pa.table([names, [""] * len(names), names], schema=collection.CORPUS_SCHEMA))
    columns = [[f"q{query}" for query in range(QUERIES)], list(texts(QUERIES, 3, seed=0))]
    pq.write_table(pa.table(columns, schema=collection.QUERIES_SCHEMA), folder / "queries.parquet")


def vectors(folder: Path, number: int) -> Records:
    """Index and search random vectors, as the stages do; return their records."""
    results = prepare(folder, write_vectors, number)
    shards = [results / f"{shard}.faiss" for shard in range(len(list(folder.glob("*.npy"))))]
    for shard in shards:
        embeddings = folder / f"{shard.stem}.npy"
        made = shard.with_suffix(".json")
        call("beirgrid", "index", "dense", "--vectors", embeddings, "--output", shard, "--record", made)
        embeddings.unlink()
    retrieve(folder, "dense", {"family": "dense", "similarity": "dot"}, "--indexes", *shards)
    return records(results)


def tokens(folder: Path, number: int) -> Records:
    """Index random token vectors and search them by MaxSim, as the stages do; return their records."""
    results = prepare(folder, write_tokens, number)
    shards = [folder / f"{shard}.tokens" for shard in range(len(list(folder.glob("*.tokens"))))]
    indexes = [results / f"{shard.stem}.faiss" for shard in shards]
    for shard, index in zip(shards, indexes, strict=True):
        made = index.with_suffix(".json")
        call("beirgrid", "index", "late-interaction", "--vectors", shard, "--output", index, "--record", made)
    files: tuple[str | Path, ...] = ("--tokens", *shards, "--indexes", *indexes, "--candidates", "100")
    retrieve(folder, "late-interaction", {"family": "late-interaction"}, *files)
    return records(results)


def long_texts(folder: Path, words: int) -> Records:
    """Run each stage that reads texts with a model on long documents and queries; return their records."""
    results = prepare(folder, write_long_texts, words)
    models: dict[str, dict[str, Any]] = {
        "dense": {"family": "dense", "similarity": "cosine"},
        "splade": {"family": "sparse"},
        "pylate": {"family": "late-interaction"},
        "term-weights": {"family": "term-weights"},
        "query-generator": {"family": "query-generator", "queries_per_document": 1},
        "cross-encoder": {"family": "cross-encoder"},
        "seq2seq": {"family": "seq2seq-reranker"},
    }
    for name, spec in models.items():
        entry = json.dumps({**spec, "max_length": 96, "precision": "float32"})
        model = ("--model", entry, "--checkpoint", folder / name, "--device", "cpu")
        texts = ("--corpus", folder / "corpus.parquet")
        made = ("--record", results / f"{name}.json")
        if name in ("cross-encoder", "seq2seq"):
            pairs = (
                "--queries",
                folder / "queries.parquet",
                "--run",
                folder / "run.gz",
                "--pairs",
                folder / name / "p",
            )
            call("beirgrid", "score", *model, *texts, *pairs, *made)
        else:
            stage = "expand" if name in ("term-weights", "query-generator") else "encode"
            output = ("--shard-size", str(LONG_DOCUMENTS), "--output", folder / f"{name}.out")
            call("beirgrid", stage, *model, *texts, *output, *made)
    return {path.stem: [json.loads(path.read_text())] for path in sorted(results.glob("*.json"))}


def write_long_texts(folder: Path, words: int) -> None:
    """Write long documents and queries, a run of all pairs, and a checkpoint of each family."""
    import checkpoints
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from beirgrid.collections import collection
    from beirgrid.runs import runs

    for name in ("dense", "splade", "pylate", "term-weights", "query-generator", "cross-encoder", "seq2seq"):
        getattr(checkpoints, f"save_{name.replace('-', '_')}")(folder / name)
    documents = [f"d{row}" for row in range(LONG_DOCUMENTS)]
    columns = [documents, [""] * len(documents), list(texts(LONG_DOCUMENTS, words, seed=0))]
    pq.write_table(pa.table(columns, schema=collection.CORPUS_SCHEMA), folder / "corpus.parquet")
    queries = [f"q{row}" for row in range(5)]
    columns = [queries, list(texts(len(queries), words, seed=1))]
    pq.write_table(pa.table(columns, schema=collection.QUERIES_SCHEMA), folder / "queries.parquet")
    ranking = runs.Ranking(documents, np.arange(len(documents), 0, -1).astype(np.float32))
    runs.write(folder / "run.gz", dict.fromkeys(queries, ranking), "all")


def prepare(folder: Path, write: Callable[[Path, int], None], number: int) -> Path:
    """Write vectors in a separate process: memory of this one would count for its children; make results/."""
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(folder, number))
    writer.start()
    writer.join()
    (folder / "results").mkdir()
    return folder / "results"


def retrieve(folder: Path, kind: str, spec: dict[str, Any], *shards: str | Path) -> None:
    """Run ``retrieve`` on the files of a folder."""
    call(
        *("beirgrid", "retrieve", kind, "--system", "random"),
        *("--model", json.dumps(spec), "--checkpoint", folder / "checkpoint"),
        *("--corpus", folder / "corpus.parquet", "--queries", folder / "queries.parquet", *shards),
        *("--output", folder / "run.gz", "--record", folder / "results" / "run.json"),
    )


def records(folder: Path) -> Records:
    """Return the records under a folder by stage and, if a stage has several kinds of output, by kind."""
    found: Records = {}
    for path in sorted(folder.rglob("*.json")):
        made = json.loads(path.read_text())
        if "stage_version" not in made:
            continue  # a checkpoint's own file
        words = made["command"].split()[3:]
        words = words[2:] if words[0] == "--settings" else words
        found.setdefault(" ".join(word for word in words[:2] if not word.startswith("-")), []).append(made)
    return found


def show(sizes: list[int], results: list[Records]) -> None:
    """Print, per stage: jobs, peak memory of the largest, seconds of all, at each size."""
    print(f"{'':20}" + "".join(f"{size:>18,}{'':14}" for size in sizes))
    print(f"{'stage':20}" + f"{'jobs':>8}{'peak MB':>10}{'seconds':>10}    " * len(sizes))
    for stage in results[-1]:
        cells = ""
        for result in results:
            jobs = result[stage]
            peak, seconds = max(job["peak_memory_mb"] for job in jobs), sum(job["seconds"] for job in jobs)
            cells += f"{len(jobs):>8}{peak:>10.0f}{seconds:>10.1f}    "
        searches = [result[stage][0]["facts"].get("query_seconds") for result in results]
        rates = ", ".join(f"{QUERIES / seconds:.0f} queries/s" for seconds in searches if seconds)
        print(f"{stage:20}{cells}{rates}", flush=True)


PARTS: dict[str, tuple[Callable[..., Records], list[int]]] = {
    "corpus": (corpus, [200_000, 1_000_000]),
    "vectors": (vectors, [1_000_000, 10_000_000]),
    "tokens": (tokens, [100_000, 1_000_000]),
    "texts": (long_texts, [1000, 100_000]),
}


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--folder", help="where to put the files (the system's folder for temporaries)")
    parser.add_argument("--sizes", nargs=2, type=int, help="documents, vectors or words, instead of the parts' own")
    args = parser.parse_args()
    for name in args.what:
        run, sizes = PARTS[name][0], args.sizes or PARTS[name][1]
        results = []
        for size in sizes:
            folder = Path(tempfile.mkdtemp(prefix="beirgrid-scale-", dir=args.folder))
            try:
                results.append(run(folder, size))
            finally:
                shutil.rmtree(folder)
        shards = f", shards of {SHARD[name]:,}, {QUERIES} queries" if name in SHARD else " of so many words"
        print(f"{name}{shards}")
        show(sizes, results)


if __name__ == "__main__":
    main()
