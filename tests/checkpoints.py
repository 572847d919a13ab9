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


def save_query_generator(folder: Path, seed: int = 2) -> Path:
    """Save a random T5 whose tokenizer is a SentencePiece model alone, as docT5query's checkpoint is."""
    import sentencepiece
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    folder.mkdir(parents=True)
    words = (a + b + c for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefghij")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=words,
        model_prefix=str(folder / "spiece"),
        vocab_size=60,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    (folder / "spiece.vocab").unlink()
    settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 4, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        initializer_factor=0.3,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def save_term_weights(folder: Path, seed: int = 3, labels: int = 1) -> Path:
    """Save a random BERT for token classification: with one label, as DeepCT's checkpoint is."""
    import torch
    from transformers import BertForTokenClassification

    torch.manual_seed(seed)
    model = BertForTokenClassification(_config(initializer_range=0.5, num_labels=labels))
    model.classifier.bias.data.fill_(0.3)  # most weights positive, some negative, as a trained model's are
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder
