"""Compare expansions with plain transformers code on the same weights, and check the documents that are indexed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from checkpoints import opened, random_texts, save_term_weights
from helpers import quick_first
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
    GenerationConfig,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from beirgrid.collections import collection
from beirgrid.core.errors import DataError
from beirgrid.encoders import query_generator
from beirgrid.encoders.query_generator import GeneratorModel, Places, attend, draw, random_numbers


@pytest.fixture
def short_queries(monkeypatch):
    """Limit queries to 16 tokens: random weights seldom end a query."""
    monkeypatch.setattr(query_generator, "QUERY_LENGTH", 16)


def _generator(folder: Path, budget: int = 3000, precision: str = "float32", **spec: Any) -> GeneratorModel:
    return opened("query-generator", folder, spec, precision, budget)


def _queries(folder: Path, text: str, queries: int, top_k: int, limit: int = 512) -> list[str]:
    """Sample queries with one full forward pass per token: no batch, no cache, no library's loop."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    features = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
    sampled = []
    for numbers in random_numbers(5, text, queries):
        pieces = [model.config.decoder_start_token_id]
        for number in numbers:
            with torch.inference_mode():
                logits = model(**features, decoder_input_ids=torch.tensor([pieces])).logits[0, -1].double().numpy()
            best = np.argsort(-logits)[:top_k]
            chances = np.exp(logits[best] - logits[best].max())
            pieces.append(int(best[np.searchsorted(np.cumsum(chances / chances.sum()), number, side="right")]))
            if pieces[-1] == tokenizer.eos_token_id:
                break
        sampled.append(tokenizer.decode(pieces, skip_special_tokens=True).strip())
    return sampled


@pytest.mark.parametrize(("top_k", "limit"), quick_first([(3, 12), (10, 512)]))
def test_queries_are_drawn_from_the_likeliest_word_pieces_of_the_model(tiny_models, short_queries, top_k, limit):
    folder, texts = tiny_models["query-generator"], ["abc fed cab", "jab " * 30, "bad"]
    sampled = _generator(folder, top_k=top_k, max_length=limit).generate(texts, per_text=2, seed=5)
    assert sampled == [_queries(folder, text, 2, top_k, limit) for text in texts]


@pytest.mark.slow
def test_queries_follow_from_seed_and_text_alone(tiny_models, short_queries):
    folder = tiny_models["query-generator"]
    texts = [text for text in random_texts(12) if text]
    found = _generator(folder, 10**6).generate(texts, per_text=3, seed=1)
    assert found == _generator(folder, 1).generate(texts, per_text=3, seed=1)  # each text a batch of its own
    assert found[::-1] == _generator(folder, 700).generate(texts[::-1], per_text=3, seed=1)
    assert [queries[:1] for queries in found] == _generator(folder).generate(texts, per_text=1, seed=1)
    other = _generator(folder).generate(texts, per_text=3, seed=2)
    assert all(mine != others for mine, others in zip(found, other, strict=True))
    assert len({query for queries in found for query in queries}) > 2 * len(texts)


def test_the_rows_that_are_sampled_at_once_are_limited(tiny_models, short_queries):
    """Their keys and values need memory: 80 tokens per batch allow 10 rows. GPL requests more of a small corpus."""
    generator, counts = _generator(tiny_models["query-generator"], 80), []
    sample = generator.sample
    generator.sample = lambda *given: (counts.append(len(given[2])), sample(*given))[1]
    generator.generate(["ab", "cd", "ef", "gh", "ij"], per_text=4, seed=0)
    assert counts == [8, 8, 4]
    counts.clear()
    texts = ["ab", "", "cd", " \n"]
    rounds = generator.generate(texts, per_text=24, seed=0)
    assert counts == [10, 10, 4] * 4
    assert rounds == _generator(tiny_models["query-generator"], 8 * 72).generate(texts, per_text=24, seed=0)
    assert [len(queries) for queries in rounds] == [24, 0, 24, 0]  # blank documents have none
    assert generator.generate([], per_text=2, seed=0) == []


def test_a_checkpoints_own_settings_for_generation_change_nothing(tiny_models, short_queries, tmp_path):
    shutil.copytree(tiny_models["query-generator"], tmp_path / "beams")
    settings = GenerationConfig.from_pretrained(tmp_path / "beams")
    settings.update(num_beams=3, repetition_penalty=5.0, min_length=12, max_length=14, top_k=1, do_sample=True)
    settings.save_pretrained(tmp_path / "beams")
    plain = _generator(tiny_models["query-generator"]).generate(["abc"], per_text=3, seed=0)
    beams = _generator(tmp_path / "beams").generate(["abc"], per_text=3, seed=0)
    assert plain == beams


