"""Show on a GPU what the project promises of one: ``make gpu``.

Usage: gpu.py [--device cuda|cpu] [--output FOLDER] [parity] [speed] [workflow] [costs]

Each part runs in a process of its own, with a time limit. Each check writes gpu.json when it ends, so a second call
goes on with what is left. The page is made from that file. All weights are random, of the true shapes: nothing is
downloaded. ``--device cpu`` has tiny shapes and sizes, and shows that every part works; its speeds mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parent.parent
WHEELS, PACKAGES = ROOT / "build" / "gpu-wheels", ROOT / "build" / "gpu-python"
# Environment variable of the processes that ``environment`` is set up for.
READY = "BEIRGRID_GPU"
# Seconds that each part may take on a GPU: nine minutes together.
LIMITS = {"parity": 150, "speed": 240, "workflow": 120, "costs": 30}
NAMES = ("torch", "transformers", "sentence-transformers", "faiss-cpu", "snakemake", "numpy")
SMALL = os.environ.get("BENCH") == "small"
DEVICE: Literal["cuda", "cpu"] = "cpu" if SMALL else "cuda"
PRECISIONS: tuple[Literal["float32", "float16", "bfloat16"], ...] = ("float32", "float16", "bfloat16")
# The largest difference between unit vectors (Euclidean distance) that a number format may bring. TF32 products, which
# PyTorch leaves off, would differ by about 1e-3.
TOLERANCE = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.1}
# With this range of weights, all layers move the vectors as much as those of trained models.
MINILM: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
MINILM |= {"intermediate_size": 1536, "initializer_range": 0.05}
QWEN: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
QWEN |= {"head_dim": 128, "intermediate_size": 3072, "vocab_size": 151_936}
# Texts (or pairs) of each comparison of speed; of generation, documents.
TEXTS = {"dense": 20_000, "dense-base": 6_000, "decoder": 1_500, "sparse": 6_000, "late-interaction": 6_000}
TEXTS |= {"cross-encoder": 6_000, "generation": 64}
# Vectors that are searched for 1,000 queries, and their dimension.
VECTORS: tuple[int, ...] = (1_000_000, 4_000_000, 9_000_000)
QUERIES, DIMENSION, DEPTH = 1000, 768, 1000
# Texts in a batch of sentence-transformers: the faster of the two counts.
BATCHES = (64, 256)
ROUNDS = 2
if SMALL:
    MINILM |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    MINILM |= {"initializer_range": 0.1}
    QWEN |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    QWEN |= {"head_dim": 16, "intermediate_size": 128, "vocab_size": 30_000}
    TEXTS, VECTORS, QUERIES, DEPTH = dict.fromkeys(TEXTS, 24), (5000,), 20, 100
    ROUNDS = 1

Result = dict[str, Any]
Check = tuple[str, Callable[[], Result]]
Compute = Callable[[list[Any]], Any]


# Results


class Results:
    """The file of results, written anew after each check.

    Attributes:
        checks: by part and name, what each check saw, and whether it passed.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gpu.json"
        self.machine = machine()
        self.checks: dict[str, dict[str, Result]] = {part: {} for part in LIMITS}
        if self.path.exists():
            before = json.loads(self.path.read_text(encoding="utf-8"))
            if all(before["machine"][key] == self.machine[key] for key in ("card", "commit", "versions")):
                self.checks |= before["checks"]

    def run(self, part: str, checks: Iterable[Check]) -> None:
        """Run the checks of a part that have not passed, one after the other."""
        for name, check in checks:
            if not self.checks[part].get(name, {}).get("passed"):
                self.add(part, name, outcome(check))

    def add(self, part: str, name: str, found: Result) -> None:
        """Write and print what a check saw."""
        from beirgrid.core import files

        self.checks[part][name] = found
        self.path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(self.path, {"machine": self.machine, "checks": self.checks})
        print(f"{'passed' if found['passed'] else 'FAILED'} {part}: {name} {json.dumps(found)}", flush=True)


def outcome(check: Callable[[], Result]) -> Result:
    """Return what a check saw, with its seconds. An error is a failure of its check alone."""
    started = time.monotonic()
    try:
        found = check()
    except Exception as error:
        found = {"passed": False, "error": f"{type(error).__name__}: {error}"}
    return found | {"seconds": round(time.monotonic() - started, 1)}


