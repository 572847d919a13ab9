"""Save tiny checkpoints with random weights from a fixed seed, as their libraries save them."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Callable
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
    """Build a BERT tokenizer of letters and digits, which splits every word into them, and of ``more`` tokens."""
    from transformers import BertTokenizerFast

    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [*characters, *(f"##{c}" for c in characters)]
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *more])}
    return BertTokenizerFast(vocab=vocabulary, model_max_length=128)


def _config(**changes: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(**{"vocab_size": len(_tokenizer()), **_SIZE, **changes})


def byte_tokenizer(name: str, padding_side: str = "right", **special: str) -> Any:
    """Build a byte-level tokenizer of RoBERTa or Qwen2 without merges: one token per byte."""
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel

    pieces = [*special.values(), *sorted(ByteLevel.alphabet())]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    return getattr(transformers, name)(
        vocab=vocabulary, merges=[], model_max_length=128, padding_side=padding_side, **special
    )


def save_plain(folder: Path, kind: str, seed: int = 0) -> Path:
    """Save a random ``bert``, ``distilbert`` or ``roberta`` as transformers does, which states no pooling."""
    import torch
    from transformers import BertModel, DistilBertConfig, DistilBertModel, RobertaConfig, RobertaModel

    torch.manual_seed(seed)
    if kind == "roberta":
        special = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
        tokenizer = byte_tokenizer("RobertaTokenizer", **special, mask_token="<mask>")
        size = {**_SIZE, "max_position_embeddings": 130}  # RoBERTa counts from 2
        config = RobertaConfig(vocab_size=len(tokenizer), initializer_range=0.5, pad_token_id=1, **size)
        model = RobertaModel(config, add_pooling_layer=False)
    else:
        tokenizer = _tokenizer()
        if kind == "distilbert":
            size = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 128}
            model = DistilBertModel(DistilBertConfig(vocab_size=len(tokenizer), initializer_range=0.5, **size))
        else:
            model = BertModel(_config(initializer_range=0.5))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_dpr(folder: Path, tower: str, seed: int = 2) -> Path:
    """Save the ``Question`` or ``Context`` tower of a random DPR."""
    import torch
    import transformers

    torch.manual_seed(seed + len(tower))
    config = transformers.DPRConfig(vocab_size=len(_tokenizer()), initializer_range=0.5, **_SIZE)
    getattr(transformers, f"DPR{tower}Encoder")(config).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def save_decoder(folder: Path, seed: int = 3, *, ended: bool = True) -> Path:
    """Save a random Qwen3 with grouped-query attention as an embedder: last token, padding on the left.

    Its tokenizer ends texts with <|endoftext|> or, like that of e5-mistral, only begins them with a token.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from tokenizers.processors import TemplateProcessing
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(seed)
    end = "<|endoftext|>"
    special = {"eos_token": end, "pad_token": end, "unk_token": end, "bos_token": "<s>"}
    tokenizer = byte_tokenizer("Qwen2Tokenizer", padding_side="left", **special)
    tokens = [(token, tokenizer.convert_tokens_to_ids(token)) for token in (end, "<s>")]
    texts = (f"$A {end}", f"$A $B {end}") if ended else ("<s> $A", "<s> $A $B")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=texts[0], pair=texts[1], special_tokens=tokens
    )
    size = {**_SIZE, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    plain = folder.parent / f"{folder.name}-qwen3"
    Qwen3Model(Qwen3Config(vocab_size=len(tokenizer), initializer_range=0.3, **size)).save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    modules = [Transformer(str(plain)), Pooling(32, "lasttoken"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def save_yes_no(folder: Path, seed: int = 8) -> Path:
    """Save a random Qwen3 with its language head. Its tokenizer has the answers and the tokens of the chat template."""
    import torch
    from tokenizers import AddedToken
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": "<|im_start|>"}
    tokenizer = byte_tokenizer("Qwen2Tokenizer", **special)
    tokenizer.add_tokens([AddedToken(word, single_word=True) for word in ("yes", "no", "Yes", "true", "false")])
    size = {**_SIZE, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    size["max_position_embeddings"] = 8192
    config = Qwen3Config(vocab_size=len(tokenizer), initializer_range=0.3, tie_word_embeddings=True, **size)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_chat(folder: Path, seed: int = 9) -> Path:
    """Save a random Qwen3 that writes mostly numbers, with a chat template."""
    import torch
    from transformers import AutoTokenizer, Qwen3ForCausalLM

    save_yes_no(folder, seed)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), Qwen3ForCausalLM.from_pretrained(folder)
    model.config.tie_word_embeddings = False
    head = torch.zeros_like(model.lm_head.weight)
    digits = tokenizer.convert_tokens_to_ids([*"123456", "[", "]", ">"])
    head[digits] = torch.randn(len(digits), head.shape[1])
    model.lm_head.weight = torch.nn.Parameter(head)
    model.save_pretrained(folder)
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    return folder


def save_modernbert(folder: Path, seed: int = 5) -> Path:
    """Save a random ModernBERT as an embedder. Every second layer attends to four tokens on each side."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import ModernBertConfig, ModernBertModel, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    pieces = [*special.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    ends = [("[CLS]", pieces.index("[CLS]")), ("[SEP]", pieces.index("[SEP]"))]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ends
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=256, **special)
    size = {**_SIZE, "num_hidden_layers": 4, "max_position_embeddings": 256}
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        global_attn_every_n_layers=2,
        local_attention=8,
        initializer_range=0.3,
        pad_token_id=0,
        **size,
    )
    return _save_embedder(folder, ModernBertModel(config), tokenizer)


def save_gemma(folder: Path, seed: int = 6) -> Path:
    """Save a random EmbeddingGemma: a bidirectional Gemma 3. All layers but one attend to windows of five tokens."""
    import torch
    from tokenizers.processors import TemplateProcessing
    from transformers import Gemma3TextConfig, Gemma3TextModel, GemmaTokenizer

    torch.manual_seed(seed)
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *string.ascii_letters, *string.digits, *string.punctuation]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = GemmaTokenizer(vocab=vocabulary, merges=[], model_max_length=256, padding_side="right")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)]
    )
    config = Gemma3TextConfig(
        vocab_size=len(tokenizer),
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        use_bidirectional_attention=True,
        initializer_range=0.2,
        pad_token_id=0,
        **{**_SIZE, "num_hidden_layers": 3, "max_position_embeddings": 256},
    )
    return _save_embedder(folder, Gemma3TextModel(config), tokenizer)


def _save_embedder(folder: Path, model: Any, tokenizer: Any) -> Path:
    """Save a model with mean pooling as sentence-transformers does."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    plain = folder.parent / f"{folder.name}-plain"
    model.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    modules = [Transformer(str(plain)), Pooling(_SIZE["hidden_size"], "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def save_seq2seq(folder: Path, seed: int = 4) -> Path:
    """Save a random T5 whose vocabulary has the words of monoT5's prompt and answers."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(seed)
    tokenizer = _t5_tokenizer()
    size = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    config = T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, initializer_factor=1.0, **size)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_gtr(folder: Path, seed: int = 5, dimension: int = 24) -> Path:
    """Save a random T5 encoder in GTR's form: mean pooling, projection without bias, unit length; float16."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(seed)
    tokenizer = _t5_tokenizer()
    size = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    plain = folder.parent / f"{folder.name}-t5"
    T5EncoderModel(T5Config(vocab_size=len(tokenizer), **size)).half().save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    projection = Dense(32, dimension, bias=False, activation_function=torch.nn.Identity())
    modules = [Transformer(str(plain)), Pooling(32, "mean"), projection, Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def save_sgpt(folder: Path, kind: str = "GPTNeo", seed: int = 6) -> Path:
    """Save a random ``GPTNeo`` or ``GPTJ`` in SGPT's form: no padding token, files of an older library.

    The weights include the causal masks that transformers of 2022 saved as buffers.
    """
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    torch.manual_seed(seed)
    end = "<|endoftext|>"
    tokenizer = byte_tokenizer("GPT2Tokenizer", eos_token=end, bos_token=end, unk_token=end)
    if kind == "GPTNeo":
        size = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}
        size |= {"window_size": 16, "max_position_embeddings": 128}
        attention = "h.{}.attn.attention"
    else:
        size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128, "rotary_dim": 8}
        attention = "h.{}.attn"
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(tokenizer), initializer_range=0.3, **size)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    for layer in range(2):
        weights[f"{attention.format(layer)}.bias"] = torch.ones(1, 1, 128, 128, dtype=torch.bool).tril()
        weights[f"{attention.format(layer)}.masked_bias"] = torch.tensor(-1e9)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "1_Pooling").mkdir()
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    pooling = {f"pooling_mode_{mode}": mode == "weightedmean_tokens" for mode in modes}
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    for name, content in {
        "1_Pooling/config.json": {"word_embedding_dimension": 32, **pooling},
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": 100, "do_lower_case": False},
        "config_sentence_transformers.json": {"__version__": {"sentence_transformers": "2.1.0"}},
    }.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def _t5_tokenizer() -> Any:
    """Build a T5 tokenizer of letters, digits, punctuation and the words of monoT5's prompt and answers."""
    from transformers import T5Tokenizer

    pieces = ["▁", *string.ascii_letters, *string.digits, *string.punctuation]
    words = ["▁true", "▁false", "▁yes", "▁no", "▁Query", "▁Document", "▁Relevant"]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocabulary += [(piece, -5.0) for piece in pieces] + [(word, -1.0) for word in words]
    return T5Tokenizer(vocab=vocabulary, extra_ids=0, model_max_length=128)


def save_dense(folder: Path, seed: int = 0, dimension: int = 32) -> Path:
    """Save a mean-pooling SentenceTransformer over a random BERT."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertModel

    torch.manual_seed(seed)
    bert = folder.parent / f"{folder.name}-bert"
    BertModel(_config(initializer_range=0.5, hidden_size=dimension)).save_pretrained(bert)
    _tokenizer().save_pretrained(bert)
    modules = [Transformer(str(bert)), Pooling(dimension, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def save_static(folder: Path, seed: int = 7, *, model2vec: bool = False) -> Path:
    """Save a random table of token vectors as sentence-transformers or model2vec (shared rows, weights) does."""
    import torch
    from safetensors.torch import save_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    torch.manual_seed(seed)
    tokenizer = _tokenizer().backend_tokenizer
    rows, size = torch.randn(20, 16), tokenizer.get_vocab_size()
    if not model2vec:
        table = StaticEmbedding(tokenizer, embedding_weights=torch.randn(size, 16))
        SentenceTransformer(modules=[table], device="cpu").save_pretrained(str(folder))
        return folder
    folder.mkdir(parents=True)
    mapping, weights = torch.randint(0, 20, (size,)), torch.rand(size, dtype=torch.float64)
    save_file({"embeddings": rows, "mapping": mapping, "weights": weights}, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    kinds = (("", StaticEmbedding), ("1_Normalize", Normalize))
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind.__name__}"}
        for number, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def save_cross_encoder(folder: Path, kind: str = "Bert", seed: int = 1, labels: int = 1) -> Path:
    """Save a random ``Bert`` or ``Electra`` for sequence classification."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(_tokenizer()), initializer_range=0.5, num_labels=labels, **_SIZE
    )
    getattr(transformers, f"{kind}ForSequenceClassification")(config).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def save_splade(folder: Path, seed: int = 2, *, distil: bool = False) -> Path:
    """Save a random BERT or DistilBERT with its masked language model's head, as SPLADE checkpoints are."""
    import torch
    from transformers import BertForMaskedLM, DistilBertForMaskedLM

    torch.manual_seed(seed)
    model = DistilBertForMaskedLM(_distil()) if distil else BertForMaskedLM(_config(initializer_range=0.5))
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def save_inference_free(folder: Path, seed: int = 4) -> Path:
    """Save a random SPLADE for documents with a table of weights for queries, like OpenSearch's models."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    plain = save_splade(folder.parent / f"{folder.name}-splade", seed)
    transformer = Transformer(str(plain), transformer_task="fill-mask")
    table = SparseStaticEmbedding(transformer.tokenizer, torch.rand(len(transformer.tokenizer)), frozen=True)
    pooling = SpladePooling("max", activation_function="log1p_relu")
    router = Router.for_query_document([table], [transformer, pooling])
    SparseEncoder(modules=[router], similarity_fn_name="dot", device="cpu").save_pretrained(str(folder))
    return folder


def save_sparta(folder: Path, seed: int = 3) -> Path:
    """Save a random DistilBERT without a head, as SPARTA checkpoints are."""
    import torch
    from transformers import DistilBertModel

    torch.manual_seed(seed)
    DistilBertModel(_distil()).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _distil() -> Any:
    from transformers import DistilBertConfig

    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 128}
    return DistilBertConfig(vocab_size=len(_tokenizer()), initializer_range=0.5, **sizes)


def save_query_generator(folder: Path, seed: int = 2) -> Path:
    """Save a random T5 whose tokenizer is only a SentencePiece model, like docT5query's checkpoint."""
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


def save_score_modules(folder: Path, seed: int = 3) -> Path:
    """Save a random ModernBERT in the form of ettin's rerankers: first token, two dense layers, a layer norm between
    them.
    """
    import torch
    from sentence_transformers import CrossEncoder
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Pooling, Transformer

    width = _SIZE["hidden_size"]
    transformer = Transformer(str(save_modernbert(folder.parent / f"{folder.name}-modernbert", seed)))
    hidden = Dense(width, width, activation_function=torch.nn.GELU())
    score = Dense(width, 1, activation_function=torch.nn.Identity(), module_output_name="scores")
    modules = [transformer, Pooling(width, "cls"), hidden, LayerNorm(width), score]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def save_term_weights(folder: Path, seed: int = 3, labels: int = 1) -> Path:
    """Save a random BERT for token classification. With one label, it has the form of DeepCT's checkpoint."""
    import torch
    from transformers import BertForTokenClassification

    torch.manual_seed(seed)
    model = BertForTokenClassification(_config(initializer_range=0.5, num_labels=labels))
    model.classifier.bias.data.fill_(0.3)  # most weights positive, some negative, as a trained model's are
    model.save_pretrained(folder)
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
    """Save a random ColBERT as Stanford's code does: one file of weights, settings in artifact.metadata."""
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


def save_pickled(folder: Path, source: Path, *, legacy: bool = False) -> Path:
    """Save a checkpoint as old versions of transformers did, with all weights in a pickle.

    Tied weights share memory, and the positions are among the weights. ``legacy`` is the format before PyTorch 1.6.
    """
    import torch
    import transformers
    from safetensors.torch import load_file

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
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    change({name.removeprefix("bert."): tensor for name, tensor in weights.items()})
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def enlarge_all(weights: dict[str, Any]) -> None:
    """Scale the first layer so that its numbers exceed float16 for each text."""
    weights["encoder.layer.0.output.LayerNorm.weight"] *= 1e6


def save_ance(folder: Path, source: Path) -> tuple[Any, Any]:
    """Save a RoBERTa in the form of ANCE's published checkpoints; return its head, a linear layer and a layer norm."""
    import torch

    save_pickled(folder, source)
    weights = {f"roberta.{name}": tensor for name, tensor in torch.load(folder / "pytorch_model.bin").items()}
    torch.manual_seed(5)
    head, norm = torch.nn.Linear(32, 32), torch.nn.LayerNorm(32)
    torch.nn.init.normal_(norm.weight)
    weights |= {f"embeddingHead.{name}": tensor for name, tensor in head.state_dict().items()}
    weights |= {f"norm.{name}": tensor for name, tensor in norm.state_dict().items()}
    torch.save(weights, folder / "pytorch_model.bin")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["AnceEncoder"]}))
    return head, norm


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


