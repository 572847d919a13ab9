"""Each model of the grids today and today-small opens by its entry there, on a random checkpoint of its architecture.

The architectures are those that mteb and the models that they are adapted from state. Their results are those of plain
transformers code, which reads one text or pair at a time. docs/limits.md says what no source here states.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
import yaml
from checkpoints import (
    change_json,
    normalised,
    save,
    save_bert,
    save_decoder,
    save_inference_free,
    save_mmbert,
    save_modernbert,
    save_pylate,
    save_score_modules,
    save_static,
    save_yes_no,
    sides,
    states,
)
from helpers import ROOT
from mteb.models import ModelMeta
from safetensors.numpy import load_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from test_late_interaction import Paper
from transformers.modeling_outputs import BaseModelOutput

from beirgrid import config
from beirgrid.config.names import local_name
from beirgrid.core.compute import Runtime
from beirgrid.encoders import open_model

pytestmark = pytest.mark.slow

TEXTS = [
    "a short text",
    "one that is somewhat longer than the first, and ends here",
    "x",
    "numbers 1 2 3 and (brackets)",
]
LONG = 8192
SIZE = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}
# Of Qwen3.5: three layers of linear attention, and one that attends to all tokens before.
QWEN_3_5 = {"num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
QWEN_3_5 |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "tie_word_embeddings": True}
POOLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls": lambda tokens: tokens[0],
    "mean": lambda tokens: tokens.mean(0),
    "lasttoken": lambda tokens: tokens[-1],
}


def _long(folder: Path) -> Path:
    """Widen a checkpoint without a table of positions to texts of 8,192 tokens."""
    change_json(folder / "config.json", max_position_embeddings=LONG)
    change_json(folder / "tokenizer_config.json", model_max_length=LONG)
    if (settings := folder / "sentence_bert_config.json").exists():
        change_json(settings, max_seq_length=LONG)
    return folder


def _bare(folder: Path) -> Path:
    """Take from a tokenizer the tokens that it adds to texts."""
    change_json(folder / "tokenizer.json", post_processor=None)
    return folder


# Checkpoints


def _with_modules(folder: Path, plain: Path, *modules: Any) -> Path:
    SentenceTransformer(modules=[Transformer(str(plain)), *modules], device="cpu").save_pretrained(str(folder))
    return folder


def save_leaf(folder: Path) -> Path:
    """Save a random MiniLM with mean pooling and a projection to more dimensions."""
    plain = save_bert(folder.with_name("plain"), max_position_embeddings=512)
    return _with_modules(folder, plain, Pooling(32, "mean"), Dense(32, 48, activation_function=torch.nn.Identity()))


def save_bge_large(folder: Path) -> Path:
    """Save a random BERT that gives its first token."""
    plain = save_bert(folder.with_name("plain"), max_position_embeddings=512)
    return _with_modules(folder, plain, Pooling(32, "cls"))


def _xlm_roberta(architecture: str, **more: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    pieces = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "▁",
        *string.ascii_letters,
        *string.digits,
        *string.punctuation,
        "<mask>",
    ]
    vocabulary = [(piece, -float(number)) for number, piece in enumerate(pieces)]
    tokenizer = transformers.XLMRobertaTokenizer(vocab=vocabulary, model_max_length=LONG)
    size = {**SIZE, "num_hidden_layers": 2, "max_position_embeddings": LONG + 2, "pad_token_id": 1, **more}
    settings = transformers.XLMRobertaConfig(vocab_size=len(tokenizer), initializer_range=0.5, **size)
    return getattr(transformers, architecture)(settings), tokenizer


def save_m3(folder: Path) -> Path:
    """Save a random XLM-R that gives its first token, of length 1."""
    plain = save(folder.with_name("plain"), *_xlm_roberta("XLMRobertaModel", add_pooling_layer=True))
    return _with_modules(folder, plain, Pooling(32, "cls"), Normalize())


def save_xlm_reranker(folder: Path) -> Path:
    """Save a random XLM-R for sequence classification."""
    return save(folder, *_xlm_roberta("XLMRobertaForSequenceClassification", num_labels=1))


def save_nemotron(folder: Path) -> Path:
    """Save a random Ministral 3 whose tokens see all others, with mean pooling."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_decoder(folder.with_name("decoder")))
    torch.manual_seed(0)
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": LONG // 16}
    settings = transformers.Ministral3Config(
        vocab_size=len(tokenizer),
        num_hidden_layers=2,
        head_dim=8,
        is_causal=False,
        initializer_range=0.3,
        max_position_embeddings=LONG,
        rope_parameters={**rope, "beta_fast": 32.0, "beta_slow": 1.0, "llama_4_scaling_beta": 0.1},
        **SIZE,
    )
    plain = save(folder.with_name("plain"), transformers.Ministral3Model(settings), tokenizer)
    return _with_modules(folder, plain, Pooling(32, "mean"), Normalize())


