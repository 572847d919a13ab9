"""Tiny checkpoints with random weights from a fixed seed, saved as their libraries save them."""

from __future__ import annotations

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


def _tokenizer() -> Any:
    """A BERT tokenizer that knows letters and digits, so that every word is split into them."""
    from transformers import BertTokenizerFast

    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [*characters, *(f"##{c}" for c in characters)]
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces])}
    return BertTokenizerFast(vocab=vocabulary, model_max_length=128)


def _config(**changes: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(vocab_size=len(_tokenizer()), **_SIZE, **changes)


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


def save_splade(folder: Path, seed: int = 2) -> Path:
    """Save a random BERT with its masked language model's head, as SPLADE checkpoints are."""
    import torch
    from transformers import BertForMaskedLM

    torch.manual_seed(seed)
    BertForMaskedLM(_config(initializer_range=0.5)).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def save_sparta(folder: Path, seed: int = 3) -> Path:
    """Save a random DistilBERT without a head, as SPARTA checkpoints are."""
    import torch
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(seed)
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 128}
    config = DistilBertConfig(vocab_size=len(_tokenizer()), initializer_range=0.5, **sizes)
    DistilBertModel(config).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder
