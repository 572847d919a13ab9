"""Save tiny checkpoints with random weights from a fixed seed, as their libraries save them."""

from __future__ import annotations

import json
import random
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    LayerNorm,
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
)
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from beirgrid.collections import collection
from beirgrid.config import models
from beirgrid.core.compute import Runtime
from beirgrid.encoders import open_model

SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
_GROUPED = {**SIZE, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
_T5SIZE = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
_DOT = {"similarity": "dot"}
# Family and registry entry of tiny models.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("dense", {**_DOT, "pooling": "mean"}),
    "distilbert": ("dense", {**_DOT, "pooling": "cls"}),
    "roberta": ("dense", {**_DOT, "pooling": "mean"}),
    **dict.fromkeys(("dense", "decoder", "modernbert", "gemma"), ("dense", _DOT)),
    **dict.fromkeys(("dpr-question", "dpr-context"), ("dense", {**_DOT, "pooling": "pooler"})),
    "splade": ("sparse", {}),
    "sparta": ("sparse", {"pooling": "sparta"}),
    **dict.fromkeys(("late-interaction", "stanford"), ("late-interaction", {})),
    **dict.fromkeys(("cross-encoder", "electra"), ("cross-encoder", {})),
    "seq2seq": ("seq2seq-reranker", {"max_length": 100}),
    "term-weights": ("term-weights", {}),
    "query-generator": ("query-generator", {}),
}


def bert_tokenizer(*more: str) -> Any:
    """Build a BERT tokenizer of letters and digits, which splits every word into them, and of ``more`` tokens."""
    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [*characters, *(f"##{c}" for c in characters)]
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *more])}
    return transformers.BertTokenizerFast(vocab=vocabulary, model_max_length=128)


def _config(kind: Any = transformers.BertConfig, **changes: Any) -> Any:
    """Build the configuration of a small model of the kind of BERT, for ``bert_tokenizer``."""
    size = {**SIZE, "hidden_dim": SIZE["intermediate_size"]}  # as DistilBERT names it
    return kind(**{"vocab_size": len(bert_tokenizer()), "initializer_range": 0.5, **size, **changes})


def byte_tokenizer(name: str, padding_side: str = "right", **special: str) -> Any:
    """Build a byte-level tokenizer of RoBERTa or Qwen2 without merges: one token per byte."""
    pieces = [*special.values(), *sorted(ByteLevel.alphabet())]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    return getattr(transformers, name)(
        vocab=vocabulary, merges=[], model_max_length=128, padding_side=padding_side, **special
    )


def _t5_tokenizer() -> Any:
    """Build a T5 tokenizer of letters, digits, punctuation and the words of monoT5's prompt and answers."""
    pieces = ["▁", *string.ascii_letters, *string.digits, *string.punctuation]
    words = ["▁true", "▁false", "▁yes", "▁no", "▁Query", "▁Document", "▁Relevant"]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocabulary += [(piece, -5.0) for piece in pieces] + [(word, -1.0) for word in words]
    return transformers.T5Tokenizer(vocab=vocabulary, extra_ids=0, model_max_length=128)


def save(folder: Path, model: Any, tokenizer: Any) -> Path:
    """Save a model and its tokenizer as transformers does."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _save_embedder(folder: Path, model: Any, tokenizer: Any, *modules: Any) -> Path:
    """Save a model and the modules that follow it as sentence-transformers does; the model alone in ``…-plain``."""
    plain = save(folder.parent / f"{folder.name}-plain", model, tokenizer)
    SentenceTransformer(modules=[Transformer(str(plain)), *modules], device="cpu").save_pretrained(str(folder))
    return folder


def _write_json(folder: Path, contents: dict[str, Any]) -> None:
    """Write files of a folder by their names."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))


def change_json(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _modules(types: dict[str, str]) -> list[dict[str, Any]]:
    """Return the content of modules.json for types of modules by their folders."""
    return [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(types.items())
    ]


def save_bert(folder: Path, architecture: str = "BertModel", seed: int = 0, **changes: Any) -> Path:
    """Save a random model of an architecture of the kind of BERT as transformers does, which states no pooling."""
    torch.manual_seed(seed)
    kind = getattr(transformers, architecture)
    return save(folder, kind(_config(kind.config_class, **changes)), bert_tokenizer())


def save_roberta(folder: Path) -> Path:
    """Save a random RoBERTa as transformers does, which states no pooling."""
    torch.manual_seed(0)
    special = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    tokenizer = byte_tokenizer("RobertaTokenizer", **special, mask_token="<mask>")
    size = {"vocab_size": len(tokenizer), "pad_token_id": 1, "max_position_embeddings": 130}  # RoBERTa counts from 2
    config = _config(transformers.RobertaConfig, **size)
    return save(folder, transformers.RobertaModel(config, add_pooling_layer=False), tokenizer)


def save_decoder(folder: Path, *, ended: bool = True) -> Path:
    """Save a random Qwen3 with grouped-query attention as an embedder: last token, padding on the left.

    Its tokenizer ends texts with <|endoftext|> or, like that of e5-mistral, only begins them with a token.
    """
    torch.manual_seed(3)
    end = "<|endoftext|>"
    special = {"eos_token": end, "pad_token": end, "unk_token": end, "bos_token": "<s>"}
    tokenizer = byte_tokenizer("Qwen2Tokenizer", padding_side="left", **special)
    tokens = [(token, tokenizer.convert_tokens_to_ids(token)) for token in (end, "<s>")]
    texts = (f"$A {end}", f"$A $B {end}") if ended else ("<s> $A", "<s> $A $B")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=texts[0], pair=texts[1], special_tokens=tokens
    )
    config = transformers.Qwen3Config(vocab_size=len(tokenizer), initializer_range=0.3, **_GROUPED)
    return _save_embedder(folder, transformers.Qwen3Model(config), tokenizer, Pooling(32, "lasttoken"), Normalize())


def save_yes_no(folder: Path, seed: int = 8) -> Path:
    """Save a random Qwen3 with its language head. Its tokenizer has the answers and the tokens of the chat template."""
    torch.manual_seed(seed)
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": "<|im_start|>"}
    tokenizer = byte_tokenizer("Qwen2Tokenizer", **special)
    tokenizer.add_tokens([AddedToken(word, single_word=True) for word in ("yes", "no", "Yes", "true", "false")])
    size = {**_GROUPED, "max_position_embeddings": 8192, "vocab_size": len(tokenizer)}
    config = transformers.Qwen3Config(initializer_range=0.3, tie_word_embeddings=True, **size)
    return save(folder, transformers.Qwen3ForCausalLM(config), tokenizer)


def save_chat(folder: Path, seed: int = 9) -> Path:
    """Save a random Qwen3 that writes mostly numbers, with a chat template."""
    save_yes_no(folder, seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder)
    model.config.tie_word_embeddings = False
    head = torch.zeros_like(model.lm_head.weight)
    digits = tokenizer.convert_tokens_to_ids([*"123456", "[", "]", ">"])
    head[digits] = torch.randn(len(digits), head.shape[1])
    model.lm_head.weight = torch.nn.Parameter(head)
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return save(folder, model, tokenizer)


def _modernbert(tokenizer: Any) -> Any:
    """Build a random ModernBERT. Every second layer attends to four tokens on each side."""
    torch.manual_seed(5)
    config = transformers.ModernBertConfig(
        vocab_size=len(tokenizer),
        global_attn_every_n_layers=2,
        local_attention=8,
        initializer_range=0.3,
        pad_token_id=0,
        **{**SIZE, "num_hidden_layers": 4, "max_position_embeddings": 256},
    )
    return transformers.ModernBertModel(config)


def save_modernbert(folder: Path, pooling: str = "mean") -> Path:
    """Save a random ModernBERT as an embedder."""
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    pieces = [*special.values(), *sorted(ByteLevel.alphabet())]
    backend = Tokenizer(BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    ends = [("[CLS]", pieces.index("[CLS]")), ("[SEP]", pieces.index("[SEP]"))]
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ends
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=256, **special)
    return _save_embedder(folder, _modernbert(tokenizer), tokenizer, Pooling(32, pooling), Normalize())


def save_mmbert(folder: Path, pooling: str = "mean") -> Path:
    """Save a random mmBERT as an embedder: a ModernBERT that reads Gemma's tokens."""
    tokenizer = _gemma_tokenizer(cls_token="<bos>", sep_token="<eos>", mask_token="<mask>")
    return _save_embedder(folder, _modernbert(tokenizer), tokenizer, Pooling(32, pooling), Normalize())


def _gemma_tokenizer(**special: str) -> Any:
    """Build Gemma's tokenizer of letters, digits, punctuation and bytes."""
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *string.ascii_letters, *string.digits, *string.punctuation]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    sizes = {"model_max_length": 256, "padding_side": "right"}
    tokenizer = transformers.GemmaTokenizer(vocab=vocabulary, merges=[], **sizes, **special)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)]
    )
    return tokenizer


def save_gemma(folder: Path) -> Path:
    """Save a random EmbeddingGemma: a bidirectional Gemma 3. All layers but one attend to windows of five tokens."""
    torch.manual_seed(6)
    tokenizer = _gemma_tokenizer()
    config = transformers.Gemma3TextConfig(
        vocab_size=len(tokenizer),
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        use_bidirectional_attention=True,
        initializer_range=0.2,
        pad_token_id=0,
        **{**SIZE, "num_hidden_layers": 3, "max_position_embeddings": 256},
    )
    return _save_embedder(folder, transformers.Gemma3TextModel(config), tokenizer, Pooling(32, "mean"), Normalize())


def save_seq2seq(folder: Path) -> Path:
    """Save a random T5 whose vocabulary has the words of monoT5's prompt and answers."""
    torch.manual_seed(4)
    tokenizer = _t5_tokenizer()
    size = {**_T5SIZE, "vocab_size": len(tokenizer)}
    config = transformers.T5Config(decoder_start_token_id=0, initializer_factor=1.0, **size)
    return save(folder, transformers.T5ForConditionalGeneration(config), tokenizer)


def save_gtr(folder: Path) -> Path:
    """Save a random T5 encoder in GTR's form: mean pooling, projection without bias, unit length; float16."""
    torch.manual_seed(5)
    tokenizer = _t5_tokenizer()
    model = transformers.T5EncoderModel(transformers.T5Config(vocab_size=len(tokenizer), **_T5SIZE)).half()
    projection = Dense(32, 24, bias=False, activation_function=torch.nn.Identity())
    return _save_embedder(folder, model, tokenizer, Pooling(32, "mean"), projection, Normalize())


def save_sgpt(folder: Path, kind: str = "GPTNeo") -> Path:
    """Save a random ``GPTNeo`` or ``GPTJ`` in SGPT's form: no padding token, files of an older library.

    The weights include the causal masks that transformers of 2022 saved as buffers.
    """
    torch.manual_seed(6)
    end = "<|endoftext|>"
    tokenizer = byte_tokenizer("GPT2Tokenizer", eos_token=end, bos_token=end, unk_token=end)
    size = {**SIZE, "attention_types": [[["global", "local"], 1]], "window_size": 16, "rotary_dim": 8}
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(tokenizer), initializer_range=0.3, **size)
    save(folder, getattr(transformers, f"{kind}Model")(config), tokenizer)
    weights = load_file(folder / "model.safetensors")
    for layer in range(2):
        attention = f"h.{layer}.attn.attention" if kind == "GPTNeo" else f"h.{layer}.attn"
        weights[f"{attention}.bias"] = torch.ones(1, 1, 128, 128, dtype=torch.bool).tril()
        weights[f"{attention}.masked_bias"] = torch.tensor(-1e9)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    pooling = {f"pooling_mode_{mode}": mode == "weightedmean_tokens" for mode in modes}
    library = "sentence_transformers.models"
    types = {"": f"{library}.Transformer", "1_Pooling": f"{library}.Pooling"}
    contents = {
        "1_Pooling/config.json": {"word_embedding_dimension": 32, **pooling},
        "modules.json": _modules(types),
        "sentence_bert_config.json": {"max_seq_length": 100, "do_lower_case": False},
        "config_sentence_transformers.json": {"__version__": {"sentence_transformers": "2.1.0"}},
    }
    _write_json(folder, contents)
    return folder