TEMPLATE = (
    "<|im_start|>Query: {{ (messages | selectattr('role', 'eq', 'query') | first).content }}\n"
    "Document: {{ (messages | selectattr('role', 'eq', 'document') | first).content }}<|im_end|>"
)


def save_answering(folder: Path, architecture: str, **more: Any) -> Path:
    """Save a random decoder whose score is the logit of yes minus that of no, after its chat template."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_yes_no(folder.with_name("tokens")))
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    kind = getattr(transformers, f"{architecture}ForCausalLM")
    size = {**SIZE, "max_position_embeddings": LONG, "vocab_size": len(tokenizer), "initializer_range": 0.3, **more}
    plain = save(folder.with_name("plain"), kind(kind.config_class(**size)), tokenizer)
    read = Transformer(str(plain), transformer_task="text-generation")
    yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
    CrossEncoder(modules=[read, LogitScore(yes, no)], device="cpu").save_pretrained(str(folder))
    return folder


def save_pplx(folder: Path) -> Path:
    """Save a random Qwen3.5 that gives a projected vector per token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_yes_no(folder.with_name("tokens")))
    torch.manual_seed(0)
    settings = transformers.Qwen3_5TextConfig(vocab_size=len(tokenizer), initializer_range=0.3, **SIZE, **QWEN_3_5)
    plain = save(folder.with_name("plain"), transformers.Qwen3_5TextModel(settings), tokenizer)
    MultiVectorEncoder(str(plain), device="cpu").save_pretrained(str(folder))
    return folder


def save_kalm(folder: Path) -> Path:
    """Save a random T5Gemma 2, with towers of three layers for texts, and one for images."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_mmbert(folder.with_name("tokens")))
    tokenizer.add_tokens(["<start_of_turn>", "<end_of_turn>", "yes", "no"])
    torch.manual_seed(0)
    text = {**SIZE, "num_hidden_layers": 3, "head_dim": 8, "max_position_embeddings": LONG, "sliding_window": 8}
    text |= {"vocab_size": len(tokenizer) + 3, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    text["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
    images = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    images |= {"image_size": 14, "patch_size": 14, "vision_use_head": False}
    marks = {f"{name}_token_index": len(tokenizer) + number for number, name in enumerate(("image", "boi", "eoi"))}
    towers = {"text_config": text, "vision_config": images, "mm_tokens_per_image": 1, **marks}
    settings = transformers.T5Gemma2Config(encoder=towers, decoder=text, image_token_index=marks["image_token_index"])
    model = transformers.T5Gemma2ForConditionalGeneration(settings)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    return save(folder, model, tokenizer)


# What plain code gives for queries and documents, or for pairs of both


def pooled(folder: Path, texts: list[str], side: str, pool: str) -> np.ndarray:
    """Return the vectors of texts: last hidden states, pooled, projected if there is a projection, of length 1."""
    vectors = np.stack([POOLS[pool](tokens) for tokens in states(folder, texts)])
    if (projection := folder / "2_Dense" / "model.safetensors").exists():
        weights = load_file(projection)
        vectors = vectors @ weights["linear.weight"].T + weights["linear.bias"]
    return normalised(vectors)


def averaged(folder: Path, texts: list[str], side: str) -> np.ndarray:
    """Return the means of the rows of a table, of length 1."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(next(folder.rglob("tokenizer.json"))))
    rows = load_file(next(folder.rglob("*.safetensors")))
    table = rows["embeddings"][rows["mapping"]] * rows["weights"][:, None] if "mapping" in rows else None
    table = rows["embedding.weight"] if table is None else table
    return normalised([table[tokenizer(text, add_special_tokens=False)["input_ids"]].mean(0) for text in texts])


