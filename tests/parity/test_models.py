"""Each registered architecture, opened from its on-disk format, gives the results of plain transformers code."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from checkpoints import normalised, opened, random_texts, sides, states
from helpers import quick_first
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from beirgrid.collections.collection import Document
from beirgrid.core.errors import DataError
from beirgrid.encoders.engine import token_batches


def _hidden(folder: Path, texts: list[str], limit: int, pool: str) -> np.ndarray:
    """Pool the last hidden states of one text at a time."""
    pools = {
        "cls": lambda tokens: tokens[0],
        "mean": lambda tokens: tokens.mean(0),
        "weightedmean": lambda tokens: np.average(tokens, axis=0, weights=np.arange(1, len(tokens) + 1)),
        "lasttoken": lambda tokens: tokens[-1],
    }
    return np.stack([pools[pool](tokens) for tokens in states(folder, texts, limit)])


def _pooler(folder: Path, tower: str, texts: list[str], limit: int) -> np.ndarray:
    """Return what the pooler of a tower of DPR gives, its first output, one text at a time."""
    model = getattr(transformers, f"DPR{tower}Encoder").from_pretrained(folder)
    return np.stack(states(folder, texts, limit, model=model))


@pytest.mark.parametrize("pooling", ["cls", "mean", "weightedmean", "lasttoken"])
@pytest.mark.parametrize("kind", quick_first(["bert", "distilbert", "roberta"]))
def test_a_plain_checkpoint_is_pooled_as_its_entry_says(tiny_models, kind, pooling):
    texts = random_texts(30)
    spec = {"similarity": "dot", "pooling": pooling, "max_length": 48}
    vectors = opened("dense", tiny_models[kind], spec).encode_documents(texts)
    np.testing.assert_allclose(vectors, _hidden(tiny_models[kind], texts, 48, pooling), atol=1e-4)


# The entry may repeat what modules.json says.
@pytest.mark.parametrize(("similarity", "repeated"), [("dot", {}), ("cosine", {"pooling": "mean"})])
def test_vectors_of_a_saved_encoder_equal_plain_transformers(tiny_models, similarity, repeated):
    texts = random_texts(70)
    encoder = opened("dense", tiny_models["dense"], {"similarity": similarity, "max_length": 48, **repeated})
    expected = _hidden(tiny_models["dense"], texts, 48, "mean")
    expected = normalised(expected) if similarity == "cosine" else expected
    np.testing.assert_allclose(encoder.encode_documents(texts), expected, atol=1e-5, rtol=1e-4)
    assert encoder.encode_documents([]).shape == (0, 32)


@pytest.mark.parametrize(("kind", "pool"), [("dense", "mean"), ("decoder", "lasttoken")])
def test_prompts_stand_before_queries_and_documents(tiny_models, kind, pool):
    texts, prompts = random_texts(5), {"query": "Instruct: find\nQuery:", "document": "cd: "}
    encoder = opened("dense", tiny_models[kind], {"similarity": "cosine", "prompts": prompts})
    for side, encode in sides(encoder):
        expected = normalised(_hidden(tiny_models[kind], [prompts[side] + text for text in texts], 128, pool))
        np.testing.assert_allclose(encode(texts), expected, atol=1e-5)


def test_a_projection_after_the_pooling_computes_in_float32(tiny_models, tmp_path):
    """In bfloat16 the low 16 bits of a float32 are zero."""
    model = SentenceTransformer(str(tiny_models["dense"]), device="cpu")
    torch.manual_seed(0)
    SentenceTransformer(modules=[*model, Dense(32, 16)], device="cpu").save_pretrained(str(tmp_path))
    vectors = opened("dense", tmp_path, {"similarity": "dot"}, "bfloat16").encode_documents(random_texts(30))
    assert ((vectors.view(np.uint32) & 0xFFFF) == 0).mean() < 0.2


def test_both_towers_of_dpr(tiny_models):
    spec = {"similarity": "dot", "pooling": "pooler", "max_length": 64}
    documents = [Document(str(i), f"title {i}", text).join(" [SEP] ") for i, text in enumerate(random_texts(30))]
    queries = random_texts(8, seed=1)
    context = opened("dense", tiny_models["dpr-context"], spec).encode_documents(documents)
    question = opened("dense", tiny_models["dpr-question"], spec).encode_queries(queries)
    np.testing.assert_allclose(context, _pooler(tiny_models["dpr-context"], "Context", documents, 64), atol=1e-4)
    np.testing.assert_allclose(question, _pooler(tiny_models["dpr-question"], "Question", queries, 64), atol=1e-4)


def test_title_and_text_are_a_pair_to_dpr(tiny_models):
    """DPR's tokenizer joins a pair (title, text) as [CLS] title [SEP] text [SEP]."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_models["dpr-context"])
    for title, text in (("a title", "the text"), ("", "only text")):
        joined = tokenizer(Document("1", title, text).join(" [SEP] "))["input_ids"]
        assert joined == tokenizer([title], [text])["input_ids"][0]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_decoder_gives_its_last_token_whatever_the_padding(tiny_models, tmp_path, side):
    texts = random_texts(30)
    folder = shutil.copytree(tiny_models["decoder"], tmp_path / side)
    encoder = opened("dense", folder, {"similarity": "cosine", "max_length": 100})
    assert encoder.model.tokenizer.padding_side == "left"
    encoder.model.tokenizer.padding_side = side
    expected = normalised(_hidden(tiny_models["decoder"], texts, 100, "lasttoken"))
    np.testing.assert_allclose(encoder.encode_documents(texts), expected, atol=1e-4)