def save_dense(folder: Path, dimension: int = 32) -> Path:
    """Save a mean-pooling SentenceTransformer over a random BERT."""
    torch.manual_seed(0)
    model = transformers.BertModel(_config(hidden_size=dimension))
    return _save_embedder(folder, model, bert_tokenizer(), Pooling(dimension, "mean"))


def save_static(folder: Path, *, model2vec: bool = False) -> Path:
    """Save a random table of token vectors as sentence-transformers or model2vec (shared rows, weights) does."""
    torch.manual_seed(7)
    tokenizer = bert_tokenizer().backend_tokenizer
    rows, size = torch.randn(20, 16), tokenizer.get_vocab_size()
    if not model2vec:
        table = StaticEmbedding(tokenizer, embedding_weights=torch.randn(size, 16))
        SentenceTransformer(modules=[table], device="cpu").save_pretrained(str(folder))
        return folder
    folder.mkdir(parents=True)
    mapping, weights = torch.randint(0, 20, (size,)), torch.rand(size, dtype=torch.float64)
    save_file({"embeddings": rows, "mapping": mapping, "weights": weights}, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    library = "sentence_transformers.models"
    modules = _modules({"": f"{library}.StaticEmbedding", "1_Normalize": f"{library}.Normalize"})
    _write_json(folder, {"config.json": {"model_type": "model2vec", "normalize": True}, "modules.json": modules})
    return folder


def save_cross_encoder(folder: Path, kind: str = "Bert", labels: int = 1) -> Path:
    """Save a random model of the kind of BERT for sequence classification."""
    return save_bert(folder, f"{kind}ForSequenceClassification", 1, num_labels=labels)


def save_splade(folder: Path, kind: str = "Bert") -> Path:
    """Save a random model of the kind of BERT with its masked language model's head, as SPLADE checkpoints are."""
    return save_bert(folder, f"{kind}ForMaskedLM", 2)


def save_inference_free(folder: Path) -> Path:
    """Save a random SPLADE for documents with a table of weights for queries, like OpenSearch's models."""
    plain = save_splade(folder.parent / f"{folder.name}-plain")
    transformer = Transformer(str(plain), transformer_task="fill-mask")
    table = SparseStaticEmbedding(transformer.tokenizer, torch.rand(len(transformer.tokenizer)), frozen=True)
    pooling = SpladePooling("max", activation_function="log1p_relu")
    router = Router.for_query_document([table], [transformer, pooling])
    SparseEncoder(modules=[router], similarity_fn_name="dot", device="cpu").save_pretrained(str(folder))
    return folder


def save_query_generator(folder: Path) -> Path:
    """Save a random T5 whose tokenizer is only a SentencePiece model, like docT5query's checkpoint."""
    import sentencepiece

    folder.mkdir(parents=True)
    words = (a + b + c for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefghij")
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=words, model_prefix=str(folder / "spiece"), vocab_size=60, minloglevel=2, **ids
    )
    (folder / "spiece.vocab").unlink()
    settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 4, "model_max_length": 512}
    _write_json(folder, {"tokenizer_config.json": settings})
    torch.manual_seed(2)
    config = transformers.T5Config(vocab_size=64, decoder_start_token_id=0, initializer_factor=0.3, **_T5SIZE)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def save_score_modules(folder: Path) -> Path:
    """Save a random ModernBERT in the form of ettin's rerankers: first token, two dense layers, a layer norm between
    them.
    """
    transformer = Transformer(str(save_modernbert(folder.parent / f"{folder.name}-modernbert")))
    hidden = Dense(32, 32, activation_function=torch.nn.GELU())
    score = Dense(32, 1, activation_function=torch.nn.Identity(), module_output_name="scores")
    modules = [transformer, Pooling(32, "cls"), hidden, LayerNorm(32), score]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def save_term_weights(folder: Path, labels: int = 1) -> Path:
    """Save a random BERT for token classification. With one label, it has the form of DeepCT's checkpoint."""
    torch.manual_seed(3)
    model = transformers.BertForTokenClassification(_config(num_labels=labels))
    model.classifier.bias.data.fill_(0.3)  # most weights positive, some negative, as a trained model's are
    return save(folder, model, bert_tokenizer())