def weighted(folder: Path, texts: list[str], side: str) -> np.ndarray:
    """Return the weights of terms: a table for queries, the logarithm of the logarithm of logits for documents."""
    plain = folder.with_name(f"{folder.name}-plain")
    model = transformers.AutoModelForMaskedLM.from_pretrained(plain)
    if side == "document":
        return np.stack([np.log1p(np.log1p(row.max(0).clip(0))) for row in states(plain, texts, model=model.eval())])
    (table,) = (load_file(path)["weight"] for path in folder.rglob("*SparseStaticEmbedding/model.safetensors"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(plain)
    asked = np.zeros((len(texts), len(table)), np.float32)
    for row, text in zip(asked, texts, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        row[ids] = table[ids]
    return asked


def tokens_of(folder: Path, texts: list[str], side: str) -> list[np.ndarray]:
    """Return the token vectors of texts, as ColBERT's paper has them."""
    paper = Paper(folder, "[Q] ", "[D] ")
    return [paper.query(text, 32) if side == "query" else paper.document(text, 100) for text in texts]


def projected(folder: Path, texts: list[str], side: str) -> list[np.ndarray]:
    """Return a projected vector of length 1 for each token of texts."""
    projection = load_file(folder / "1_Dense" / "model.safetensors")["linear.weight"]
    return [normalised(tokens @ projection.T) for tokens in states(folder, texts)]


def classified(folder: Path, queries: list[str], documents: list[str]) -> np.ndarray:
    """Return the logit of each pair."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        read = (tokenizer(*pair, return_tensors="pt") for pair in zip(queries, documents, strict=True))
        return np.array([float(model(**pair).logits) for pair in read])


def scored_by_modules(folder: Path, queries: list[str], documents: list[str]) -> np.ndarray:
    """Return the score of the first token of each pair: two dense layers, and a layer norm between them."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    hidden, norm, score = (
        {name.split(".")[-1]: torch.tensor(value) for name, value in load_file(path / "model.safetensors").items()}
        for path in (folder / "2_Dense", folder / "3_LayerNorm", folder / "4_Dense")
    )
    found = []
    with torch.inference_mode():
        for pair in zip(queries, documents, strict=True):
            first = model(**tokenizer(*pair, return_tensors="pt")).last_hidden_state[:, 0]
            first = torch.nn.functional.gelu(first @ hidden["weight"].T + hidden["bias"])
            first = torch.nn.functional.layer_norm(first, (32,), norm["weight"], norm["bias"])
            found.append(float(first @ score["weight"].T + score["bias"]))
    return np.array(found)


def _answer(folder: Path, text: str, dtype: torch.dtype) -> float:
    """Return the logit of yes minus that of no after a text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.inference_mode():
        logits = model(**tokenizer(text, add_special_tokens=False, return_tensors="pt")).logits[0, -1].double()
    yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
    return float(logits[yes] - logits[no])


def answered(
    folder: Path, queries: list[str], documents: list[str], form: str, dtype: torch.dtype = torch.float32
) -> np.ndarray:
    """Return the logit of yes minus that of no after each pair in a form."""
    pairs = zip(queries, documents, strict=True)
    return np.array([_answer(folder, form.format(query=query, document=text), dtype) for query, text in pairs])


def probable(*pairs: Any, **options: Any) -> np.ndarray:
    """Return the probability of yes, of yes and no."""
    return 1 / (1 + np.exp(-answered(*pairs, **options)))


CHAT = "<|im_start|>Query: {query}\nDocument: {document}<|im_end|>"
# As the model's card has it.
QWEN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: Given the user query, retrieval the relevant passages\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
KALM = (
    "<bos><start_of_turn>user\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".\n\n'
    "<Instruct>: Given a query, retrieve documents that answer the query.\n<Query>: {query}<end_of_turn>\n"
    "<start_of_turn>model\n\n\n\n"
)


def compressed(folder: Path, queries: list[str], documents: list[str]) -> np.ndarray:
    """Return the probability of yes from a decoder that reads means of four states of the document's encoder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
    read = partial(tokenizer, add_special_tokens=False, return_tensors="pt")
    found = []
    with torch.inference_mode():
        for query, document in zip(queries, documents, strict=True):
            encoded = model.get_encoder()(**read(f"<Document>: {document}")).last_hidden_state[0]
            means = torch.stack([part.mean(0) for part in encoded.split(4)])[None]
            asked = read(KALM.format(query=query))["input_ids"]
            logits = model(encoder_outputs=BaseModelOutput(means), decoder_input_ids=asked).logits[0, -1].float()
            found.append(float(logits[[yes, no]].softmax(0)[0]))
    return np.array(found)


class Architecture(NamedTuple):
    """How a random checkpoint is saved, what plain code gives for it, and which models have such a checkpoint."""

    save: Callable[[Path], Path]
    plain: Callable[..., Any]
    models: list[str]
    tolerance: float = 1e-4


# 16 bits, in which three loaders of mteb compute.
COARSE = 0.01
ARCHITECTURES = {
    "a table": Architecture(
        save_static, averaged, ["hotchpotch/bekko-static-embedding-v1", "erikkaum/lattice-retrieval"]
    ),
    "a table of model2vec": Architecture(
        partial(save_static, model2vec=True), averaged, ["minishlab/potion-retrieval-32M"]
    ),
    "MiniLM, mean, projection": Architecture(save_leaf, partial(pooled, pool="mean"), ["MongoDB/mdbr-leaf-ir"]),
    "BERT, first token": Architecture(
        save_bge_large, partial(pooled, pool="cls"), ["mixedbread-ai/mxbai-embed-large-v1"]
    ),
    "ModernBERT, first token": Architecture(
        lambda folder: _long(save_modernbert(folder, "cls")),
        partial(pooled, pool="cls"),
        [
            "ibm-granite/granite-embedding-small-english-r2",
            "ibm-granite/granite-embedding-english-r2",
            "Alibaba-NLP/gte-modernbert-base",
            "lightonai/DenseOn",
        ],
    ),
    "ModernBERT, mean": Architecture(
        lambda folder: _long(save_modernbert(folder)), partial(pooled, pool="mean"), ["lightonai/DenseOn"]
    ),
    "ModernBERT, Gemma's tokens, first token": Architecture(
        lambda folder: _long(save_mmbert(folder, "cls")), partial(pooled, pool="cls"), ["lightonai/mDenseOn"]
    ),
    "ModernBERT, Gemma's tokens, mean": Architecture(
        lambda folder: _long(save_mmbert(folder)), partial(pooled, pool="mean"), ["lightonai/mDenseOn"]
    ),
    "the same in 16 bits": Architecture(
        lambda folder: _long(save_mmbert(folder)),
        partial(pooled, pool="mean"),
        ["hotchpotch/bekko-embedding-v1-a25m"],
        2 * COARSE,
    ),
    "XLM-R, first token": Architecture(
        save_m3, partial(pooled, pool="cls"), ["BAAI/bge-m3", "Snowflake/snowflake-arctic-embed-l-v2.0"]
    ),
    "Qwen3, last token": Architecture(
        lambda folder: _long(save_decoder(folder)),
        partial(pooled, pool="lasttoken"),
        ["Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Embedding-4B", "microsoft/harrier-oss-v1-0.6b"],
    ),
    "Qwen3, end token of the entry": Architecture(
        lambda folder: _bare(_long(save_decoder(folder, ended=False))),
        lambda folder, texts, side: pooled(folder, [text + "<|endoftext|>" for text in texts], side, "lasttoken"),
        ["codefuse-ai/F2LLM-v2-0.6B", "codefuse-ai/F2LLM-v2-4B"],
    ),
    "Ministral 3, mean": Architecture(
        save_nemotron,
        partial(pooled, pool="mean"),
        ["nvidia/Nemotron-3-Embed-1B-BF16", "nvidia/Nemotron-3-Embed-8B-BF16"],
    ),
    "a table for queries": Architecture(
        save_inference_free, weighted, ["opensearch-project/opensearch-neural-sparse-encoding-doc-v3-distill"]
    ),
    "ColBERT of ModernBERT": Architecture(
        lambda folder: save_pylate(folder, base=save_modernbert(folder.with_name("base"))),
        tokens_of,
        [
            "lightonai/LateOn",
            "lightonai/ColBERT-Zero",
            "topk-io/Iso-ModernColBERT",
            "lightonai/GTE-ModernColBERT-v1",
        ],
    ),
    "ColBERT of ModernBERT, Gemma's tokens": Architecture(
        lambda folder: save_pylate(folder, base=save_mmbert(folder.with_name("base"))),
        tokens_of,
        ["lightonai/mLateOn"],
    ),
    "ColBERT of Qwen3.5": Architecture(save_pplx, projected, ["perplexity-ai/pplx-embed-v2-late-0.6b"]),
    "BERT's class": Architecture(
        lambda folder: save_bert(folder, "BertForSequenceClassification", num_labels=1, max_position_embeddings=512),
        classified,
        ["cross-encoder/ms-marco-MiniLM-L6-v2"],
    ),
    "XLM-R's class": Architecture(save_xlm_reranker, classified, ["BAAI/bge-reranker-v2-m3"]),
    "modules over ModernBERT": Architecture(
        lambda folder: _long(save_score_modules(folder)),
        scored_by_modules,
        [f"cross-encoder/ettin-reranker-{size}m-v1" for size in (32, 150, 400)],
    ),
    "Qwen2's answer": Architecture(
        partial(save_answering, architecture="Qwen2", num_hidden_layers=2),
        partial(answered, form=CHAT),
        ["mixedbread-ai/mxbai-rerank-base-v2"],
        1e-3,
    ),
    "Qwen3.5's answer": Architecture(
        partial(save_answering, architecture="Qwen3_5", **QWEN_3_5),
        partial(probable, form=CHAT, dtype=torch.bfloat16),
        ["lightonai/LightOn-rerank-PW-0.8B"],
        COARSE,
    ),
    "Qwen3's answer": Architecture(
        save_yes_no, partial(probable, form=QWEN, dtype=torch.bfloat16), ["Qwen/Qwen3-Reranker-0.6B"], COARSE
    ),
    "T5Gemma 2's answer": Architecture(
        save_kalm,
        compressed,
        [f"KaLM-Embedding/KaLM-Reranker-V1-{size}" for size in ("Nano", "Small", "Large")],
        COARSE,
    ),
}
CASES = [(kind, name) for kind, architecture in ARCHITECTURES.items() for name in architecture.models]


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """The entries of the models of both grids, from the lock file of the checkout."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for grid in ("today", "today-small"):
            content = yaml.safe_load((ROOT / f"config/grids/{grid}.yaml").read_text())
            loaded = config.load(config.with_defaults(content)).models
            found |= {name: loaded[local_name(name)] for name in content["models"]}
    return found


def test_no_model_of_today_is_left_out(models):
    assert {name for _, name in CASES} == set(models)


@pytest.fixture
def no_images(monkeypatch):
    """Provide the packages that mteb asks for with models that also read images. No text needs them."""
    monkeypatch.setattr(ModelMeta, "_missing_dependencies", staticmethod(lambda groups: []))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_model_of_today_gives_what_plain_code_gives(models, tmp_path, no_images, kind, name):
    save_checkpoint, plain, _, tolerance = ARCHITECTURES[kind]
    folder = save_checkpoint(tmp_path / "model")
    entry = models[name]
    opened = open_model(folder, entry, Runtime("cpu", "float32", 300))
    if hasattr(opened, "encode_queries"):
        for side, encode in sides(opened):
            found = encode(TEXTS)
            prompt = getattr(entry.prompts, side, None) or "" if hasattr(entry, "prompts") else ""
            expected = plain(folder, [prompt + text for text in TEXTS], side)
            if hasattr(found, "by_text"):
                assert [len(vectors) for vectors in found.by_text()] == [len(vectors) for vectors in expected]
                found = found.vectors
                expected = np.concatenate(expected)
            found = found.toarray() if hasattr(found, "toarray") else found
            np.testing.assert_allclose(found, expected, atol=tolerance, rtol=0)
            assert np.ptp(found) > 3 * tolerance
    else:
        found = opened.score(TEXTS, TEXTS[::-1])
        expected = plain(folder, TEXTS, TEXTS[::-1])
        np.testing.assert_allclose(found, expected, atol=tolerance, rtol=0)
        assert np.ptp(found) > 3 * tolerance