def opened(kind: Any, folder: Path, entry: dict[str, Any], precision: str = "float32", batch_tokens: int = 300) -> Any:
    """Open a checkpoint on the CPU with a class of beirgrid's encoders and a registry entry."""
    from beirgrid.config import models
    from beirgrid.core.compute import Runtime

    family = entry.get("family")
    kinds = {
        "DenseEncoder": models.DenseModel,
        "SparseTextEncoder": models.SparseModel,
        "LateInteractionEncoder": models.LateInteractionModel,
        "CrossEncoderScorer": models.CrossEncoder,
        "AnswerScorer": models.DecoderReranker if family == "decoder-reranker" else models.Seq2SeqReranker,
        "GeneratorModel": models.QueryGenerator,
        "TermWeighter": models.TermWeightsModel,
    }
    model = kinds[kind.__name__]
    family = family or model.model_fields["family"].annotation.__args__[0]
    return kind(folder, model.model_validate({"family": family, **entry}), Runtime("cpu", precision, batch_tokens))


def save_fixed_answer(folder: Path, answers: str) -> Path:
    """Save a Llama that writes a fixed answer after its chat template: each token depends only on the previous one.

    Args:
        folder: folder of the checkpoint.
        answers: what the model writes; no character may come twice, and none may be a line break.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": "<|im_start|>"}
    tokenizer = byte_tokenizer("Qwen2Tokenizer", **special)
    shown = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
    tokenizer.chat_template = shown + "<|im_start|>answer{{ '\n' }}"
    vocabulary = len(tokenizer)
    size = {"hidden_size": vocabulary, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = LlamaConfig(
        vocab_size=vocabulary,
        head_dim=4,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        **size,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(vocabulary))
        model.lm_head.weight.zero_()
        tokens = [*tokenizer("\n" + answers, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        model.lm_head.weight[tokens[1:], tokens[:-1]] = 1.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