def _projection(dimension: int) -> torch.Tensor:
    return torch.nn.Linear(32, dimension, bias=False).weight.detach()


def save_pylate(folder: Path, dimension: int = 16, base: Path | None = None) -> Path:
    """Save a random ColBERT as PyLate 1 does: a transformer, a projection, and markers added to the tokenizer.

    The transformer is a BERT, or that of the folder ``base``.
    """
    torch.manual_seed(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base) if base else bert_tokenizer()
    tokenizer.add_tokens(["[Q] ", "[D] "])
    if base:
        tokenizer.add_special_tokens({"mask_token": tokenizer.mask_token or "[MASK]"})
        model = transformers.AutoModel.from_pretrained(base)
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    else:
        model = transformers.BertModel(_config(vocab_size=len(tokenizer)))
    save(folder, model, tokenizer)
    dense = {"in_features": 32, "out_features": dimension, "bias": False}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
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
    types = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    contents = {
        "1_Dense/config.json": dense,
        "modules.json": _modules(types),
        "sentence_bert_config.json": {"max_seq_length": 99, "do_lower_case": False},
        "config_sentence_transformers.json": settings,
    }
    _write_json(folder, contents)
    weights = {"linear.weight": _projection(dimension)}
    save_file(weights, folder / "1_Dense" / "model.safetensors", metadata={"format": "pt"})
    return folder


def save_stanford(folder: Path) -> Path:
    """Save a random ColBERT as Stanford's code does: one file of weights, settings in artifact.metadata."""
    torch.manual_seed(3)
    tokenizer = bert_tokenizer("[unused0]", "[unused1]")
    save(folder, transformers.BertModel(_config(vocab_size=len(tokenizer))), tokenizer)
    weights = {f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    weights["linear.weight"] = _projection(16)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    change_json(folder / "config.json", architectures=["HF_ColBERT"])
    settings = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 32,
        "doc_maxlen": 100,
        "attend_to_mask_tokens": False,
        "mask_punctuation": True,
        "similarity": "cosine",
        "dim": 16,
    }
    _write_json(folder, {"artifact.metadata": settings})
    return folder