@cache
def machine() -> dict[str, Any]:
    """Return card, driver, versions, date and commit."""
    from beirgrid.core.checkout import full_version
    from beirgrid.core.compute import cpu_name

    card, driver = f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores", "none"
    if DEVICE == "cuda":
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
        card, driver = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().split(", ")
    versions = {"python": platform.python_version(), **{name: version(name) for name in NAMES}}
    commit = os.environ.get("COMMIT") or full_version()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"card": card, "driver": driver, "commit": commit, "date": today, "versions": versions}


# Models


def words() -> list[str]:
    """Return the words of all tokenizers, each of which is one token."""
    return [f"w{number}" for number in range(2000 if SMALL else 25_000)]


def texts(count: int, longest: int, kind: str = "", seed: int = 0) -> list[Any]:
    """Write random texts of 1/4 to all of ``longest`` words; for a cross-encoder, pairs with queries of 8 words."""
    choose = random.Random(seed)  # noqa: S311
    lengths = [choose.randint(max(longest // 4, 1), longest) for _ in range(count)]
    written = [" ".join(choose.choices(words(), k=length)) for length in lengths]
    if kind == "cross-encoder":
        return [(" ".join(choose.choices(words(), k=8)), text) for text in written]
    return written


def save_embedder(folder: Path, model: Any, tokenizer: Any, pooling: str) -> None:
    """Save a transformer with pooling and normalisation as sentence-transformers does."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    plain = folder.parent / f"{folder.name}-plain"
    model.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    modules = [Transformer(str(plain)), Pooling(model.config.hidden_size, pooling), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))


def save_minilm(folder: Path) -> None:
    """Save a random BERT of MiniLM's shape."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(0)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words()]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = BertTokenizer(vocab=vocabulary, model_max_length=512)
    size = len(pieces) if SMALL else 30_522
    save_embedder(folder, BertModel(BertConfig(vocab_size=size, **MINILM)), tokenizer, "mean")


def save_decoder(minilm: Path, folder: Path) -> None:
    """Save a random decoder of the shape of Qwen3-Embedding-0.6B, in bfloat16 like the published one."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

    tokenizer_class: Any = PreTrainedTokenizerFast

    torch.manual_seed(0)
    end = "<|endoftext|>"
    vocabulary = {piece: number for number, piece in enumerate([end, *words()])}
    backend = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=end))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ended = processors.TemplateProcessing(single=f"$A {end}", pair=f"$A $B {end}", special_tokens=[(end, 0)])
    backend.post_processor = ended
    special = {"eos_token": end, "pad_token": end, "unk_token": end}
    tokenizer = tokenizer_class(tokenizer_object=backend, model_max_length=512, padding_side="left", **special)
    with torch.device(DEVICE):
        model: Any = Qwen3Model(Qwen3Config(**QWEN))
    save_embedder(folder, model.to(torch.bfloat16), tokenizer, "lasttoken")


@cache
def kinds() -> dict[str, Any]:
    """Return the models of ``encoding`` with the decoder: entry, class of sentence-transformers, saving."""
    import encoding

    entry = {"family": "dense", "similarity": "cosine", "max_length": 512}
    return {**encoding.MODELS, "decoder": encoding.Model(entry, ("SentenceTransformer", "encode"), save_decoder)}


@cache
def checkpoint(kind: str) -> Path:
    """Save a checkpoint in a temporary folder of this process; return its path."""
    import generation

    folder = scratch() / kind
    if kind == "dense":
        save_minilm(folder)
    elif kind == "T5":
        generation.DOCUMENTS = TEXTS["generation"]
        folder.mkdir()
        generation.make(folder)
        return folder / "model"
    else:
        folder.mkdir()
        kinds()[kind].save(checkpoint("dense"), folder)
    return folder


@cache
def scratch() -> Path:
    """Return a temporary folder, which ends with the process of a part (``call``)."""
    return Path(tempfile.mkdtemp())


def opened(kind: str, device: Literal["cuda", "cpu"], precision: Any) -> tuple[Any, Compute]:
    """Open a checkpoint on a device; return the model, and the function that computes texts (or pairs)."""
    from beirgrid.config.models import CrossEncoder, Seq2SeqReranker
    from beirgrid.core import compute
    from beirgrid.encoders import open_encoder, open_model

    runtime, folder = compute.Compute(device, precision).start(), checkpoint(kind)
    if kind in kinds() and kind != "cross-encoder":
        encoder = open_encoder(folder, kinds()[kind].entry, runtime)
        return encoder, encoder.encode_documents
    reranker: CrossEncoder | Seq2SeqReranker
    if kind == "cross-encoder":
        reranker = CrossEncoder(**kinds()[kind].entry)
    else:
        reranker = Seq2SeqReranker(family="seq2seq-reranker", answers=("▁w1", "▁w2"), max_length=256)
    scorer = open_model(folder, reranker, runtime)
    return scorer, lambda pairs: scorer.score(*map(list, zip(*pairs, strict=True)))


# Parity


def rows(found: Any) -> Any:
    """Return vectors, token vectors, sparse vectors or scores as one array, float32 [rows, numbers]."""
    import numpy as np

    if hasattr(found, "toarray"):
        return found.toarray()
    found = np.asarray(getattr(found, "vectors", found), np.float32)
    return found.reshape(len(found), -1)


def distance(found: Any, expected: Any) -> float:
    """Return the largest Euclidean distance of two rows, relative to the longest row; infinity for other shapes."""
    import numpy as np

    if found.shape != expected.shape:
        return float("inf")
    return float(np.linalg.norm(found - expected, axis=1).max() / np.linalg.norm(expected, axis=1).max())


def compare(compute: Compute, expected: Any, asked: list[Any], precision: str) -> Result:
    """Compare a model with the CPU in float32, and texts in a batch with the same texts alone.

    Args:
        compute: computes texts.
        expected: rows of the CPU, float32.
        asked: the texts. The copies of a text are its equals.
        precision: decides the tolerance.
    """
    import numpy as np

    together = rows(compute(asked))
    alone = np.concatenate([rows(compute([text])) for text in asked])
    found = {"distance": distance(together, expected), "batch": distance(alone, together)}
    tolerance = TOLERANCE[precision]
    return {**found, "tolerance": tolerance, "passed": all(value <= tolerance for value in found.values())}


@cache
def asked_and_expected(kind: str) -> tuple[list[Any], Any]:
    """Return the texts (or pairs) of the comparison, and what the CPU computes in float32."""
    longest = 200 if not SMALL else 50
    form = "cross-encoder" if kind == "T5" else kind
    asked = [*texts(8, longest, form), *texts(4, 5, form, seed=1), *texts(3, longest, form)]  # the last are copies
    return asked, rows(opened(kind, "cpu", "float32")[1](asked))


def compare_kind(kind: str, precision: str) -> Result:
    """Compare a family in a precision."""
    model, compute = opened(kind, DEVICE, precision)
    asked, expected = asked_and_expected(kind)
    found = compare(compute, expected, asked, precision)
    one_length = bool(getattr(model, "engine", None) and model.engine.one_length)  # the probe of batches under autocast
    return found | {"one_length": one_length, "passed": found["passed"] and not one_length}


def probe() -> Result:
    """Check what guards the engine: models that overflow float16 do not get it, models that read padding are found."""
    import checkpoints
    import torch

    from beirgrid.core import compute
    from beirgrid.encoders import open_encoder

    def dense(folder: Path) -> Any:
        return open_encoder(folder, kinds()["dense"].entry, compute.Compute(DEVICE, "float32", kernels="plain").start())

    large = checkpoints.save_changed(scratch() / "large", checkpoint("dense"), checkpoints.enlarge_all)
    normal = dense(checkpoint("dense"))

    fits = [model.fits_float16() for model in (normal, dense(large))]

    def reads_padding(inputs: dict[str, Any]) -> torch.Tensor:
        hidden: torch.Tensor = normal.transformer(**inputs | {"attention_mask": torch.ones_like(inputs["input_ids"])})[
            0
        ]
        return hidden

    def heeds(inputs: dict[str, Any]) -> torch.Tensor:
        hidden: torch.Tensor = normal.transformer(**inputs)[0]
        return hidden

    depends = {}
    for normal.precision in PRECISIONS:
        for compute_hidden in (heeds, reads_padding):
            with torch.inference_mode(), normal.autocast():
                found = normal.depends_on_batch(compute_hidden, 100)
            depends[f"{normal.precision}, {compute_hidden.__name__}"] = found
    right = all(value == name.endswith("reads_padding") for name, value in depends.items())
    return {"fits_float16": fits, "depends_on_batch": depends, "passed": fits == [True, False] and right}


def search_exactly() -> Result:
    """Compare exact search with float64 brute force; every tenth vector is a copy of its predecessor."""
    import numpy as np

    from beirgrid.search import exact

    generator, number = np.random.default_rng(0), 2000 if SMALL else 50_000
    vectors = generator.standard_normal((number, DIMENSION), np.float32)
    vectors[1::10] = vectors[::10]
    queries = generator.standard_normal((20, DIMENSION), np.float32)
    shards, depth = np.array_split(vectors, 3), min(DEPTH, number // 2)
    found = exact.search(shards, queries, depth, torch_device()).rows
    scores = np.stack([(vectors * query.astype(np.float64)).sum(1) for query in queries])
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    different = int((found != expected).sum()) if found.shape == expected.shape else expected.size
    return {"places": expected.size, "different": different, "passed": not different}


def torch_device() -> str:
    """Return the device of searches. ``cpu`` would be faiss; this name is the code of the GPU, on a CPU."""
    return "cuda" if DEVICE == "cuda" else "cpu:0"


def parity() -> Iterator[Check]:
    """Yield the comparisons with a CPU."""
    yield "exact search against float64", search_exactly
    for kind in ("dense", "decoder", "sparse", "late-interaction", "cross-encoder", "T5"):
        for precision in PRECISIONS:
            yield f"{kind}, {precision}", partial(compare_kind, kind, precision)
    yield "probes under autocast", probe


# Speed


def measure(contenders: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Return the seconds and the peak memory (MB of the GPU) of contenders that take turns. Both are the least."""
    import torch

    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, work in contenders.items():
            torch.cuda.reset_peak_memory_stats() if DEVICE == "cuda" else None
            started = time.monotonic()
            work()
            torch.cuda.synchronize() if DEVICE == "cuda" else None
            memory = torch.cuda.max_memory_allocated() / 1e6 if DEVICE == "cuda" else 0.0
            found[name].append((time.monotonic() - started, memory))
    return {
        name: dict(zip(("seconds", "mb"), map(min, zip(*runs, strict=True)), strict=True))
        for name, runs in found.items()
    }


@cache
def peak(precision: str) -> float:
    """Return the operations per second of a large matrix product."""
    import torch

    size = 4096 if DEVICE == "cuda" else 1024
    matrix = torch.randn(size, size, device=DEVICE, dtype=getattr(torch, precision))
    best, end = 0.0, time.monotonic() + 1
    while time.monotonic() < end:
        started = time.perf_counter()
        matrix @ matrix
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


def arithmetic(model: Any, lengths: list[int]) -> float:
    """Return the operations of texts of some lengths in tokens: products with weights, and attention."""
    import torch

    weights = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, torch.nn.Linear))
    config = next(layer.config for layer in model.modules() if hasattr(layer, "config"))
    width = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads) * config.num_attention_heads
    attention = 4 * width * config.num_hidden_layers
    return float(sum(2 * weights * length + attention * length**2 for length in lengths))