GTR = {"similarity": "cosine", "pooling": "mean", "max_length": 64}
SGPT = {
    "similarity": "cosine",
    "pooling": "weightedmean",
    "max_length": 40,
    "brackets": {"query": ["[", "]"], "document": ["{", "}"]},
}


def test_a_gtr_checkpoint_is_projected_after_the_mean(tiny_models):
    texts, folder = random_texts(40), tiny_models["gtr"]
    encoder = opened("dense", folder, GTR)
    assert encoder.dimension == 24
    projection = load_file(folder / "2_Dense/model.safetensors")
    assert list(projection) == ["linear.weight"]
    model = T5EncoderModel.from_pretrained(folder, dtype=torch.float32)
    means = np.stack([tokens.mean(0) for tokens in states(folder, texts, 64, model=model)])
    expected = normalised(means @ projection["linear.weight"].float().numpy().T)
    vectors = encoder.encode_documents(texts)
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
    np.testing.assert_array_equal(encoder.encode_queries(texts), vectors)
    low = opened("dense", folder, GTR, "bfloat16").encode_documents(texts)
    assert ((vectors * low).sum(axis=1) > 0.99).all()


@pytest.mark.parametrize("wide", ["bfloat16", "float32"])
def test_a_t5_never_takes_float16_of_itself(tiny_models, as_on_a_gpu, wide):
    """On a GPU auto means float16, in which T5 overflows."""
    as_on_a_gpu(bfloat16=wide == "bfloat16")
    taken = {
        (kind, wanted): opened("dense", tiny_models[kind], spec, wanted).facts()["precision"]
        for kind, spec in (("gtr", GTR), ("sgpt", SGPT))
        for wanted in ("auto", "float16", "bfloat16")
    }
    assert taken["gtr", "auto"] == wide
    assert taken["gtr", "bfloat16"] == "bfloat16"
    assert taken["gtr", "float16"] == taken["sgpt", "auto"] == "float16"


