"""Models against sentence-transformers.

Usage: encoding.py KINDS MINILM CORPUS DOCUMENTS ROUNDS. KINDS are some of ``MODELS``, with commas between them; all but
the first have random weights or heads, which take as long as trained ones. Prints a JSON object for each kind and each
of our precisions: our seconds, those of sentence-transformers in float32 (its default) and in the same precision.
Seconds are medians of rounds in which the contenders take turns. A machine with a GPU encodes the whole corpus on the
GPU.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import generation
import torch
from pydantic import TypeAdapter

from beirgrid.collections import lines
from beirgrid.config import models
from beirgrid.core.compute import Compute, Runtime, multiplies_bfloat16
from beirgrid.encoders import open_model

DEVICE: Literal["cuda", "cpu"] = "cuda" if torch.cuda.is_available() else "cpu"
HALF: Literal["float16", "bfloat16"] = "float16" if DEVICE == "cuda" else "bfloat16"
SMALL = os.environ.get("BENCH") == "small"
# With this range of weights, all layers move the vectors as much as those of trained models.
MINILM: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
MINILM |= {"intermediate_size": 1536, "initializer_range": 0.05, "vocab_size": 30_522}
BASE: dict[str, Any] = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
BASE |= {"intermediate_size": 3072}
QWEN: dict[str, Any] = {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "head_dim": 128}
QWEN |= {"num_key_value_heads": 8, "intermediate_size": 3072, "vocab_size": 151_936}
if SMALL:
    BASE |= {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    QWEN |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
    QWEN |= {"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 30_000}
    MINILM |= {**BASE, "initializer_range": 0.1}


def save_embedder(folder: Path, model: Any, tokenizer: Any, pooling: str) -> None:
    """Save a transformer with pooling as sentence-transformers does."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    plain = str(folder / "transformer")
    model.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    modules = [Transformer(plain), Pooling(model.config.hidden_size, pooling)]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))


def save_minilm(folder: Path, words: list[str]) -> None:
    """Save a random BERT of MiniLM's shape, whose tokenizer has a token for each word."""
    from transformers import BertConfig, BertModel, BertTokenizer

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = BertTokenizer(vocab={piece: row for row, piece in enumerate(pieces)}, model_max_length=512)
    save_embedder(folder, BertModel(BertConfig(**MINILM)), tokenizer, "mean")


def save_base(minilm: Path, folder: Path) -> None:
    """Save a random BERT-base with mean pooling; in the small form, a tiny one."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    save_embedder(folder, BertModel(BertConfig(**BASE)), AutoTokenizer.from_pretrained(minilm), "mean")


def save_decoder(minilm: Path, folder: Path) -> None:
    """Save a random decoder of the shape of Qwen3-Embedding-0.6B, in bfloat16 like the published one."""
    from transformers import AutoTokenizer, Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(minilm, padding_side="left")
    with torch.device(DEVICE):
        model: Any = Qwen3Model(Qwen3Config(**QWEN))
    save_embedder(folder, model.to(torch.bfloat16), tokenizer, "lasttoken")


def save_with_head(minilm: Path, folder: Path, name: str, **options: Any) -> None:
    """Save MiniLM with a random head, as a transformers class."""
    import transformers

    getattr(transformers, name).from_pretrained(minilm, **options).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)


def save_late_interaction(minilm: Path, folder: Path) -> None:
    """Save MiniLM with a random projection of its token vectors."""
    from sentence_transformers import MultiVectorEncoder

    plain = folder / "bert"
    save_with_head(minilm, plain, "BertModel")
    MultiVectorEncoder(str(plain), device="cpu").save_pretrained(str(folder))


def save_static(minilm: Path, folder: Path) -> None:
    """Save a random table of token vectors, for MiniLM's tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    torch.manual_seed(0)
    table = StaticEmbedding(tokenizer, embedding_weights=torch.randn(tokenizer.get_vocab_size(), 256))
    SentenceTransformer(modules=[table], device="cpu").save_pretrained(str(folder))


class Model(NamedTuple):
    """A kind of model.

    Attributes:
        entry: its registry entry.
        theirs: the class of sentence-transformers, and its method.
        save: writes the checkpoint, from MiniLM's.
        options: what their method takes beside texts.
    """

    entry: dict[str, Any]
    theirs: tuple[str, str]
    save: Callable[[Path, Path], None] | None
    options: Mapping[str, Any] = MappingProxyType({})