def speed_of(kind: str) -> Result:
    """Measure a kind of model against sentence-transformers in the same precision, with its better size of batches."""
    import encoding
    import torch

    entry = kinds()[kind].entry
    asked = texts(TEXTS[kind], entry["max_length"] - 16, kind)
    model, ours = opened(kind, DEVICE, "auto")
    library = encoding.open_theirs(kinds()[kind], checkpoint(kind), model.precision)
    compute = getattr(library, kinds()[kind].theirs[1])
    options = {"convert_to_tensor": True} if kind == "sparse" else {}
    batches = {}
    for batch in BATCHES:
        compute(asked[:batch])
        started = time.monotonic()
        compute(asked[:1024], batch_size=batch, **options)
        batches[batch] = time.monotonic() - started
    ours(asked[:1024])
    batch = min(batches, key=lambda size: batches[size])
    theirs = partial(compute, asked, batch_size=batch, **options)
    found = measure({"ours": partial(ours, asked), "theirs": theirs})
    lengths = [len(text.split()) + 2 if isinstance(text, str) else 11 + len(text[1].split()) for text in asked]
    operations = arithmetic(library, lengths)
    seconds = found["ours"]["seconds"]
    share = operations / seconds / peak(model.precision)
    result: Result = {
        "precision": model.precision,
        "per_second": len(asked) / seconds,
        "ratio": found["theirs"]["seconds"] / seconds,
        "their_batch": batch,
        "share_of_peak": share,
        "operations_per_second": operations / seconds,
        "mb": found["ours"]["mb"],
        "their_mb": found["theirs"]["mb"],
        "passed": True,
    }
    if result["ratio"] < 1 or share < 0.5:
        result["profile"] = profile(partial(ours, asked[:2000]))
    del model, library
    torch.cuda.empty_cache()
    return result