@pytest.mark.parametrize(("top_k", "top_p"), [(10, 1.0), (4, 1.0), (10, 0.8), (25, 0.95)])
def test_word_pieces_are_drawn_as_often_as_transformers_draws_them(top_k, top_p):
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(0)) * 1.5
    draws = 20_000
    numbers = torch.linspace(0, 1, draws + 1)[:-1]
    drawn = draw(*logits.expand(draws, -1).topk(top_k), numbers, top_p)
    expected = TopPLogitsWarper(top_p)(None, TopKLogitsWarper(top_k)(None, logits)).softmax(-1)[0]
    torch.testing.assert_close(drawn.bincount(minlength=40) / draws, expected, atol=2e-4, rtol=0)


def _save_other(folder: Path, name: str, generator: Path) -> Path:
    """Save a random model of another architecture with the tokenizer of the query generator."""
    shutil.copytree(generator, folder)
    torch.manual_seed(4)
    size: dict[str, Any] = {"d_model": 32, "vocab_size": 64, "pad_token_id": 0, "eos_token_id": 1}
    if name == "Bart":
        layers = {"layers": 2, "attention_heads": 2, "ffn_dim": 64}
        size |= {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in layers.items()}
        size |= {"bos_token_id": 0, "max_position_embeddings": 128, "init_std": 0.3, "forced_eos_token_id": None}
    else:
        size |= {"d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "initializer_factor": 0.3}
    config = getattr(transformers, f"{name}Config")(decoder_start_token_id=0, **size)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    if name == "Bart":
        model.final_logits_bias[0, 1] = 4.0  # or hardly any text would end
    model.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["T5", "Bart"])
def test_rows_that_end_leave_the_batch_and_change_no_other(tiny_models, tmp_path, monkeypatch, name):
    """One of 64 tokens ends a query, so a batch has queries of all lengths."""
    monkeypatch.setattr(query_generator, "QUERY_LENGTH", 40)
    folder = tiny_models["query-generator"]
    folder = folder if name == "T5" else _save_other(tmp_path / name, name, folder)
    texts, counts = ["abc fed cab", "jab " * 9, "bad hid"], []
    generator = _generator(folder, top_k=64)
    kept = query_generator._Rows.keep
    monkeypatch.setattr(query_generator._Rows, "keep", lambda self, rows: (counts.append(len(rows)), kept(self, rows)))
    found = generator.generate(texts, per_text=9, seed=5)
    assert 0 < counts[-1] < counts[0] < 27
    assert found == [_queries(folder, text, 9, 64) for text in texts]


def test_an_architecture_with_attention_of_its_own_is_refused(tiny_models, tmp_path):
    with pytest.raises(DataError, match="a LongT5ForConditionalGeneration cannot generate queries"):
        _generator(_save_other(tmp_path / "model", "LongT5", tiny_models["query-generator"]))


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("precision", "rounding"), [("bfloat16", 0.03), ("float32", 1e-5)])
def test_single_queries_attend_as_in_float64(copies, masked, precision, rounding):
    """Copies of a document's rows share its keys, of which some may be masked; T5 adds a bias to scores."""

    documents, heads, tokens, width = 4, 2, 9, 16
    generator = torch.Generator().manual_seed(0)
    shapes = (documents * copies, heads, 1, width), *[(documents, heads, tokens, width)] * 2, (1, heads, 1, tokens)
    kind = getattr(torch, precision)
    query, key, value, bias = (torch.randn(shape, generator=generator).to(kind) for shape in shapes)
    mask = torch.arange(tokens) < torch.tensor([9, 4, 1, 7])[:, None, None, None] if masked else None
    places = Places(torch.arange(len(query)), copies) if copies > 1 else None
    options: dict[str, Any] = {"scaling": 0.5, "position_bias": bias, "dropout": 0.0, "is_causal": False}
    found, _ = attend(None, query, key, value, mask, places, **options)
    keys, values = (states.repeat_interleave(copies, 0) for states in (key, value))
    scores = query.double() @ keys.double().transpose(2, 3) * 0.5 + bias.double()
    if mask is not None:
        scores = scores.where(mask.repeat_interleave(copies, 0), -torch.inf)
    expected = (scores.softmax(-1) @ values.double()).transpose(1, 2)
    assert found.shape == (documents * copies, 1, heads, width)
    assert (found.double() - expected).abs().max() < rounding