def _sgpt(folder: Path, texts: list[str], opening: str, closing: str, limit: int) -> np.ndarray:
    """Encode as SGPT's authors do: bracket ids around the text's ids, tokens weighted by their position from 1."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder)
    before, after = tokenizer.convert_tokens_to_ids([opening, closing])
    rows = []
    with torch.inference_mode():
        for text in texts:
            ids = [before, *tokenizer(text)["input_ids"][: limit - 2], after]
            tokens = model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
            rows.append(np.average(tokens, axis=0, weights=np.arange(1, len(ids) + 1)))
    return normalised(rows)


@pytest.mark.parametrize("kind", quick_first(["sgpt", "sgpt-j"]))
def test_sgpts_brackets_and_position_weighted_mean(tiny_models, kind):
    texts = ["", "[ab]", "{ab}", "a" * 38, "a" * 39, *random_texts(30)]
    encoder = opened("dense", tiny_models[kind], SGPT)
    documents, queries = encoder.encode_documents(texts), encoder.encode_queries(texts)
    np.testing.assert_allclose(documents, _sgpt(tiny_models[kind], texts, "{", "}", 40), atol=1e-4)
    np.testing.assert_allclose(queries, _sgpt(tiny_models[kind], texts, "[", "]", 40), atol=1e-4)
    np.testing.assert_array_equal(encoder.encode_documents(texts), documents)  # after queries too
    low = opened("dense", tiny_models[kind], SGPT, "bfloat16").encode_documents(texts)
    assert ((documents * low).sum(axis=1) > 0.99).all()


def test_a_plain_decoder_without_padding_is_pooled_as_its_entry_says(tiny_models, tmp_path):
    folder = shutil.copytree(tiny_models["sgpt"], tmp_path / "gpt", ignore=shutil.ignore_patterns("modules.json"))
    texts = [text for text in random_texts(30) if text]
    spec = {"similarity": "dot", "pooling": "weightedmean", "max_length": 40}
    vectors = opened("dense", folder, spec).encode_documents(texts)
    np.testing.assert_allclose(vectors, _hidden(folder, texts, 40, "weightedmean"), atol=1e-4)


def test_brackets_count_as_tokens_and_survive_truncation(tiny_models):
    encoder = opened("dense", tiny_models["sgpt"], SGPT)
    encoder.encode_queries(["a"])
    tokenizer = encoder.model.tokenizer
    rows = encoder.model.tokenize(["a" * 100, "b"])["input_ids"].tolist()
    assert tokenizer.decode(rows[0]) == f"[{'a' * 38}]"
    assert tokenizer.decode(rows[1]).startswith("[b]")
    assert encoder.tokenized(["a" * 100, "b", ""], "query").lengths.tolist() == [40, 3, 2]


def test_a_bracket_that_merges_with_the_text_stays_a_token(tiny_models, tmp_path):
    """Byte-pair encoding would merge a bracket with the following text into one token."""
    folder = shutil.copytree(tiny_models["sgpt"], tmp_path / "sgpt")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    swapped = next(token for token in vocabulary if token not in string.printable and len(token) == 1)
    vocabulary["{a"] = vocabulary.pop(swapped)
    tokenizer["model"]["merges"] = [["{", "a"]]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    encoder = opened("dense", folder, SGPT)
    encoder.encode_documents(["abc"])
    [ids] = encoder.model.tokenize(["abc"])["input_ids"].tolist()
    assert encoder.model.tokenizer.convert_ids_to_tokens(ids) == ["{", "a", "b", "c", "}"]


@pytest.mark.parametrize(
    ("kind", "entry", "message"),
    [
        ("bert", {}, r"does not specify its pooling \(no modules.json\)"),  # never guessed
        ("dense", {"pooling": "cls"}, r"pooling is cls, but the checkpoint's modules.json has it mean"),
        ("distilbert", {"pooling": "pooler"}, "cannot be loaded"),
        ("dense", {"max_length": 512}, "max_length is 512, but the model has only 128 positions"),
        (
            "sgpt",
            {**SGPT, "brackets": {"query": ["[[", "]]"]}},
            r"brackets.query: the tokenizer of \S+ has no .* '\[\['",
        ),
    ],
)
def test_entries_that_a_checkpoint_does_not_fit_are_refused(tiny_models, kind, entry, message):
    with pytest.raises(DataError, match=message):
        opened("dense", tiny_models[kind], {"similarity": "dot", **entry})


def test_a_folder_that_is_no_model_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match=str(tmp_path)):
        opened("dense", tmp_path, {"similarity": "dot"})


def test_batches_hold_every_text_once_within_the_budget():
    lengths = np.random.default_rng(0).integers(1, 200, 500)
    batches = list(token_batches(lengths, 400))
    assert sorted(np.concatenate(batches)) == list(range(500))
    assert all(len(rows) == 1 or lengths[rows].max() * len(rows) <= 400 for rows in batches)
    longest = [lengths[rows].max() for rows in batches]
    assert longest == sorted(longest, reverse=True)


def _odds(folder: Path, prompts: list[str]) -> list[float]:
    """Return the logit of true minus that of false, one prompt at a time."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), T5ForConditionalGeneration.from_pretrained(folder)
    answers = [tokenizer.get_vocab()[answer] for answer in ("▁true", "▁false")]
    with torch.inference_mode():
        read = (tokenizer(prompt, return_tensors="pt") for prompt in prompts)
        logits = [model(**one, decoder_input_ids=torch.tensor([[0]])).logits[0, 0, answers] for one in read]
    return [float(yes - no) for yes, no in logits]


