"""Show on a GPU what the project promises of one: ``make gpu [DEVICE=cpu] [PARTS="parity speed workflow costs"]``.

Usage: gpu.py parity|speed|workflow|costs|page. Each check writes build/gpu/DEVICE/gpu.json when it ends, so a second
call goes on with what is left. ``page`` makes the page from that file, and ends with status 1 if a check failed. All
weights are random, of the true shapes: nothing is downloaded. ``DEVICE=cpu`` has tiny shapes and sizes, and shows that
every part works; its speeds mean nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import checkpoints
import encoding
import faiss
import generation
import numpy as np
import torch
from search import search_by_topk
from transformers import AutoModel

from beirgrid.collections import collection
from beirgrid.core import files, paths, provenance
from beirgrid.core.compute import Compute, GpuSearch, cpu_name
from beirgrid.execution.open_systems import open_system
from beirgrid.graph import resources, sizes
from beirgrid.runs import runs
from beirgrid.search import exact
from beirgrid.stages.train.work import TrainRecipe, fit_cross_encoder

ROOT = Path(__file__).parent.parent
NAMES = ("torch", "transformers", "sentence-transformers", "faiss-cpu", "faiss-gpu", "snakemake", "numpy")
SMALL = os.environ.get("BENCH") == "small"
DEVICE: Literal["cuda", "cpu"] = "cpu" if SMALL else "cuda"
# The device of searches. ``cpu`` would be faiss; this name is the code of the GPU, on a CPU.
TORCH = "cuda" if DEVICE == "cuda" else "cpu:0"
# What multiplies vectors on the GPU: faiss too, where faiss-gpu is installed.
LIBRARIES: tuple[GpuSearch, ...] = ("torch", "faiss") if faiss.get_num_gpus() else ("torch",)
FOLDER = ROOT / "build" / "gpu" / DEVICE
PRECISIONS: tuple[Literal["float32", "float16", "bfloat16"], ...] = ("float32", "float16", "bfloat16")
# The largest distance of unit vectors that a number format may bring. TF32, which PyTorch leaves off, has about 1e-3.
TOLERANCE = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.1}
# The share of the proof's error that products in float32 stay below. Factors rounded to TF32 take a tenth and more.
BOUND = 0.01
# Texts (or pairs) of each comparison of speed; of generation, documents.
TEXTS = {**dict.fromkeys(encoding.MODELS, 6_000), "dense": 20_000, "decoder": 1_500, "generation": 64}
# Vectors that are searched for 1,000 queries, and their dimension.
VECTORS: tuple[int, ...] = (1_000_000, 4_000_000, 9_000_000)
QUERIES, DIMENSION, DEPTH = 1000, 768, 1000
# Texts in a batch of sentence-transformers: the faster of the two counts.
BATCHES = (64, 256)
ROUNDS = 2
# Words of all tokenizers, each of which is one token.
WORDS = [f"w{number}" for number in range(2000 if SMALL else 25_000)]
if SMALL:
    TEXTS = dict.fromkeys(TEXTS, 24)
    VECTORS = (5000,)
    QUERIES = 20
    DEPTH = 100
    ROUNDS = 1

Result = dict[str, Any]
# What each check saw, by part and name.
Checks = dict[str, dict[str, Result]]


class Results:
    """The file of results, written anew after each check."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gpu.json"
        self.machine = machine()
        self.checks: Checks = {part: {} for part in PARTS}
        if self.path.exists():
            before = files.read_json(self.path)
            if all(before["machine"][key] == self.machine[key] for key in ("card", "versions")):
                self.checks |= before["checks"]

    def run(self, part: str, checks: Mapping[str, Callable[[], Result]]) -> None:
        """Run the checks of a part that have not passed, one after the other. An error fails its check alone."""
        self.write(part, "all checks ran", {"passed": False, "error": "the process ended before"})
        for name, check in checks.items():
            if self.checks[part].get(name, {}).get("passed"):
                continue
            started = time.monotonic()
            try:
                found = check()
            except Exception as error:
                found = {"passed": False, "error": f"{type(error).__name__}: {error}"}
            found["seconds"] = round(time.monotonic() - started, 1)
            self.write(part, name, found)
            print(f"{'passed' if found['passed'] else 'FAILED'} {part}: {name} {json.dumps(found)}", flush=True)
        self.write(part, "all checks ran", {"passed": True})

    def write(self, part: str, name: str, found: Result) -> None:
        """Write what a check saw."""
        self.checks[part][name] = found
        self.path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(self.path, {"machine": self.machine, "checks": self.checks})