def test_low_precision_samples_from_float32_logits(tiny_models, short_queries):
    texts = ["abc fed cab", "jab hid"]
    low = _generator(tiny_models["query-generator"], precision="bfloat16")
    assert low.model.get_output_embeddings().weight.dtype.itemsize == 4
    assert low.model.encoder.block[0].layer[0].SelfAttention.q.weight.dtype.itemsize == 2
    assert all(query for queries in low.generate(texts, per_text=4, seed=0) for query in queries)


def _frequencies(folder: Path, text: str, limit: int, smooth: Any, least: int) -> dict[str, int]:
    """Return word to frequency of one text, with words from the tokenizer's own record."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForTokenClassification.from_pretrained(folder)
    features = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
    with torch.inference_mode():
        weights = model(**features).logits[0, :, 0].double().clamp(min=0).numpy()
    found: dict[str, int] = {}
    words = features.word_ids()
    for word in sorted({word for word in words if word is not None}):
        start, stop = words.index(word), len(words) - words[::-1].index(word)
        letters = tokenizer.decode(features["input_ids"][0, start:stop]).replace(" ", "")
        frequency = max(int(np.rint(100 * smooth(weights[start]))), least)
        found[letters] = max(found.get(letters, 0), frequency)
    return {word: frequency for word, frequency in found.items() if frequency}


@pytest.mark.parametrize(
    ("spec", "smooth", "least"),
    [({}, float, 0), ({"smoothing": "sqrt", "keep_terms": True}, np.sqrt, 1)],
    ids=["as DeepCT", "square roots, all terms"],
)
def test_term_weights_equal_plain_transformers(tiny_models, spec, smooth, least):
    folder, texts = tiny_models["term-weights"], random_texts(40)
    found = opened("term-weights", folder, {**spec, "max_length": 48}).weigh(texts)
    assert found == [_frequencies(folder, text, 48, smooth, least) for text in texts]
    assert any(len(terms) < len(set(text.split())) for terms, text in zip(found, texts, strict=True))


def test_words_past_the_limit_and_blank_documents_have_no_terms(tiny_models):
    spec = {"max_length": 12, "keep_terms": True}
    weighter = opened("term-weights", tiny_models["term-weights"], spec)
    long, blank = weighter.weigh(["abc " * 3 + "jihgf", ""])
    assert (list(long), blank) == (["abc", "j"], {})  # 12 tokens with [CLS] and [SEP]


def test_what_is_no_such_model_is_refused(tiny_models, tmp_path):
    with pytest.raises(DataError, match=r"has 2 labels; term weighting needs one number per token"):
        opened("term-weights", save_term_weights(tmp_path / "two", labels=2), {})
    with pytest.raises(DataError, match="lacks 2 weights, classifier"):
        opened("term-weights", tiny_models["dense"], {})
    with pytest.raises(DataError, match="cannot be loaded as a AutoModelForSeq2SeqLM"):
        _generator(tiny_models["term-weights"])


def test_queries_are_appended_and_terms_take_the_documents_place(tmp_path):
    corpus, columns = tmp_path / "corpus.parquet", [["1", "2", "3"], ["A b", "", "f"], ["c d", "e", ""]]
    pq.write_table(pa.table(columns, schema=collection.CORPUS_SCHEMA), corpus, row_group_size=2)
    queries, terms = collection.EXPANSION_SCHEMAS["query-generator"], collection.EXPANSION_SCHEMAS["term-weights"]
    pq.write_table(pa.table({"queries": [["who d", "q"], []]}, queries), tmp_path / "0.parquet")
    pq.write_table(pa.table({"queries": [["x"]]}, queries), tmp_path / "1.parquet")
    first, second = collection.read_expanded(corpus, [tmp_path / "0.parquet", tmp_path / "1.parquet"])
    assert [document[:3] for document in [*first, *second]] == [
        ("1", "A b", "c d who d q"),
        ("2", "", "e"),
        ("3", "f", " x"),
    ]
    columns = {"terms": [["a", "c"], ["e"], []], "frequencies": [[3, 1], [2], []]}
    pq.write_table(pa.table(columns, terms), tmp_path / "terms.parquet")
    [found] = collection.read_expanded(corpus, [tmp_path / "terms.parquet"])
    assert [document[:3] for document in found] == [("1", "", "a a a c"), ("2", "", "e e"), ("3", "", "")]
    with pytest.raises(DataError, match=r"has 3 documents, but .*0.parquet expand 2"):
        list(collection.read_expanded(corpus, [tmp_path / "0.parquet"]))
