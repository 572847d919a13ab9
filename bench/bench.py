"""Compare the speed of beirgrid with what one would otherwise run, as ratios: ``make bench``.

Each contender runs in a process of its own, start-up included, one after the other.

Usage: bench.py [--scifact FOLDER] [--output FOLDER] [PART …], of encode, dense, bm25, sparse, late, search, generation,
grid and dag.

``make bench BENCH=small`` runs a small form of every part, to test the parts. Its times mean nothing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]  # the tests write jobs as words
SCIFACT = ROOT.parent / "shared" / "data" / "beir" / "scifact"
DEMO = ROOT / "workflow" / "resources" / "demo"
PYTHON = sys.executable
SMALL = os.environ.get("BENCH") == "small"
REPEATS = 1 if SMALL else 3
# The small form runs comparisons side by side. Several threads would spend most of the time waiting for each other.
THREADS = {"OMP_NUM_THREADS": "1"} if SMALL else {}


def run(command: Sequence[object], environment: dict[str, str] | None = None) -> tuple[float, float, str]:
    """Run a command; return seconds, peak memory in MB and standard output."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), **THREADS, **(environment or {})}
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


class Row(NamedTuple):
    """One comparison: the seconds of both contenders, and the target ratio."""

    comparison: str
    ours: float
    theirs: float
    aim: float
    note: str

    @property
    def ratio(self) -> float:
        """The other contender's seconds divided by ours."""
        return self.theirs / self.ours


ROWS: list[Row] = []


def show(name: str, ours: float, theirs: float, wanted: float, note: str = "") -> None:
    """Print a comparison and add it to the table."""
    row = Row(name, ours, theirs, wanted, note)
    aim = "small form: no measurement" if SMALL else f"aim {wanted}"
    print(f"{name}: {ours:.2f} s against {theirs:.2f} s, ratio {row.ratio:.2f} ({aim}) {note}", flush=True)
    ROWS.append(row)