def profile(work: Callable[[], object]) -> list[str]:
    """Return the five functions that take most of the device's time, with milliseconds and share."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    activity = ProfilerActivity.CUDA if DEVICE == "cuda" else ProfilerActivity.CPU
    threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)  # the engine's own
    with recorded(activities=[activity], experimental_config=threads) as record:
        work()
    times = {
        event.key: getattr(event, f"self_{'device' if DEVICE == 'cuda' else 'cpu'}_time_total")
        for event in record.key_averages()
    }
    whole = sum(times.values()) or 1
    largest = sorted(times.items(), key=lambda item: -item[1])[:5]
    return [f"{name[:90]}: {taken / 1000:.1f} ms, {taken / whole:.0%}" for name, taken in largest]


def speed_of_generation() -> Result:
    """Measure the sampling of queries by a T5 of docT5query's shape against transformers' own, in batches."""
    import generation

    folder = checkpoint("T5").parent
    documents = json.loads((folder / "texts.json").read_text())
    found = measure(
        {
            name: partial(run, folder, documents)
            for name, run in (("ours", generation.ours), ("theirs", partial(generation.theirs, batch=16)))
        }
    )
    config = json.loads((folder / "model" / "config.json").read_text())
    # The arithmetic by which ``plan`` estimates sampling: all weights of 12 widths² per layer pair, for each token.
    width, hidden = config["d_model"], config["d_ff"]
    weights = config["num_layers"] * (12 * width**2 + 4 * width * hidden)
    tokens = generation.QUERIES * len(documents) * generation.PIECES
    seconds = found["ours"]["seconds"]
    return {
        "precision": "bfloat16" if DEVICE == "cuda" else "float32",
        "per_second": len(documents) / seconds,
        "ratio": found["theirs"]["seconds"] / seconds,
        "mb": found["ours"]["mb"],
        "their_mb": found["theirs"]["mb"],
        "seconds_of_all": seconds,
        "operations": 2.0 * weights * tokens,
        "passed": True,
    }


def speed_of_search(number: int) -> Result:
    """Measure exact search of vectors in memory against PyTorch's topk over the same blocks."""
    import numpy as np
    import torch

    from beirgrid.search import exact

    vectors, size = np.empty((number, DIMENSION), np.float32), 500_000
    for start in range(0, number, size):
        rows = min(size, number - start)
        vectors[start : start + rows] = torch.randn(rows, DIMENSION, device=DEVICE).cpu().numpy()
    queries = np.random.default_rng(0).standard_normal((QUERIES, DIMENSION), np.float32)

    def topk() -> Any:
        asked = torch.from_numpy(queries).to(DEVICE)
        scores, places = asked.new_zeros(len(asked), 0), asked.new_zeros(len(asked), 0).long()
        for start in range(0, number, size):
            block = torch.from_numpy(vectors[start : start + size]).to(DEVICE)
            best = (asked @ block.T).topk(min(DEPTH, len(block)))
            scores, places = torch.cat([scores, best.values], 1), torch.cat([places, best.indices + start], 1)
            scores, order = scores.topk(min(DEPTH, scores.shape[1]))
            places = places.gather(1, order)
        return places.cpu().numpy()

    def ours() -> Any:
        return exact.search([vectors], queries, DEPTH, torch_device()).rows

    same = [len(np.intersect1d(one, other)) for one, other in zip(ours(), topk(), strict=True)]
    found = measure({"ours": ours, "theirs": topk})
    seconds = found["ours"]["seconds"]
    return {
        "per_second": QUERIES / seconds,
        "ratio": found["theirs"]["seconds"] / seconds,
        "operations_per_second": 2 * QUERIES * vectors.size / seconds,
        "mb": found["ours"]["mb"],
        "their_mb": found["theirs"]["mb"],
        "same_documents": min(same) / DEPTH,
        "passed": min(same) >= 0.99 * DEPTH,
    }