MODELS = {
    "dense": Model(
        {"family": "dense", "similarity": "cosine", "max_length": 256}, ("SentenceTransformer", "encode"), None
    ),
    "dense-base": Model(
        {"family": "dense", "similarity": "cosine", "max_length": 512}, ("SentenceTransformer", "encode"), save_base
    ),
    "cross-encoder": Model(
        {"family": "cross-encoder", "max_length": 512},
        ("CrossEncoder", "predict"),
        lambda minilm, folder: save_with_head(minilm, folder, "BertForSequenceClassification", num_labels=1),
    ),
    "sparse": Model(
        {"family": "sparse", "max_length": 256},
        ("SparseEncoder", "encode_document"),
        lambda minilm, folder: save_with_head(minilm, folder, "BertForMaskedLM"),
    ),
    "late-interaction": Model(
        {"family": "late-interaction", "max_length": 256},
        ("MultiVectorEncoder", "encode_document"),
        save_late_interaction,
    ),
    "static": Model(  # fastest in batches of 1,024
        {"family": "dense", "similarity": "cosine"},
        ("SentenceTransformer", "encode"),
        save_static,
        {"batch_size": 1024},
    ),
    "decoder": Model(
        {"family": "dense", "similarity": "cosine", "max_length": 512}, ("SentenceTransformer", "encode"), save_decoder
    ),
    "T5": Model(  # sentence-transformers has no class for it
        {"family": "seq2seq-reranker", "answers": ("▁w1", "▁w2"), "max_length": 256},
        ("", ""),
        lambda minilm, folder: generation.make(folder),
    ),
}


def timed(work: Callable[[], object]) -> float:
    """Time a function, in seconds."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def open_theirs(model: Model, folder: Path, precision: str) -> Any:
    """Open the checkpoint with sentence-transformers, with the lengths of the entry."""
    import sentence_transformers

    theirs = getattr(sentence_transformers, model.theirs[0])(
        str(folder), device=DEVICE, model_kwargs={"dtype": getattr(torch, precision)}
    )
    if model.entry["family"] == "late-interaction":
        theirs[0].document_length = model.entry["max_length"]
    elif "max_length" in model.entry:
        theirs.max_seq_length = model.entry["max_length"]
    return theirs


def open_ours(model: Model, folder: Path, runtime: Runtime) -> tuple[Any, Callable[[list[Any]], Any]]:
    """Open our model; return it, and the function that computes texts (or pairs)."""
    opened = open_model(folder, TypeAdapter(models.Model).validate_python(model.entry), runtime)
    if hasattr(opened, "encode_documents"):
        return opened, opened.encode_documents
    return opened, lambda pairs: opened.score(*map(list, zip(*pairs, strict=True)))


def read(kind: str, corpus: Path, documents: int | None) -> list[Any]:
    """Read the texts (or pairs) of the first documents for a kind of model."""
    rows = [json.loads(line) for line, _ in islice(lines.read(corpus), documents)]
    texts: list[Any] = [f"{row['title']} {row['text']}".strip() for row in rows]
    if kind == "cross-encoder":  # another document's title is as long as a query
        texts = list(zip([row["title"] for row in rows[1:] + rows[:1]], texts, strict=True))
    return texts


def main() -> None:
    """Measure each kind of model and print the results."""
    kinds, minilm, corpus, documents, rounds = sys.argv[1:]
    for kind in kinds.split(","):
        texts = read(kind, Path(corpus), None if DEVICE == "cuda" else int(documents))
        with tempfile.TemporaryDirectory(prefix="beirgrid-bench-") as temporary:
            folder = Path(minilm)
            if save := MODELS[kind].save:
                folder = Path(temporary)
                save(Path(minilm), folder)
            measure(kind, folder, texts, int(rounds))


def measure(kind: str, folder: Path, texts: list[Any], rounds: int) -> None:
    """Run the contenders in alternating rounds, and print the result of each of our precisions."""
    model = MODELS[kind]
    precisions: list[Literal["float32", "float16", "bfloat16"]] = ["float32"]
    if kind != "static" and (DEVICE == "cuda" or multiplies_bfloat16("cpu")):
        precisions.append(HALF)
    contenders: dict[str, Callable[[list[Any]], object]] = {}
    for precision in precisions:
        theirs = open_theirs(model, folder, precision)
        contenders[f"theirs {precision}"] = partial(getattr(theirs, model.theirs[1]), **model.options)
        _, contenders[f"ours {precision}"] = open_ours(model, folder, Compute(DEVICE, precision).start())
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        contender(texts[:64])  # warm
    for _ in range(rounds):
        for name, contender in contenders.items():
            seconds[name].append(timed(partial(contender, texts)))
    median = {name: statistics.median(found) for name, found in seconds.items()}
    for name in precisions:
        found = {
            "kind": kind,
            "precision": name,
            "texts": len(texts),
            "ours": median[f"ours {name}"],
            "theirs": median["theirs float32"],
            "theirs_alike": median[f"theirs {name}"],
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