def write_table(folder: Path) -> None:
    """Write the comparisons as bench.md and bench.json."""
    from beirgrid.core.compute import cpu_name

    machine = f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores"
    lines = [f"Machine: {machine}. {'Small form: no measurement.' if SMALL else f'Medians of {REPEATS} rounds.'}", ""]
    lines += ["| comparison | beirgrid, s | other, s | ratio | aim | note |", "|---|---:|---:|---:|---:|---|"]
    for row in ROWS:
        lines.append(
            f"| {row.comparison} | {row.ours:.2f} | {row.theirs:.2f} | {row.ratio:.2f} | {row.aim} | {row.note} |"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [{**row._asdict(), "ratio": row.ratio} for row in ROWS]
    (folder / "bench.json").write_text(json.dumps({"machine": machine, "small": SMALL, "rows": rows}, indent=2) + "\n")
    print(f"Table: {folder / 'bench.md'}")


def medians(contenders: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Return the median seconds of contenders, run in alternating rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(REPEATS):
        for name, measure in contenders.items():
            seconds[name].append(measure())
    return {name: statistics.median(measured) for name, measured in seconds.items()}


def figures_of(names: list[str], script: Path, folder: Path) -> dict[str, list[list[float]]]:
    """Make the data of a part and run its contenders in alternating rounds; return the figures that each printed.

    The small form runs them in one process, because importing the libraries takes longer than measuring.
    """
    words = ["make", *names * REPEATS]
    commands = [",".join(words)] if SMALL else words
    lines = [line for command in commands for line in run([PYTHON, script, command, folder])[2].splitlines()]
    figures = [[float(figure) for figure in line.split()] for line in lines]
    return {name: figures[number :: len(names)] for number, name in enumerate(names)}


def beirgrid(*arguments: str | Path) -> list[str | Path]:
    """Return the command of a stage."""
    from stage_words import stage_command

    command: list[str | Path] = stage_command(*arguments, python=PYTHON)
    return command


# A sample of SciFact × minilm, from the raw corpus to metrics

# Documents of the sample, judged documents first.
DOCUMENTS = 20 if SMALL else 600


def model_folder(folder: Path) -> tuple[Path, str]:
    """Fetch MiniLM into ``folder``; return its checkpoint and the entry that encodes with it, as JSON."""
    import yaml

    entry = yaml.safe_load((ROOT / "config/systems.yaml").read_text())["models"]["minilm"]
    fetched = json.dumps({key: entry[key] for key in ("checkpoint", "revision", "package", "files")})
    output, record = folder / "minilm", folder / "minilm.json"
    run(beirgrid("fetch", "model", "--name", "minilm", "--entry", fetched, "--output", output, "--record", record))
    return output, json.dumps({key: entry[key] for key in ("family", "similarity", "max_length")})


def cell_beirgrid(data: Path, folder: Path, checkpoint: Path, entry: str, precision: str) -> None:
    """Run all stages of one dense cell in this process."""
    from stage_words import stage_job

    from beirgrid.__main__ import main
    from beirgrid.results import scores

    corpus = json.dumps({"source": "local", "path": str(data)})

    def stage(*arguments: str | Path) -> None:
        command, text = stage_job(*arguments)
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
        if main(command):
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
    """Run the same cell with the beir package, as its README does."""
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
    """Compare one dense cell on a sample of SciFact with beir, in every precision that the CPU multiplies."""
    from beirgrid.core.compute import multiplies_bfloat16

    checkpoint, entry = model_folder(folder)
    sample, script = write_sample(data, folder / "scifact"), Path(__file__)
    values: dict[str, float] = {}

    def measure(name: str, *arguments: str | Path) -> float:
        seconds, memory, text = run([PYTHON, script, *arguments])
        values[name] = float(text.split()[-1])
        print(f"  {name}: {seconds:.1f} s, {memory:.0f} MB, nDCG@10 {values[name]:.5f}", flush=True)
        return seconds

    def ours(precision: str) -> float:
        shutil.rmtree(part := folder / precision, ignore_errors=True)
        part.mkdir()
        return measure(precision, "cell-beirgrid", sample, part, checkpoint, entry, precision)

    precisions = ["float32", *["bfloat16"] * (multiplies_bfloat16("cpu") and not SMALL)]
    contenders = {precision: partial(ours, precision) for precision in precisions}
    seconds = medians({"beir": lambda: measure("beir", "cell-beir", sample, checkpoint), **contenders})
    documents = (sample / "corpus.jsonl").read_text("utf-8").count("\n")
    for precision in precisions:
        name = f"{data.name} ({documents} documents) × minilm, {precision}"
        note = f"nDCG@10 {values[precision]:.5f} and {values['beir']:.5f}"
        show(name, seconds[precision], seconds["beir"], {"float32": 1, "bfloat16": 2.5}[precision], note)


def write_sample(data: Path, folder: Path) -> Path:
    """Write a sample of a collection, judged documents first, as a collection; return its folder."""
    from beirgrid.collections import lines

    (folder / "qrels").mkdir(parents=True)
    shutil.copy(data / "queries.jsonl", folder)
    header, *judgements = (data / "qrels/test.tsv").read_text("utf-8").splitlines(keepends=True)
    judged = {line.split("\t")[1] for line in judgements}
    documents = {json.loads(line)["_id"]: f"{line}\n" for line, _ in lines.read(data / "corpus.jsonl")}
    kept = dict(sorted(documents.items(), key=lambda document: document[0] not in judged)[:DOCUMENTS])
    (folder / "corpus.jsonl").write_text("".join(kept.values()), encoding="utf-8")
    of_kept = (line for line in judgements if line.split("\t")[1] in kept)
    (folder / "qrels/test.tsv").write_text("".join([header, *of_kept]), encoding="utf-8")
    return folder


# Models alone

# Texts (or pairs) that each kind of model computes on a CPU.
TEXTS = {"dense": 600, "dense-base": 40, "cross-encoder": 200, "sparse": 200, "late-interaction": 200, "static": 5000}


def encode(data: Path, folder: Path) -> None:
    """Compare each kind of model with sentence-transformers on a sample."""
    checkpoint, _ = model_folder(folder)
    script = Path(__file__).with_name("encoding.py")
    # The small form runs all kinds in one process, because importing the libraries takes longer than encoding.
    numbers = {",".join(TEXTS): 3} if SMALL else TEXTS
    for kinds, number in numbers.items():
        words = [kinds, checkpoint, data / "corpus.jsonl", number, REPEATS]
        for line in run([PYTHON, script, *words])[2].splitlines():
            show_encoding(json.loads(line))


def show_encoding(found: dict[str, Any]) -> None:
    """Print the speed of one precision against sentence-transformers' default, and against sentence-transformers in 16
    bits.
    """
    precision, ours = found["precision"], found["ours"]
    name = f"{found['kind']}, {found['texts']} texts, {precision}, against sentence-transformers in"
    note = f"{found['texts'] / ours:.1f} texts/s"
    show(f"{name} float32", ours, found["theirs"], {"float32": 1, "bfloat16": 2}.get(precision, 5), note)
    if precision != "float32":
        show(f"{name} {precision}", ours, found["theirs_alike"], 1.5 if precision == "float16" else 1)


# SciFact × BM25


def pyserini(kind: str, jsonl: Path, topics: Path, folder: Path) -> float:
    """Index and search a collection with pyserini's commands; return their seconds. The run is FOLDER/run.

    ``kind`` is Flat or Multifield.
    """
    from beirgrid.search import lucene

    shutil.rmtree(folder, ignore_errors=True)
    home, threads = Path(lucene.java()).resolve().parent.parent, str(len(os.sched_getaffinity(0)))
    environment = {
        "JAVA_HOME": str(home),
        "JVM_PATH": str(home / "lib/server/libjvm.so"),
        "ANSERINI_CLASSPATH": "/nonexistent",
        "CLASSPATH": str(lucene.jar()),
        "OPENAI_API_KEY": "unused",
    }
    index = [PYTHON, "-m", "pyserini.index.lucene", "--collection", f"Beir{kind}Collection", "--input", jsonl]
    index += ["--index", folder / "index", "--generator", "DefaultLuceneDocumentGenerator", "--threads", threads]
    search = [PYTHON, "-m", "pyserini.search.lucene", "--index", folder / "index", "--bm25", "--hits", "1000"]
    search += ["--topics", topics, "--output", folder / "run", "--remove-query", "--threads", threads, "--batch", "32"]
    if kind == "Multifield":
        search += ["--fields", "contents=1.0", "title=1.0"]
    return run(index, environment)[0] + run(search, environment)[0]


def bm25(data: Path, folder: Path) -> None:
    """Compare indexing and search with BM25 with pyserini's own commands, on the same fetched files."""
    from beirgrid.collections import collection

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

    def ours() -> float:
        shutil.rmtree(folder / "ours", ignore_errors=True)
        index = ("index", "lexical", "--corpus", documents, *options, "--output", folder / "ours", "--record", record)
        search = ("retrieve", "lexical", "--system", "bm25-flat", "--index", folder / "ours", *options)
        found = ("--queries", queries, "--output", folder / "ours.run.gz", "--record", record)
        return run(beirgrid(*index))[0] + run(beirgrid(*search, *found))[0]

    jsonl = folder / "jsonl"
    jsonl.mkdir()
    (jsonl / "corpus.jsonl").symlink_to(data / "corpus.jsonl")
    texts = collection.read_queries(queries)
    (folder / "topics.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in texts.items()))

    def theirs() -> float:
        return pyserini("Flat", jsonl, folder / "topics.tsv", folder / "theirs")

    seconds = medians({"ours": ours, "theirs": theirs})
    show(f"{data.name} × bm25-flat, index and search", seconds["ours"], seconds["theirs"], 3)


# Search of learned sparse vectors


def sparse(folder: Path) -> None:
    """Compare the search of random SPLADE-like vectors with Lucene's impact index, start-up included."""
    from beirgrid.search import lucene

    script = Path(__file__).with_name("sparse.py")
    size = run([PYTHON, script, "make", folder])[2].strip()
    made, threads = folder / "made.json", str(len(os.sched_getaffinity(0)))
    run(beirgrid("index", "sparse", "--vectors", folder / "0.npz", "--output", folder / "ours", "--record", made))
    java = [lucene.java(), "-cp", lucene.jar()]
    index = ["io.anserini.index.IndexCollection", "-collection", "JsonVectorCollection", "-input", folder / "json"]
    index += ["-index", folder / "theirs", "-generator", "DefaultLuceneDocumentGenerator", "-threads", threads]
    run([*java, *index, "-impact", "-pretokenized"])
    search = ["io.anserini.search.SearchCollection", "-index", folder / "theirs", "-topics", folder / "topics.tsv"]
    search += ["-topicReader", "TsvString", "-output", folder / "theirs.trec", "-impact", "-pretokenized"]
    commands: dict[str, list[object]] = {
        "ours": [PYTHON, script, "search", folder],
        "theirs": [*java, *search, "-hits", "1000", "-threads", threads],
    }

    def searched(name: str) -> float:
        return run(commands[name])[0]

    seconds = medians({name: partial(searched, name) for name in commands})
    show(f"sparse search, {size}, top 1000", seconds["ours"], seconds["theirs"], 4, "theirs has rounded weights")


# Late interaction


def late(folder: Path) -> None:
    """Compare a search of token vectors on disk with sentence-transformers' MaxSim over them, without start-up."""
    script = Path(__file__).with_name("late.py")
    measured = figures_of(["exhaustive", "candidates", "theirs"], script, folder)
    seconds = {name: statistics.median(figure[0] for figure in figures) for name, figures in measured.items()}
    size = "30 documents, 3 queries" if SMALL else "2,000 documents, 30 queries"
    note = f"candidates from an index take {seconds['candidates']:.2f} s"
    name = f"late interaction, {size}, all documents scored, against sentence-transformers"
    show(name, seconds["exhaustive"], seconds["theirs"], 2, note)


# Exact search


def search(folder: Path) -> None:
    """Compare exact search from shards on disk with faiss on the same files and PyTorch in memory, without start-up."""
    names = ["ours", "faiss", "memory", "torch", "limit"]
    measured = figures_of(names, Path(__file__).with_name("search.py"), folder)
    seconds = {name: statistics.median(figure[0] for figure in figures) for name, figures in measured.items()}
    memory = max(figure[1] for figure in measured["ours"])
    ours, size = seconds["ours"], "10,000 × 384, 50 queries" if SMALL else "1,000,000 × 384, 1,000 queries"
    others = {"memory": "faiss.knn in memory takes", "limit": "the products alone take"}
    notes = [f"{memory:.0f} MB above start-up", *(f"{text} {seconds[name]:.2f} s" for name, text in others.items())]
    show(f"exact search, {size}, top 1000, against faiss", ours, seconds["faiss"], 1, "; ".join(notes))
    show(f"exact search, {size}, top 1000, against PyTorch in memory", ours, seconds["torch"], 1)


# Generation


def generation(folder: Path) -> None:
    """Compare sampling with a T5-base of random weights with transformers' generate, without start-up."""
    measured = figures_of(["ours", "theirs"], Path(__file__).with_name("generation.py"), folder)
    seconds = {name: statistics.median(figure[0] for figure in figures) for name, figures in measured.items()}
    size = "4 queries of 4 pieces for each of 2" if SMALL else "40 queries of 16 pieces for each of 6"
    show(f"generation, {size} documents of 150 words", seconds["ours"], seconds["theirs"], 4)


# A whole grid


def grid(data: Path, folder: Path) -> None:
    """Compare six systems on small collections with scripts of beir and pyserini, and with the stages' seconds."""
    script = Path(__file__).with_name("grid.py")
    checkpoint, _ = model_folder(folder)
    run([PYTHON, script, "make", data, checkpoint, folder])
    collections = sorted(folder.glob("sentences*"))
    worked: list[float] = []

    def ours() -> float:
        results = Path(tempfile.mkdtemp(dir=folder))
        command = [PYTHON, "-m", "snakemake", "--profile", "profiles/local", "--configfile", folder / "grid.yaml"]
        seconds, _, _ = run([*command, "--directory", results, "--quiet", "progress", "rules"])
        records = [json.loads(path.read_text()) for path in (results / "results").rglob("*.json")]
        work = [record["seconds"] for record in records if isinstance(record, dict) and "stage_version" in record]
        print(f"  {len(work)} records: {sum(work):.1f} s of {seconds:.1f} s", flush=True)
        worked.append(sum(work))
        return seconds

    def theirs() -> float:
        seconds = 0.0
        for collection in collections:
            found = folder / f"theirs-{collection.name}"
            jsonl = folder / f"jsonl-{collection.name}"
            jsonl.mkdir(exist_ok=True)
            if not (jsonl / "corpus.jsonl").exists():
                (jsonl / "corpus.jsonl").symlink_to(collection / "corpus.jsonl")
            for kind in ["Multifield"] if SMALL else ["Flat", "Multifield"]:
                seconds += pyserini(kind, jsonl, collection / "topics.tsv", found / kind.lower())
            if SMALL:  # the part bm25 runs the commands of Flat
                (found / "flat").symlink_to("multifield")
            command = [PYTHON, script, "theirs", collection, checkpoint, folder / "reranker", found]
            # The small form fuses five queries, which takes less time than compiling ranx.
            seconds += run(command, {"NUMBA_DISABLE_JIT": "1"} if SMALL else None)[0]
        return seconds

    seconds = medians({"ours": ours, "theirs": theirs})
    name = f"6 systems × {len(collections)} small collections"
    show(f"{name}, against beir and pyserini", seconds["ours"], seconds["theirs"], 1)
    show(f"{name}, against the sum of the stages' work", seconds["ours"], statistics.median(worked), 0.8)


# The job graph


def dag(folder: Path) -> None:
    """Compare ``snakemake -n`` of a wide grid with a bare workflow of as many trivial jobs."""
    import yaml

    names = [f"set{number}" for number in range(3 if SMALL else 30)]
    # A checkpoint on the hub: Snakemake plans its download without reading it.
    model = yaml.safe_load((ROOT / "config/systems.yaml").read_text())["models"]["contriever"]
    systems: dict[str, Any] = {f"dense{i}": {"retriever": f"dense{i}"} for i in range(4)}
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
    jobs = int(re.findall(r"^total +(\d+)", runs[0][2], re.MULTILINE)[0])
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
}


def main() -> None:
    """Run the named comparisons, or all."""
    if len(sys.argv) > 1 and sys.argv[1] in INTERNAL:
        INTERNAL[sys.argv[1]](sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts: list[Callable[..., None]] = [dense, encode, bm25, sparse, late, search, generation, grid, dag]
    functions = {part.__name__: part for part in parts}
    parser.add_argument("what", nargs="*", default=list(functions))
    parser.add_argument("--scifact", type=Path, default=DEMO if SMALL else SCIFACT, help="SciFact in BEIR layout")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "bench", help="folder for the table")
    args = parser.parse_args()
    on_scifact = {"encode", "dense", "bm25", "grid"}
    if on_scifact & set(args.what) and not args.scifact.is_dir():
        others = " ".join(name for name in functions if name not in on_scifact)
        sys.exit(f"no SciFact at {args.scifact}: give --scifact FOLDER, or name other comparisons: {others}")

    def compare(name: str) -> None:
        print(f"{name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="beirgrid-bench-") as folder:
            data = (args.scifact.resolve(),) if name in on_scifact else ()
            functions[name](*data, Path(folder))

    # The small form measures nothing, so its comparisons may disturb each other.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if SMALL else 1) as pool:
        list(pool.map(compare, args.what))
    write_table(args.output)


if __name__ == "__main__":
    main()