def speed() -> Iterator[Check]:
    """Yield the measurements."""
    for kind in ("dense", "dense-base", "decoder", "sparse", "late-interaction", "cross-encoder"):
        yield kind, partial(speed_of, kind)
    yield "generation", speed_of_generation
    for number in VECTORS:
        yield f"exact top {DEPTH:,} of {number:,}", partial(speed_of_search, number)


# The workflow


def run_workflow(folder: Path) -> Result:
    """Run a grid of a dense, a late and a reranked system on the demo collection, with the models of the tests."""
    import checkpoints

    from beirgrid.core import files

    paths = {
        "tiny": checkpoints.save_dense(folder / "dense"),
        "late": checkpoints.save_pylate(folder / "late"),
        "ce": checkpoints.save_cross_encoder(folder / "ce"),
    }
    models = {"tiny": DENSE, "late": {"family": "late-interaction"}, "ce": {"family": "cross-encoder"}}
    settings = {
        "models": {name: {"max_length": 96, "path": str(paths[name]), **models[name]} for name in models},
        "systems": {
            "tiny": {"retriever": "tiny"},
            "late": {"retriever": "late", "exhaustive": True},
            "tiny+ce": {"first_stage": "tiny", "reranker": "ce", "depth": 50},
        },
        "grid": {"name": "gpu", "systems": ["tiny", "late", "tiny+ce"], "datasets": ["demo"]},
        "metrics": ["ndcg@10"],
        "device": DEVICE,
    }
    (folder / "grid.yaml").write_text(json.dumps(settings))  # JSON is YAML
    # The other scheduler needs PuLP, and the page needs matplotlib: each has more than 16 MB of wheels.
    options = ("--scheduler", "greedy", "--until", "aggregate")
    cores = len(os.sched_getaffinity(0))
    log = beirgrid("run", folder / "grid.yaml", "--directory", folder, "--cores", cores, *options)
    if log.returncode:
        raise RuntimeError(log.stdout[-2000:])
    record = files.read_json(folder / "results/embeddings/tiny/demo/0.json")
    facts = record["facts"]
    on_cpu = facts["device"] == "cpu"
    found = examine_runs(folder, folder / "dense", facts["precision"])
    memory = record["peak_memory_mb"]
    right = found["passed"] and on_cpu == (DEVICE == "cpu")
    return found | {"device": facts["device"], "precision": facts["precision"], "encode_mb": memory, "passed": right}