@cache
def machine() -> dict[str, Any]:
    """Return card, driver, versions (of beirgrid with its commit) and date."""
    card, driver = f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores", "none"
    if DEVICE == "cuda":
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
        card, driver = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().split(", ")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    commit = os.environ.get("COMMIT")  # for a copy of the checkout without its history
    versions = provenance.installed(NAMES) | ({"beirgrid": commit} if commit else {})
    return {"card": card, "driver": driver, "date": today, "versions": versions}


# Models


def texts(count: int, longest: int, kind: str = "", seed: int = 0) -> list[Any]:
    """Write random texts of 1/4 to all of ``longest`` words; for a cross-encoder, pairs with queries of 8 words."""
    choose = random.Random(seed)  # noqa: S311
    lengths = [choose.randint(max(longest // 4, 1), longest) for _ in range(count)]
    written = [" ".join(choose.choices(WORDS, k=length)) for length in lengths]
    if kind == "cross-encoder":
        return [(" ".join(choose.choices(WORDS, k=8)), text) for text in written]
    return written


@cache
def scratch() -> Path:
    """Return a temporary folder, which ends with the process (``main``)."""
    return Path(tempfile.mkdtemp())


@cache
def checkpoint(kind: str) -> Path:
    """Save a checkpoint in a temporary folder of this process; return its path."""
    folder = scratch() / kind
    folder.mkdir()
    torch.manual_seed(0)
    if save := encoding.MODELS[kind].save:
        save(checkpoint("dense"), folder)
    else:
        encoding.save_minilm(folder, WORDS)
    return folder


def opened(kind: str, device: Literal["cuda", "cpu"], precision: Any) -> tuple[Any, Any]:
    """Open a checkpoint on a device; return the model, and the function that computes texts (or pairs)."""
    return encoding.open_ours(encoding.MODELS[kind], checkpoint(kind), Compute(device, precision).start())


# Parity


def rows(found: Any) -> np.ndarray:
    """Return vectors, token vectors, sparse vectors or scores as one array, float32 [rows, numbers]."""
    found = found.toarray() if hasattr(found, "toarray") else getattr(found, "vectors", found)
    return np.asarray(found, np.float32).reshape(len(found), -1)


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest Euclidean distance of two rows, relative to the longest row; infinity for other shapes."""
    if found.shape != expected.shape:
        return float("inf")
    return float(np.linalg.norm(found - expected, axis=1).max() / np.linalg.norm(expected, axis=1).max())


@cache
def asked_and_expected(kind: str) -> tuple[list[Any], Any]:
    """Return the texts (or pairs) of the comparison, and what the CPU computes in float32."""
    longest = 200 if not SMALL else 50
    form = "cross-encoder" if kind == "T5" else kind
    asked = [*texts(8, longest, form), *texts(4, 5, form, seed=1), *texts(3, longest, form)]  # the last are copies
    return asked, rows(opened(kind, "cpu", "float32")[1](asked))


def compare_kind(kind: str, precision: str) -> Result:
    """Compare a family in a precision with the CPU in float32, and texts in a batch with the same texts alone."""
    model, compute_texts = opened(kind, DEVICE, precision)
    asked, expected = asked_and_expected(kind)
    together = rows(compute_texts(asked))
    alone = np.concatenate([rows(compute_texts([text])) for text in asked])
    found = {"distance": distance(together, expected), "batch": distance(alone, together)}
    tolerance = TOLERANCE[precision]
    one_length = bool(getattr(model, "engine", None) and model.engine.one_length)  # the probe of batches under autocast
    passed = max(found.values()) <= tolerance and not one_length
    return {**found, "tolerance": tolerance, "one_length": one_length, "passed": passed}


def probe() -> Result:
    """Check what guards the engine: models that overflow float16 do not get it, models that read padding are found."""
    plain = Compute(DEVICE, "float32", kernels="plain").start()
    large = checkpoints.save_changed(scratch() / "large", checkpoint("dense"), checkpoints.enlarge_all)
    normal, _ = encoding.open_ours(encoding.MODELS["dense"], checkpoint("dense"), plain)
    overflowing, _ = encoding.open_ours(encoding.MODELS["dense"], large, plain)
    fits = [normal.fits_float16(), overflowing.fits_float16()]

    def heeds(inputs: dict[str, Any]) -> Any:
        return normal.transformer(**inputs)[0]

    def reads_padding(inputs: dict[str, Any]) -> Any:
        return heeds({**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])})

    depends = []
    for normal.precision in PRECISIONS:
        with torch.inference_mode(), normal.autocast():
            depends += [normal.depends_on_batch(hidden, 100) for hidden in (heeds, reads_padding)]
    passed = fits == [True, False] and depends == [False, True] * len(PRECISIONS)
    return {"fits_float16": fits, "depends_on_batch": depends, "passed": passed}


def search_exactly(library: GpuSearch) -> Result:
    """Compare exact search with float64 brute force; every tenth vector is a copy of its predecessor. ``bound`` is the
    largest error of a product in float32, as a share of the error that the proof of ``search.exact`` allows.
    """
    generator, number = np.random.default_rng(0), 2000 if SMALL else 50_000
    vectors = generator.standard_normal((number, DIMENSION), np.float32)
    vectors[1::10] = vectors[::10]
    queries = generator.standard_normal((20, DIMENSION), np.float32)
    depth = min(DEPTH, number // 2)
    found = exact.search(np.array_split(vectors, 3), queries, depth, TORCH, library).rows
    scores = np.stack([(vectors * query.astype(np.float64)).sum(1) for query in queries])
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    different = int((found != expected).sum()) if found.shape == expected.shape else expected.size
    products, near = exact.first_pass(TORCH, library, depth)(queries, vectors, depth)
    error = exact.errors(exact.lengths(queries), exact.lengths(vectors).max(), DIMENSION)
    bound = float((abs(products - np.take_along_axis(scores, near, 1)).max(1) / error).max())
    return {"places": expected.size, "different": different, "bound": bound, "passed": not different and bound < BOUND}


# Speed


def measure(count: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Result:
    """Alternate two contenders, which return their seconds, at ``count`` texts or queries; return the least
    seconds of ours, what it computes per second, the ratio, and the least peak memory of both (MB of the GPU).
    """
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    memory: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(ROUNDS):
        for name, work in (("ours", ours), ("theirs", theirs)):
            if DEVICE == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds[name].append(work())
            memory[name].append(torch.cuda.max_memory_allocated() / 1e6)
    least = min(seconds["ours"])
    figures = {"seconds_of_all": least, "per_second": count / least, "ratio": min(seconds["theirs"]) / least}
    return {**figures, "mb": min(memory["ours"]), "their_mb": min(memory["theirs"]), "passed": True}


def timed(work: Callable[..., object], *arguments: Any, **options: Any) -> float:
    """Time a function until the GPU is idle, in seconds."""
    started = time.perf_counter()
    work(*arguments, **options)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


@cache
def peak(precision: str) -> float:
    """Return the operations per second of a large matrix product."""
    size = 4096 if DEVICE == "cuda" else 1024
    matrix = torch.randn(size, size, device=DEVICE, dtype=getattr(torch, precision))
    return 2 * size**3 / min(timed(torch.matmul, matrix, matrix) for _ in range(50))


def arithmetic(model: Any, lengths: list[int]) -> float:
    """Return the operations of texts of some lengths in tokens: products with weights, and attention."""
    weights = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, torch.nn.Linear))
    config = next(layer.config for layer in model.modules() if hasattr(layer, "config"))
    width = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads) * config.num_attention_heads
    attention = 4 * width * config.num_hidden_layers
    return float(sum(2 * weights * length + attention * length**2 for length in lengths))


def speed_of(kind: str) -> Result:
    """Measure a kind of model against sentence-transformers in the same precision, with its better size of batches."""
    asked = texts(TEXTS[kind], encoding.MODELS[kind].entry["max_length"] - 16, kind)
    model, ours = opened(kind, DEVICE, "auto")
    library = encoding.open_theirs(encoding.MODELS[kind], checkpoint(kind), model.precision)
    options = {"convert_to_tensor": True} if kind == "sparse" else {}
    theirs = partial(getattr(library, encoding.MODELS[kind].theirs[1]), **options)
    theirs(asked[: max(BATCHES)])  # warm, as ours in the next line
    ours(asked[:1024])
    batch = min(BATCHES, key=lambda size: timed(theirs, asked[:1024], batch_size=size))
    found = measure(len(asked), partial(timed, ours, asked), partial(timed, theirs, asked, batch_size=batch))
    lengths = [len(text.split()) + 2 if isinstance(text, str) else 11 + len(text[1].split()) for text in asked]
    rate = arithmetic(library, lengths) / found["seconds_of_all"]
    found |= {"precision": model.precision, "their_batch": batch, "operations_per_second": rate}
    found["share_of_peak"] = rate / peak(model.precision)
    del model, library
    torch.cuda.empty_cache()
    return found


def speed_of_generation() -> Result:
    """Measure the sampling of queries by a T5 of docT5query's shape against transformers' own, in batches."""
    generation.DOCUMENTS = TEXTS["generation"]
    folder = checkpoint("T5")
    documents = files.read_json(folder / "texts.json")
    theirs = partial(generation.theirs, folder, documents, batch=16)
    found = measure(len(documents), partial(generation.ours, folder, documents), theirs)
    config = files.read_json(folder / "config.json")
    # The arithmetic by which ``plan`` estimates sampling: all weights of 12 widths² per layer pair, for each token.
    weights = config["num_layers"] * (12 * config["d_model"] ** 2 + 4 * config["d_model"] * config["d_ff"])
    tokens = generation.QUERIES * len(documents) * generation.PIECES
    precision = "bfloat16" if DEVICE == "cuda" else "float32"
    return found | {"precision": precision, "operations": 2.0 * weights * tokens}


def speed_of_search(number: int, library: GpuSearch) -> Result:
    """Measure exact search of vectors in memory against PyTorch's topk over the same blocks."""
    size = 500_000
    vectors = np.empty((number, DIMENSION), np.float32)
    for start in range(0, number, size):
        block = vectors[start : start + size]
        block[:] = torch.randn(block.shape, device=DEVICE).cpu().numpy()
    queries = np.random.default_rng(0).standard_normal((QUERIES, DIMENSION), np.float32)
    theirs = partial(search_by_topk, vectors, queries, DEPTH, size, DEVICE)

    def ours() -> np.ndarray:
        return exact.search([vectors], queries, DEPTH, TORCH, library).rows

    same = min(len(np.intersect1d(one, other)) for one, other in zip(ours(), theirs(), strict=True)) / DEPTH
    found = measure(QUERIES, partial(timed, ours), partial(timed, theirs))
    found["operations_per_second"] = 2 * QUERIES * vectors.size / found["seconds_of_all"]
    return found | {"same_documents": same, "passed": same >= 0.99}


# The workflow


def run_workflow() -> Result:
    """Run a grid of a dense, a late and a reranked system on the demo collection, with the models of the tests."""
    folder = scratch()
    checkpoints.save_dense(folder / "dense")
    checkpoints.save_pylate(folder / "late")
    checkpoints.save_cross_encoder(folder / "ce")
    # The other scheduler needs PuLP, and the page needs matplotlib: each has more than 16 MB of wheels.
    options = ("--scheduler", "greedy", "--until", "aggregate")
    cores = len(os.sched_getaffinity(0))
    grid = Path(__file__).with_name("gpu.yaml")
    log = beirgrid("run", grid, "--device", DEVICE, "--directory", folder, "--cores", cores, *options)
    if log.returncode:
        raise RuntimeError(log.stdout[-2000:])
    record = files.read_json(folder / "results/embeddings/tiny/demo/0.json")
    facts = {key: record["facts"][key] for key in ("device", "precision")}
    found = examine_runs(folder, TOLERANCE[facts["precision"]])
    right = (facts["device"] == "cpu") == (DEVICE == "cpu")
    return {**found, **facts, "encode_mb": record["peak_memory_mb"], "passed": found["passed"] and right}


def examine_runs(folder: Path, tolerance: float) -> Result:
    """Count the documents that the runs of the grid lack, and ask its systems again on the CPU, which compares their
    first answers. All scores of the dense system, which are cosines, are compared. A query that is a document does not
    find itself.
    """
    lost = {}
    differences = []
    with contextlib.chdir(folder):
        blocks = collection.read_documents(paths.CORPUS.format(corpus="demo"))
        names = {document.id for block in blocks for document in block}
        queries = collection.read_queries(paths.QUERIES.format(dataset="demo"))
        for system in ("late", "tiny+ce", "tiny"):
            run = runs.read(paths.RUN.format(system=system, dataset="demo"))
            lost[system] = sum(len(names - {query} - {*run[query].ids}) for query in queries)
            on_cpu = open_system(system, "demo", "cpu")
        for query, ranking in on_cpu.rank(queries).items():
            scores = dict(zip(*ranking, strict=True))
            differences += [abs(scores[name] - score) for name, score in zip(*run[query], strict=True)]
    largest = float(max(differences))
    return {"lost": lost, "score_difference": largest, "passed": not any(lost.values()) and largest <= tolerance}


def beirgrid(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of the package; standard output and error come back together."""
    command = [sys.executable, "-m", "beirgrid", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def doctor() -> Result:
    """Check that ``beirgrid doctor`` finds nothing wrong with PyTorch and the GPU. The machine may lack Java."""
    lines = beirgrid("doctor", "--directory", scratch()).stdout.splitlines()
    gpu = [line.split()[0] for line in lines if line[8:].startswith(("PyTorch", "GPU"))]
    return {"findings": lines, "passed": "PROBLEM" not in gpu and (DEVICE == "cpu" or gpu.count("ok") >= 3)}


# Costs


def train() -> tuple[float, float]:
    """Train a cross-encoder as the stage does; return the seconds, and the operations of encoding the same pairs."""
    asked = texts(40 if SMALL else 10_000, 200, "cross-encoder")
    lists = [asked[start : start + 5] for start in range(0, len(asked), 5)]
    labels = [1.0, 0.0, 0.0, 0.0, 0.0]
    examples = [{"query": pairs[0][0], "docs": [text for _, text in pairs], "labels": labels} for pairs in lists]
    recipe = TrainRecipe(base="dense", corpus="texts", max_length=256)
    base = checkpoint("dense")
    seconds = fit_cross_encoder(examples, base, recipe, Compute(DEVICE).start(), scratch() / "trained")
    return seconds, arithmetic(AutoModel.from_pretrained(base), [len(text.split()) + 11 for _, text in asked])


def constants() -> Result:
    """Return the constants of ``plan`` that are assumed for GPUs: the values in the code, and those measured here."""
    checks = Results(FOLDER).checks
    speeds = checks["speed"]
    rate = statistics.median(found["operations_per_second"] for found in speeds.values() if "share_of_peak" in found)
    searches = [found["operations_per_second"] for name, found in speeds.items() if name.startswith("exact")]
    seconds, operations = train()
    sampling = speeds["generation"]["seconds_of_all"] * rate / speeds["generation"]["operations"]
    memory = checks["workflow"]["grid"]["encode_mb"] - resources.NEURAL["job"].memory  # the model has less than 1 MB
    found = {
        "RATES: model_flops": (resources.RATES["model_flops"]["cuda"], rate),
        "RATES: search_flops": (resources.RATES["search_flops"]["cuda"], statistics.median(searches)),
        "NEURAL: cuda_job, memory": (resources.NEURAL["cuda_job"].memory, memory),
        "SAMPLING_COST": (sizes.SAMPLING_COST["cuda"], sampling),
        "TRAINING_COST": (sizes.TRAINING_COST, seconds * rate / operations),
    }
    return {"assumed_and_measured": found, "passed": min(value for _, value in found.values()) > 0 or DEVICE == "cpu"}


# The page


def page(machine: Result, checks: Checks) -> Iterator[str]:
    """Yield the lines of docs/gpu.md."""
    failed = [f"{part}, {name}" for part, found in checks.items() for name, one in found.items() if not one["passed"]]
    versions = ", ".join(" ".join(each) for each in machine["versions"].items())
    yield "# On a GPU\n\nGenerated by `make gpu` from random weights of the true shapes.\n"
    yield f"{machine['date']}, {machine['card']}, driver {machine['driver']}. {versions}.\n"
    yield f"Failed: {'; '.join(failed) or 'nothing'}.\n\n## Parity\n"
    yield "Distances to the CPU in float32, and of a text in a batch to the same text alone"
    yield "([tolerances](protocol.md#precision)).\n"
    yield "| model | distance | in a batch | tolerance | of the bound | |\n|---|--:|--:|--:|--:|---|"
    yield from table_rows(checks["parity"], {"distance": ".1e", "batch": ".1e", "tolerance": ".1e", "bound": ".1%"})
    yield "\n## Speed\n\nThe ratio is the seconds of sentence-transformers (of transformers for generation, of"
    yield "`torch.topk` for search) divided by ours. The peak is that of a large matrix product in the same precision."
    yield "The MB are the largest amount of the GPU's memory.\n"
    yield "| what | precision | per second | ratio | of the peak | MB | their MB | |\n|---|---|--:|--:|--:|--:|--:|---|"
    columns = {"precision": "", "per_second": ",.0f", "ratio": ".2f", "share_of_peak": ".0%"}
    yield from table_rows(checks["speed"], {**columns, "mb": ",.0f", "their_mb": ",.0f"})
    yield "\n## The workflow\n"
    for name, found in checks["workflow"].items():
        yield f"- {name}: {state(found)}. {json.dumps(found)}"
    yield "\n## Constants of `plan`\n\n| constant | in the code | measured |\n|---|--:|--:|"
    for found in checks["costs"].values():
        for name, (assumed, measured) in found.get("assumed_and_measured", {}).items():
            yield f"| {name} | {assumed:.3g} | {measured:.3g} |"


def table_rows(checks: dict[str, Result], columns: dict[str, str]) -> Iterator[str]:
    """Yield a row for each check, with what it saw in the formats of its columns."""
    for name, found in checks.items():
        numbers = [format(found[key], form) if key in found else "" for key, form in columns.items()]
        yield f"| {name} | {' | '.join(numbers)} | {state(found)} |"


def state(found: Result) -> str:
    """Return ``passed``, or ``failed`` with the message of an error."""
    return "passed" if found["passed"] else f"**failed** {found.get('error', '')}".replace("\n", " ").strip()


KINDS = ("dense", "decoder", "sparse", "late-interaction", "cross-encoder")
PARTS: dict[str, dict[str, Callable[[], Result]]] = {
    "parity": {
        **{f"exact search against float64, {library}": partial(search_exactly, library) for library in LIBRARIES},
        **{
            f"{kind}, {precision}": partial(compare_kind, kind, precision)
            for kind, precision in product((*KINDS, "T5"), PRECISIONS)
        },
        "probes under autocast": probe,
    },
    "speed": {
        **{kind: partial(speed_of, kind) for kind in ("dense-base", *KINDS)},
        "generation": speed_of_generation,
        **{
            f"exact top {DEPTH:,} of {number:,}, {library}": partial(speed_of_search, number, library)
            for number, library in product(VECTORS, LIBRARIES)
        },
    },
    "workflow": {"grid": run_workflow, "doctor": doctor},
    "costs": {"constants of plan": constants},
}


def main() -> int:
    """Run the checks of a part, or write the page; return 1 if the page names a check that failed."""
    part = sys.argv[1]
    results = Results(FOLDER)
    if part in PARTS:
        with tempfile.TemporaryDirectory(prefix="beirgrid-gpu-") as tempfile.tempdir:
            results.run(part, PARTS[part])
        return 0
    lines = "\n".join(page(results.machine, results.checks)) + "\n"
    for path in [FOLDER / "gpu.md", *[ROOT / "docs" / "gpu.md"] * (DEVICE == "cuda")]:
        path.write_text(lines, encoding="utf-8")
    print(f"Page: {FOLDER / 'gpu.md'}")
    return int(any(not found["passed"] for checks in results.checks.values() for found in checks.values()))


if __name__ == "__main__":
    sys.exit(main())