def save_pickled(folder: Path, source: Path, *, legacy: bool = False) -> Path:
    """Save a checkpoint as old versions of transformers did, with all weights in a pickle.

    Tied weights share memory, and the positions are among the weights. ``legacy`` is the format before PyTorch 1.6.
    """
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    architecture = json.loads((source / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, architecture, None)  # ColBERT's is in its own code
    weights = model.from_pretrained(source).state_dict() if model else load_file(source / "model.safetensors")
    for name in [name for name in weights if name.endswith("embeddings.position_embeddings.weight")]:
        positions = name.removesuffix("position_embeddings.weight") + "position_ids"
        weights[positions] = torch.arange(len(weights[name]))[None]
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    return folder


def save_changed(folder: Path, source: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy a BERT checkpoint with changed weights. ``change`` gets the weights by their names in a BertModel."""
    shutil.copytree(source, folder)
    saved = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("bert."): tensor for name, tensor in saved.items()}
    change(weights)
    named = {f"bert.{name}" if f"bert.{name}" in saved else name: tensor for name, tensor in weights.items()}
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def enlarge_all(weights: dict[str, Any]) -> None:
    """Scale the first layer so that its numbers exceed float16 for each text."""
    weights["encoder.layer.0.output.LayerNorm.weight"] *= 1e6


def save_ance(folder: Path, source: Path) -> tuple[Any, Any]:
    """Save a RoBERTa in the form of ANCE's published checkpoints; return its head, a linear layer and a layer norm."""
    save_pickled(folder, source)
    weights = {f"roberta.{name}": tensor for name, tensor in torch.load(folder / "pytorch_model.bin").items()}
    torch.manual_seed(5)
    head, norm = torch.nn.Linear(32, 32), torch.nn.LayerNorm(32)
    torch.nn.init.normal_(norm.weight)
    weights |= {f"embeddingHead.{name}": tensor for name, tensor in head.state_dict().items()}
    weights |= {f"norm.{name}": tensor for name, tensor in norm.state_dict().items()}
    torch.save(weights, folder / "pytorch_model.bin")
    change_json(folder / "config.json", architectures=["AnceEncoder"])
    return head, norm


def random_texts(count: int, seed: int = 0, longest: int = 150, letters: str = "abcdefghij    ") -> list[str]:
    """Return texts of random letters, some of them empty."""
    choose = random.Random(seed)
    return ["".join(choose.choices(letters, k=choose.randrange(longest))).strip() for _ in range(count)]


def states(
    folder: Path, texts: list[str], limit: int | None = None, *, model: Any = None, **options: Any
) -> list[np.ndarray]:
    """Return a model's first output for each text alone, without padding, by transformers alone.

    Of a model without a head, these are the last hidden states [tokens, dimension].
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = model or transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, **options)
    with torch.inference_mode():
        read = (tokenizer(text, truncation=True, max_length=limit, return_tensors="pt") for text in texts)
        return [model(**features)[0][0].numpy() for features in read]


def normalised(vectors: Any) -> np.ndarray:
    """Scale vectors [..., dimension] to length 1."""
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def sides(encoder: Any) -> list[tuple[str, Callable[[list[str]], Any]]]:
    """Return the functions that encode queries and documents, with the names of these sides."""
    return [("query", encoder.encode_queries), ("document", encoder.encode_documents)]


def results(model: Any, texts: list[str]) -> list[Any]:
    """Return what an open model gives for each text: a vector, vectors or weights of tokens, or a score in an array."""
    if hasattr(model, "piece_weights"):
        return [text.weights for text in model.piece_weights(texts)]
    if not hasattr(model, "encode_documents"):
        return list(model.score(["ab cd"] * len(texts), texts)[:, None])
    vectors = model.encode_documents(texts)
    if hasattr(vectors, "by_text"):
        return list(vectors.by_text())
    return list(vectors.toarray() if hasattr(vectors, "toarray") else vectors)


def opened(
    family: str, folder: Path, entry: dict[str, Any], precision: str = "float32", batch_tokens: int = 300
) -> Any:
    """Open a checkpoint on the CPU as a model of a family, with further keys of a registry entry."""
    model = TypeAdapter(models.Model).validate_python({"family": family, **entry})
    return open_model(folder, model, Runtime("cpu", precision, batch_tokens))


def encode_texts(output: Path, checkpoint: Path, texts: list[str], entry: dict[str, Any]) -> int:
    """Encode a corpus of texts d0, d1, … without titles, written beside the output, and return the exit status."""
    from helpers import main  # here, because benchmarks import this module where no pytest is

    names = [f"d{number}" for number in range(len(texts))]
    corpus = pa.table([names, [""] * len(texts), texts], schema=collection.CORPUS_SCHEMA)
    pq.write_table(corpus, output.parent / "corpus.parquet")
    words = ["encode", "--model", json.dumps(entry), "--checkpoint", checkpoint, "--precision", "float32"]
    words += ["--corpus", output.parent / "corpus.parquet", "--shard-size", 1000, "--device", "cpu"]
    return main([*words, "--output", output, "--record", output.with_suffix(".json")])


def save_fixed_answer(folder: Path, answers: str) -> Path:
    """Save a Llama that writes a fixed answer after its chat template: each token depends only on the previous one.

    Args:
        folder: folder of the checkpoint.
        answers: what the model writes; no character may come twice, and none may be a line break.
    """
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": "<|im_start|>"}
    tokenizer = byte_tokenizer("Qwen2Tokenizer", **special)
    shown = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
    tokenizer.chat_template = shown + "<|im_start|>answer{{ '\n' }}"
    vocabulary = len(tokenizer)
    size = {"hidden_size": vocabulary, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        head_dim=4,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        **size,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(vocabulary))
        model.lm_head.weight.zero_()
        tokens = [*tokenizer("\n" + answers, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        model.lm_head.weight[tokens[1:], tokens[:-1]] = 1.0
    return save(folder, model, tokenizer)