DENSE = {"family": "dense", "similarity": "cosine"}


def examine_runs(folder: Path, dense: Path, precision: str) -> Result:
    """Look for lost documents in the runs of the grid, and compare the scores of the dense system with the CPU's. A
    query that is a document does not find itself.
    """
    from beirgrid.core import compute
    from beirgrid.encoders import open_encoder
    from beirgrid.runs import runs

    demo = ROOT / "workflow" / "resources" / "demo"
    documents, queries = (json_lines(demo / f"{name}.jsonl") for name in ("corpus", "queries"))
    judged = {line.split("\t")[0] for line in (demo / "qrels" / "test.tsv").read_text().splitlines()[1:]}
    queries = [row for row in queries if row["_id"] in judged]
    systems = {path.parent.name: runs.read(path) for path in sorted(folder.glob("results/runs/*/demo.run.gz"))}
    names = {document["_id"] for document in documents}
    lost = {
        system: sum(len(names - {query["_id"]} - set(run[query["_id"]].ids)) for query in queries)
        for system, run in systems.items()
    }
    encoder = open_encoder(dense, DENSE | {"max_length": 96}, compute.Compute("cpu", "float32").start())
    vectors = encoder.encode_documents([f"{document['title']} {document['text']}".strip() for document in documents])
    products = encoder.encode_queries([query["text"] for query in queries]) @ vectors.T
    numbers = {document["_id"]: number for number, document in enumerate(documents)}
    difference = max(
        abs(float(score) - float(products[row, numbers[name]]))
        for row, query in enumerate(queries)
        for name, score in zip(systems["tiny"][query["_id"]].ids, systems["tiny"][query["_id"]].scores, strict=True)
    )
    passed = len(systems) == 3 and not any(lost.values()) and difference <= TOLERANCE[precision]
    return {"lost": lost, "score_difference": difference, "passed": passed}


def json_lines(path: Path) -> list[dict[str, str]]:
    """Read a file of one JSON object per line."""
    from beirgrid.collections import lines

    return [json.loads(line) for line, _ in lines.read(path)]


