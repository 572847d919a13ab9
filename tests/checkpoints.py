"""Tiny checkpoints with random weights from a fixed seed, saved as their libraries save them."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

_SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}


def _tokenizer(*more: str) -> Any:
    """A BERT tokenizer that knows letters and digits, so that every word is split into them, and ``more``."""
    from transformers import BertTokenizerFast

    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [*characters, *(f"##{c}" for c in characters)]
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *more])}
    return BertTokenizerFast(vocab=vocabulary, model_max_length=128)


def _config(**changes: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(**{"vocab_size": len(_tokenizer()), **_SIZE, **changes})


def save_dense(folder: Path, seed: int = 0) -> Path:
    """Save a mean-pooling SentenceTransformer over a random BERT."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertModel

    torch.manual_seed(seed)
    bert = folder.parent / f"{folder.name}-bert"
    BertModel(_config(initializer_range=0.5)).save_pretrained(bert)
    _tokenizer().save_pretrained(bert)
    transformer = Transformer(str(bert))
    SentenceTransformer(modules=[transformer, Pooling(32, "mean")], device="cpu").save_pretrained(str(folder))
    return folder


def save_cross_encoder(folder: Path, seed: int = 1) -> Path:
    """Save a random BERT for sequence classification with one label."""
    import torch
    from transformers import BertForSequenceClassification

    torch.manual_seed(seed)
    BertForSequenceClassification(_config(initializer_range=0.5, num_labels=1)).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _projection(dimension: int) -> Any:
    import torch

    return torch.nn.Linear(_SIZE["hidden_size"], dimension, bias=False).weight.detach()


def save_pylate(folder: Path, seed: int = 2, dimension: int = 16) -> Path:
    """Save a random ColBERT as PyLate 1 does: a transformer, a projection, and markers added to the tokenizer."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertModel

    torch.manual_seed(seed)
    tokenizer = _tokenizer()
    tokenizer.add_tokens(["[Q] ", "[D] "])
    BertModel(_config(initializer_range=0.5, vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "1_Dense").mkdir()
    weights = {"linear.weight": _projection(dimension)}
    save_file(weights, folder / "1_Dense" / "model.safetensors", metadata={"format": "pt"})
    dense = {"in_features": 32, "out_features": dimension, "bias": False}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    settings = {
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 32,
        "document_length": 100,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
    }
    for name, content in {
        "1_Dense/config.json": dense,
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": 99, "do_lower_case": False},
        "config_sentence_transformers.json": settings,
    }.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def save_stanford(folder: Path, seed: int = 3, dimension: int = 16) -> Path:
    """Save a random ColBERT as Stanford's code does: one file of weights, and its settings in artifact.metadata."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import BertModel

    torch.manual_seed(seed)
    tokenizer = _tokenizer("[unused0]", "[unused1]")
    BertModel(_config(initializer_range=0.5, vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    weights["linear.weight"] = _projection(dimension)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    settings = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 32,
        "doc_maxlen": 100,
        "attend_to_mask_tokens": False,
        "mask_punctuation": True,
        "similarity": "cosine",
        "dim": dimension,
    }
    (folder / "artifact.metadata").write_text(json.dumps(settings))
    return folder