def test_seq2seq_scores_are_the_log_odds_of_true(tiny_models):
    queries, documents = random_texts(40, seed=1), random_texts(40, seed=2)
    scorer = opened("seq2seq-reranker", tiny_models["seq2seq"], {"max_length": 512})
    scores = scorer.score(queries, documents)
    prompts = [f"Query: {q} Document: {d} Relevant:" for q, d in zip(queries, documents, strict=True)]
    np.testing.assert_allclose(scores, _odds(tiny_models["seq2seq"], prompts), atol=1e-4)
    assert scores.dtype == np.float32


def test_the_end_of_a_seq2seq_prompt_survives_truncation(tiny_models):
    scorer = opened("seq2seq-reranker", tiny_models["seq2seq"], {"max_length": 60})
    tokens = scorer.tokenized([("ab", "d" * 200), ("c" * 200, "e")]).columns["input_ids"]
    assert [len(ids) for ids in tokens] == [60, 60]
    assert {scorer.tokenizer.decode(ids[-3:]) for ids in tokens} == {"Relevant:</s>"}
    cut = scorer.tokenizer.decode(tokens[0][:-3])
    expected = _odds(tiny_models["seq2seq"], [f"{cut} Relevant:"])
    np.testing.assert_allclose(scorer.score(["ab"], ["d" * 200]), expected, atol=1e-4)


def test_a_seq2seq_model_without_the_answers_is_refused(tiny_models, tmp_path):
    folder = shutil.copytree(tiny_models["seq2seq"], tmp_path / "t5")
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace("▁true", "▁right"))
    with pytest.raises(DataError, match="its tokenizer has no ▁true and ▁false"):
        opened("seq2seq-reranker", folder, {})


@pytest.mark.parametrize("kind", ["cross-encoder", "electra"])
def test_cross_encoders_give_raw_logits(tiny_models, kind):
    queries, documents, folder = random_texts(40, seed=1), random_texts(40, seed=2), tiny_models[kind]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    expected = []
    with torch.inference_mode():
        for query, document in zip(queries, documents, strict=True):
            # In lists, because alone an empty document counts as missing, and the pair loses a separator.
            features = tokenizer([query], [document], truncation="longest_first", max_length=96, return_tensors="pt")
            expected.append(model(**features).logits.item())
    scores = opened("cross-encoder", folder, {"max_length": 96}).score(queries, documents)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