def beirgrid(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of the package; standard output and error come back together."""
    command = [sys.executable, "-m", "beirgrid", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def doctor() -> Result:
    """Check that ``beirgrid doctor`` finds nothing wrong with PyTorch and the GPU. The machine may lack Java."""
    lines = beirgrid("doctor", "--directory", scratch()).stdout.splitlines()
    findings = [line.split(maxsplit=1) for line in lines if not line.startswith(" ")]
    gpu = [state for state, text in findings if text.startswith(("PyTorch", "GPU"))]
    return {"findings": lines, "passed": "PROBLEM" not in gpu and (DEVICE == "cpu" or gpu.count("ok") >= 3)}


def workflow() -> Iterator[Check]:
    """Yield the grid, and ``beirgrid doctor``."""
    yield "grid", partial(run_workflow, scratch())
    yield "doctor", doctor


# Costs


def train() -> tuple[float, float]:
    """Train a cross-encoder from the dense model as the stage does; return the seconds, and the operations of encoding
    the same pairs.
    """
    from transformers import AutoModel

    from beirgrid.core import compute
    from beirgrid.stages.train.work import TrainRecipe, fit_cross_encoder

    lists, documents, longest = (8 if SMALL else 2000), 5, 200
    asked = texts(lists * documents, longest, "cross-encoder")
    groups = [asked[start : start + documents] for start in range(0, len(asked), documents)]
    labels = [1.0] + [0.0] * (documents - 1)
    examples = [{"query": group[0][0], "docs": [text for _, text in group], "labels": labels} for group in groups]
    recipe = TrainRecipe(base="dense", corpus="texts", max_length=256)
    runtime, base = compute.Compute(DEVICE).start(), checkpoint("dense")
    seconds = fit_cross_encoder(examples, base, recipe, runtime, scratch() / "trained")
    return seconds, arithmetic(AutoModel.from_pretrained(base), [len(text.split()) + 11 for _, text in asked])


def constants(checks: dict[str, dict[str, Result]]) -> Result:
    """Return the constants of ``plan`` that are assumed for GPUs: the values in the code, and those measured here."""
    from beirgrid.graph import resources, sizes

    speeds = checks["speed"]
    rate = statistics.median(found["operations_per_second"] for found in speeds.values() if "share_of_peak" in found)
    searches = [found["operations_per_second"] for name, found in speeds.items() if name.startswith("exact")]
    generation, (seconds, operations) = speeds["generation"], train()
    memory = checks["workflow"]["grid"]["encode_mb"] - resources.NEURAL["job"].memory  # the model has less than 1 MB
    found = {
        "RATES: model_flops": (resources.RATES["model_flops"]["cuda"], rate),
        "RATES: search_flops": (resources.RATES["search_flops"]["cuda"], statistics.median(searches)),
        "NEURAL: cuda_job, memory": (resources.NEURAL["cuda_job"].memory, memory),
        "SAMPLING_COST": (sizes.SAMPLING_COST["cuda"], generation["seconds_of_all"] * rate / generation["operations"]),
        "TRAINING_COST": (sizes.TRAINING_COST, seconds * rate / operations),
    }
    return {"assumed_and_measured": found, "passed": min(value for _, value in found.values()) > 0 or DEVICE == "cpu"}


def costs(checks: dict[str, dict[str, Result]]) -> Iterator[Check]:
    """Yield the measurement of the constants."""
    yield "constants of plan", partial(constants, checks)


# The page


def page(machine: Result, checks: dict[str, dict[str, Result]]) -> Iterator[str]:
    """Yield the lines of docs/gpu.md."""
    failed = [f"{part}, {name}" for part, found in checks.items() for name, one in found.items() if not one["passed"]]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    yield "# On a GPU\n\nGenerated by `make gpu` from random weights of the true shapes.\n"
    yield f"{machine['date']}, {machine['card']}, driver {machine['driver']}, commit {machine['commit']}. {versions}.\n"
    yield f"Failed: {'; '.join(failed) or 'nothing'}.\n\n## Parity\n"
    yield "Distances to the CPU in float32, and of a text in a batch to the same text alone"
    yield "([tolerances](protocol.md#precision)).\n"
    yield "| model | distance | in a batch | tolerance | |\n|---|--:|--:|--:|---|"
    for name, found in checks["parity"].items():
        numbers = [f"{found[key]:.1e}" if key in found else "" for key in ("distance", "batch", "tolerance")]
        yield f"| {name} | {' | '.join(numbers)} | {state(found)} |"
    yield "\n## Speed\n\nThe ratio is the seconds of sentence-transformers (of transformers for generation, of"
    yield "`torch.topk` for search) divided by ours. The peak is that of a large matrix product in the same precision."
    yield "The MB are the largest amount of the GPU's memory.\n"
    yield "| what | precision | per second | ratio | of the peak | MB | their MB | |\n|---|---|--:|--:|--:|--:|--:|---|"
    for name, found in checks["speed"].items():
        numbers = [
            show.format(found[key]) if key in found else ""
            for key, show in (
                ("precision", "{}"),
                ("per_second", "{:,.0f}"),
                ("ratio", "{:.2f}"),
                ("share_of_peak", "{:.0%}"),
                ("mb", "{:,.0f}"),
                ("their_mb", "{:,.0f}"),
            )
        ]
        yield f"| {name} | {' | '.join(numbers)} | {state(found)} |"
    for name, found in checks["speed"].items():
        if "profile" in found:
            yield f"\n### Slow: {name}\n\nThe functions that take most of the time:\n"
            yield from (f"- {line}" for line in found["profile"])
    yield "\n## The workflow\n"
    for name, found in checks["workflow"].items():
        yield f"- {name}: {state(found)}, {found['seconds']:.0f} s. {json.dumps(found)}"
    yield "\n## Constants of `plan`\n\n| constant | in the code | measured |\n|---|--:|--:|"
    for found in checks["costs"].values():
        for name, values in found.get("assumed_and_measured", {}).items():
            yield f"| {name} | {' | '.join(f'{value:.3g}' for value in values)} |"


def state(found: Result) -> str:
    """Return ``passed``, or ``failed`` with the message of an error."""
    return "passed" if found["passed"] else f"**failed** {found.get('error', '')}".replace("\n", " ").strip()


# The command

PARTS: dict[str, Callable[[dict[str, dict[str, Result]]], Iterator[Check]]] = {
    "parity": lambda checks: parity(),
    "speed": lambda checks: speed(),
    "workflow": lambda checks: workflow(),
    "costs": costs,
}


def main() -> int:
    """Run the named parts, or all, and write the page; return 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", default=list(LIMITS), help=", ".join(LIMITS))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--output", type=Path, help="folder of gpu.json and gpu.md (build/gpu/DEVICE)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # the process of a part
    arguments = parser.parse_args()
    if READY not in os.environ:
        python = interpreter()
        os.execve(python, [python, *sys.argv], environment(arguments.device))  # noqa: S606
    folder = (arguments.output or ROOT / "build" / "gpu" / arguments.device).resolve()
    if arguments.here:
        results = Results(folder)
        for part in arguments.parts:
            results.run(part, PARTS[part](results.checks))
        return 0
    for part in arguments.parts:
        call(part, arguments.device, folder)
    results = Results(folder)
    lines = "\n".join(page(results.machine, results.checks)) + "\n"
    for path in [folder / "gpu.md", *[ROOT / "docs" / "gpu.md"] * (DEVICE == "cuda")]:
        path.write_text(lines, encoding="utf-8")
    print(f"Page: {folder / 'gpu.md'}")
    return int(any(not found["passed"] for part in arguments.parts for found in results.checks[part].values()))


def environment(device: str) -> dict[str, str]:
    """Return the environment of all processes."""
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("workflow", "bench", "tests"))
    variables = {READY: "1", "PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "true"}
    if device == "cpu":
        variables |= {"BENCH": "small", "CUDA_VISIBLE_DEVICES": ""}
    return {**os.environ, **variables}


def interpreter() -> str:
    """Return a Python with all packages: on a bare machine, one with the wheels before the packages of the machine."""
    if importlib.util.find_spec("snakemake") is not None:
        return sys.executable
    python = PACKAGES / "bin" / "python"
    if not python.exists():
        venv.create(PACKAGES, symlinks=True)
        folder = next(PACKAGES.glob("lib/python3*/site-packages"))
        places = [place for place in sys.path if place.endswith(("site-packages", "dist-packages"))]
        (folder / "machine.pth").write_text("".join(f"{place}\n" for place in places))
        options = ["--quiet", "--no-index", "--no-deps", "--target", str(folder)]
        wheels = map(str, sorted(WHEELS.glob("*.whl")))
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *wheels], check=True)
    return str(python)


def call(part: str, device: str, folder: Path) -> None:
    """Run a part in a process of its own; end it and its children after its time."""
    command = [sys.executable, __file__, part, "--device", device, "--output", str(folder), "--here"]
    limit = LIMITS[part] if device == "cuda" else 600  # a busy CPU is not what this measures
    with tempfile.TemporaryDirectory(prefix="beirgrid-gpu-") as temporary:
        process = subprocess.Popen(command, env={**os.environ, "TMPDIR": temporary}, start_new_session=True)
        started = time.monotonic()
        try:
            status: int | str = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = f"it took more than {limit} s"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    seconds = round(time.monotonic() - started, 1)
    Results(folder).add(part, "all checks ran", {"passed": status == 0, "seconds": seconds, "status": status})


if __name__ == "__main__":
    sys.exit(main())
