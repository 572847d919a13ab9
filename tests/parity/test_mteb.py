"""Compare models named by their ids with mteb's own loaders, on tiny checkpoints in the loaders' formats."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch
from checkpoints import (
    change_json,
    encode_texts,
    normalised,
    opened,
    save_cross_encoder,
    save_decoder,
    save_dense,
    save_inference_free,
    save_score_modules,
    save_splade,
    save_static,
    save_yes_no,
    sides,
)
from datasets import Dataset
from helpers import ROOT, documented_models, unpack
from mteb.models import ModelMeta
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.model_implementations.qwen3_models import q3e_instruct_loader
from mteb.models.model_implementations.qwen3_reranker import Qwen3RerankerWrapper
from mteb.models.model_implementations.rerankers_monot5_based import LlamaReranker, MonoT5Reranker, prediction_tokens
from mteb.models.model_implementations.uae_models import UAEWrapper
from mteb.models.sentence_transformer_wrapper import (
    CrossEncoderWrapper,
    SentenceTransformerEncoderWrapper,
    SparseEncoderWrapper,
    sentence_transformers_loader,
)
from mteb.types import PromptType
from safetensors.numpy import load_file
from test_late_interaction import Paper
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from beirgrid.config import mteb_collections, registry
from beirgrid.core.errors import ConfigError, DataError

pytestmark = pytest.mark.slow

TEXTS = ["a short text", "one that is somewhat longer than the first", "x", "numbers 1 2 3 and (brackets)"]
TASKS = ["SciFact", "ArguAna", "NQ"]


def loaded(texts: list[str], **more: list[str]) -> Any:
    """Build texts in the form that mteb passes to a model."""
    return DataLoader(Dataset.from_dict({"text": texts, **more}), batch_size=2)


def split(task: str) -> dict[str, Any]:
    """Return what mteb's loaders are told about a task."""
    return {"task_metadata": registry._task(task), "hf_split": "test", "hf_subset": "default"}


def encoded(wrapper: Any, task: str, side: str, texts: Any = None) -> Any:
    """Encode texts with mteb's loader as queries or documents of a task."""
    encode = getattr(wrapper, "_encode", None) or wrapper.encode
    return encode(texts or loaded(TEXTS), **split(task), prompt_type=PromptType(side), show_progress_bar=False)


def scored(wrapper: Any, queries: list[str], documents: list[str]) -> Any:
    """Score pairs with mteb's loader."""
    return wrapper.predict(loaded(queries, query=queries), loaded(documents), **split("NQ"))


def entries(loader: Any, tasks: Sequence[str] = TASKS, **arguments: Any) -> dict[str, dict[str, Any]]:
    """Derive the prompts of an entry for each task from a loader and its arguments."""
    meta = SimpleNamespace(name="x/y", loader=loader, loader_kwargs=arguments)
    prompts, queries = registry._prompts(meta, tasks)
    return {task: prompts | ({"query": queries[task]} if task in queries else {}) for task in tasks}


def assert_equal_vectors(wrapper: Any, folder: Path, prompts: dict[str, dict[str, Any]]) -> None:
    """Compare both sides of each task. The queries of two tasks with other prompts must differ."""
    for task, own in prompts.items():
        entry = {"similarity": "cosine", "pooling": "own", "prompts": own, "task": task}
        for side, encode in sides(opened("dense", folder, entry)):
            np.testing.assert_allclose(encode(TEXTS), normalised(encoded(wrapper, task, side)), atol=1e-5)


# The prompts do not depend on the kind of the checkpoint.
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *((kind, None) for kind in ("dense", "modernbert", "decoder", "bert")),  # bert has no modules.json
        ("dense", {"query": "query: ", "document": "passage: "}),
        ("dense", {"query": "q: ", "SciFact-query": "claim: "}),
    ],
)
def test_sentence_transformers(tiny_models, kind, given):
    wrapper = SentenceTransformerEncoderWrapper(str(tiny_models[kind]), device="cpu", model_prompts=given)
    arguments = {"model_prompts": given} if given else {}
    assert_equal_vectors(wrapper, tiny_models[kind], entries(SentenceTransformerEncoderWrapper, **arguments))


@pytest.mark.parametrize(
    ("loader", "kind"),
    [
        (sentence_transformers_loader, "dense"),  # an older name
        (q3e_instruct_loader, "decoder"),  # which names its template itself
    ],
)
def test_loaders_that_are_functions(tiny_models, loader, kind):
    folder = tiny_models[kind]
    assert_equal_vectors(loader(str(folder), "main", device="cpu"), folder, entries(loader))


@pytest.mark.parametrize("model2vec", [False, True])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_static_embeddings(tmp_path, model2vec, similarity):
    """Compared with mteb's loader, and with the mean of the table's rows."""
    folder = save_static(tmp_path / "model", model2vec=model2vec)
    given = {"query": "query: ", "document": "passage: "}
    wrapper = SentenceTransformerEncoderWrapper(str(folder), device="cpu", model_prompts=given)
    entry = {"similarity": similarity, "pooling": "own", "prompts": given}
    encoder = opened("dense", folder, entry)
    rows = load_file(next(folder.rglob("*.safetensors")))
    table = rows["embeddings"][rows["mapping"]] * rows["weights"][:, None] if model2vec else rows["embedding.weight"]
    for side, encode in sides(encoder):
        found, expected = encode(TEXTS), np.asarray(encoded(wrapper, "NQ", side))
        read = encoder.model[0].tokenizer.encode_batch([given[side] + text for text in TEXTS], add_special_tokens=False)
        means = np.stack([table[text.ids].mean(axis=0) for text in read])
        length = similarity == "cosine" or model2vec
        np.testing.assert_allclose(found, normalised(expected) if length else expected, atol=1e-5)
        np.testing.assert_allclose(found, normalised(means) if length else means, atol=1e-5)
    assert encoder.encode_documents([]).shape == (0, 16)
    with pytest.raises(DataError, match="remove max_length"):
        opened("dense", folder, entry | {"max_length": 8})


@pytest.mark.parametrize(
    ("stated", "used"),
    [
        ({"query": "find: ", "passage": "text: "}, ("find: ", "")),  # sentence-transformers 6 keeps document: None
        ({"query": "find: ", "document": "doc: ", "passage": "text: "}, ("find: ", "doc: ")),
        ({"Retrieval-query": "task: ", "query": "find: "}, ("task: ", "")),
        ({"s2p_query": "find: "}, ("", "")),
        ({"NQ-query": "nq: ", "Retrieval-query": "task: ", "ArguAna": "both: ", "query": "find: "}, ("nq: ", "")),
        ({"Reranking": "rerank: ", "Retrieval": "task: ", "query": "find: "}, ("task: ", "task: ")),
    ],
)
def test_prompts_that_a_checkpoint_states(tmp_path, stated, used):
    folder = save_dense(tmp_path / "model")
    change_json(folder / "config_sentence_transformers.json", prompts=stated)
    wrapper = SentenceTransformerEncoderWrapper(str(folder), device="cpu")
    own = entries(SentenceTransformerEncoderWrapper)
    assert_equal_vectors(wrapper, folder, own)
    prompts = opened("dense", folder, {"similarity": "cosine", "prompts": own["NQ"], "task": "NQ"}).model.prompts
    assert (prompts["query"], prompts["document"]) == used


@pytest.mark.parametrize("passages", [True, False])
@pytest.mark.parametrize(
    "given", [None, {"SciFact": "Check the claim", "Retrieval": {"query": "Search", "document": ""}}]
)
def test_instructions(tiny_models, passages, given):
    folder = tiny_models["decoder"]
    arguments = {
        "instruction_template": "Instruct: {instruction}\nQuery: ",
        "apply_instruction_to_passages": passages,
        "prompts_dict": given,
    }
    wrapper = InstructSentenceTransformerModel(str(folder), "main", device="cpu", **arguments)
    tasks = TASKS
    if passages and given:
        with pytest.raises(ConfigError, match="other texts before documents of NQ and SciFact"):
            entries(InstructSentenceTransformerModel, **arguments)
        tasks = [task for task in TASKS if task != "SciFact"]
    prompts = entries(InstructSentenceTransformerModel, tasks, **arguments)
    if given and not passages:
        assert prompts["SciFact"]["query"] != prompts["NQ"]["query"]
    assert_equal_vectors(wrapper, folder, prompts)


@pytest.mark.parametrize(("first", "tokens"), [(None, "end"), (True, "both")])
def test_end_tokens(tmp_path, first, tokens):
    """mteb lets a tokenizer end each text with a token that its files leave out."""
    folder = save_decoder(tmp_path / "model", ended=False)
    arguments = {"add_eos_token": True, "tokenizer_kwargs": {"add_bos_token": first} if first else {}}
    wrapper = InstructSentenceTransformerModel(str(folder), "main", device="cpu", max_seq_length=12, **arguments)
    entry = {"similarity": "cosine", "max_length": 12, "prompts": entries(type(wrapper))["NQ"]}
    encoder = opened("dense", folder, entry | {"special_tokens": tokens})
    expected = normalised(encoded(wrapper, "NQ", "query"))
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), expected, atol=1e-5)
    assert np.abs(opened("dense", folder, entry).encode_queries(TEXTS) - expected).max() > 1e-3


@pytest.mark.parametrize("save", [save_splade, save_inference_free])
@pytest.mark.parametrize("given", [None, {"query": "q: ", "document": "d: "}])
def test_sparse(tmp_path, given, save):
    folder = save(tmp_path / "model")
    wrapper = SparseEncoderWrapper(str(folder), device="cpu", model_prompts=given)
    prompts = entries(SparseEncoderWrapper, **({"model_prompts": given} if given else {}))
    encoder = opened("sparse", folder, {"prompts": prompts["NQ"]})
    for side, encode in sides(encoder):
        np.testing.assert_allclose(encode(TEXTS).toarray(), encoded(wrapper, "NQ", side).to_dense(), atol=1e-5)


def test_late_interaction_of_pylate(tmp_path):
    """mteb's loader is PyLate, whose releases need other libraries, so this test compares with kept vectors.

    The checkpoint has markers before queries and documents, and prompts after these markers.
    """
    unpack(ROOT / "tests/data/pylate-1.6.0.tar.gz", tmp_path)
    encoder = opened("late-interaction", tmp_path / "pylate/checkpoint", {})
    texts = [*TEXTS, "long words " * 40]
    for side, encode in (("queries", encoder.encode_queries), ("documents", encoder.encode_documents)):
        vectors, counts = encode(texts)
        kept = np.load(tmp_path / f"pylate/{side}.npz")
        assert counts.tolist() == kept["c"].tolist()
        np.testing.assert_allclose(vectors, kept["v"], atol=1e-5)


@pytest.mark.parametrize(
    "save", [save_cross_encoder, lambda folder: save_cross_encoder(folder, "Electra"), save_score_modules]
)
def test_cross_encoders(tmp_path, save):
    """mteb applies a sigmoid to the scores of one label, which keeps their order."""
    folder = save(tmp_path / "model")
    wrapper = CrossEncoderWrapper(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    scorer = opened("cross-encoder", folder, {})
    np.testing.assert_allclose(scorer.score(TEXTS, TEXTS[::-1]), scored(wrapper, TEXTS, TEXTS[::-1]), atol=1e-4)


def test_cross_encoders_of_two_labels(tmp_path):
    """The score is the log-odds of the second label, which orders pairs as its probability does (monoBERT)."""
    folder = save_cross_encoder(tmp_path / "model", labels=2)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.inference_mode():
        logits = model(**tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")).logits
    expected = torch.logit(logits.double().softmax(dim=1)[:, 1])
    scorer = opened("cross-encoder", folder, {})
    np.testing.assert_allclose(scorer.score(TEXTS, TEXTS[::-1]), expected, atol=1e-4)
    low = opened("cross-encoder", folder, {}, "bfloat16").score(TEXTS, TEXTS[::-1])
    assert len(set(low.tolist())) == len(TEXTS)
    np.testing.assert_allclose(low, expected, atol=0.2 * float(expected.abs().max()))
    with pytest.raises(DataError, match="has 3 labels"):
        opened("cross-encoder", save_cross_encoder(tmp_path / "three", labels=3), {})


def predicted(wrapper: Any, queries: list[str], documents: list[str]) -> np.ndarray:
    """Return the log-odds of the probabilities that mteb's reranker predicts for pairs."""
    found = np.asarray(scored(wrapper, queries, documents), np.float64)
    return np.log(found) - np.log1p(-found)


LONG = [*TEXTS, "a much longer text with letters " * 40]


@pytest.mark.parametrize("length", [8192, 800])
def test_decoders_that_answer_yes_or_no(tmp_path, length):
    """mteb's loader has the prompt of Qwen's code, and truncates a pair between its first and last part."""
    folder = save_yes_no(tmp_path / "model")
    wrapper = Qwen3RerankerWrapper(str(folder), device="cpu", max_length=length)
    page = documented_models("models.md")["qwen3-reranker"]
    entry = {key: page[key] for key in ("prompt", "answers")} | {"max_length": length}
    found = opened("decoder-reranker", folder, entry).score(LONG, LONG[::-1])
    np.testing.assert_allclose(found, predicted(wrapper, LONG, LONG[::-1]), atol=1e-4)
    assert np.ptp(found) > 0.1
    low = opened("decoder-reranker", folder, entry, "bfloat16").score(LONG, LONG[::-1])
    assert len(set(low.tolist())) == len(LONG)
    with pytest.raises(DataError, match="too many for max_length 500"):
        opened("decoder-reranker", folder, entry | {"max_length": 500})


@pytest.mark.parametrize("length", [600, 100])
def test_a_decoder_whose_score_is_one_logit(tmp_path, length):
    """Follows the card of bge-reranker-v2-gemma: parts tokenized separately, a query cut at 3/4, the logit of Yes."""
    folder = save_yes_no(tmp_path / "model")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    question = "Is A in B?"

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    fixed = len(ids("\n")) + len(ids(question))  # which the card counts towards no length
    expected = []
    for query, document in zip(LONG, LONG[::-1], strict=True):
        asked = [tokenizer.bos_token_id, *ids(f"A: {query}")[: length * 3 // 4]]
        read = [*ids("\n"), *ids(f"B: {document}")][: length - len(asked)]
        with torch.inference_mode():
            logits = model(torch.tensor([[*asked, *read, *ids("\n"), *ids(question)]])).logits
        expected.append(float(logits[0, -1, tokenizer.convert_tokens_to_ids("Yes")]))
    prompt = ["<|im_start|>", "A: {query}", "\n", "B: {document}", "\n", question]
    entry = {"prompt": prompt, "answers": ["Yes"], "max_length": length + fixed}
    found = opened("decoder-reranker", folder, entry).score(LONG, LONG[::-1])
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("model", ["castorini/monot5-small-msmarco-10k", "unicamp-dl/mt5-base-mmarco-v2"])
def test_t5(tiny_models, model):
    folder = tiny_models["seq2seq"]
    no, yes = prediction_tokens[model]
    wrapper = MonoT5Reranker(str(folder), token_false=no, token_true=yes)
    entry = registry.model_facts(model)["entry"] | {"max_length": wrapper.max_length}
    scores = opened(entry["family"], folder, entry).score(TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(scores, predicted(wrapper, TEXTS, TEXTS[::-1]), atol=1e-4)


def test_our_engine_replaces_only_loaders_that_are_compared():
    """Except BGEReranker, which cuts pairs in another way (docs/models.md)."""
    assert {
        registry._loader(registry._meta(row["name"])) for row in registry.models() if row["engine"] == "beirgrid"
    } == {
        *("SentenceTransformerEncoderWrapper", "sentence_transformers_loader", "InstructSentenceTransformerModel"),
        *("q3e_instruct_loader", "SparseEncoderWrapper", "MultiVectorModel"),
        *("CrossEncoderWrapper", "MonoT5Reranker", "BGEReranker"),
    }


def test_a_loader_of_mteb_runs_in_our_encoder(tmp_path, monkeypatch):
    """The loader uses the prompts of the task, gets the folder in place of the name, and asks no hub."""
    from huggingface_hub import constants

    folder, name = save_dense(tmp_path / "model"), "WhereIsAI/UAE-Large-V1"
    entry = registry.model_facts(name)["entry"]
    assert (entry["engine"], entry["revision"]) == ("mteb", registry._meta(name).revision)
    wrapper = UAEWrapper(str(folder), device="cpu", **registry._meta(name).loader_kwargs)
    encoder = opened("dense", folder, entry | {"task": "NQ"})
    for side, encode in sides(encoder):
        np.testing.assert_allclose(encode(TEXTS), normalised(encoded(wrapper, "NQ", side)), atol=1e-5)
    own = opened("dense", folder, {"similarity": "cosine"})
    asked = ["Represent this sentence for searching relevant passages: " + text for text in TEXTS]
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), own.encode_queries(asked), atol=1e-5)
    assert encoder.encode_documents([]).shape == (0, 32)
    monkeypatch.setattr(encoder.model, "encode", lambda *texts, **options: np.eye(2, 32, -1))  # a vector without length
    assert encoder.encode_documents(TEXTS[:2]).sum(1).tolist() == [0, 1]
    assert constants.HF_HUB_OFFLINE
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match="mteb's loader of WhereIsAI/UAE-Large-V1 cannot open"):
        opened("dense", folder, entry)


@pytest.fixture
def no_images(monkeypatch):
    """Provide torchvision, which mteb asks for with models that also read images. No text needs it."""
    monkeypatch.setattr(ModelMeta, "_missing_dependencies", staticmethod(lambda groups: []))


def test_token_vectors_of_mtebs_loader_are_those_of_plain_code(tiny_models, tmp_path, no_images, monkeypatch):
    folder = tiny_models["late-interaction"]
    name = "perplexity-ai/pplx-embed-v2-late-0.6b"
    entry = registry.model_facts(name)["entry"]
    assert (entry["engine"], entry["family"]) == ("mteb", "late-interaction")
    paper = Paper(folder, "[Q] ", "[D] ")
    encoder = opened("late-interaction", folder, entry)
    read = [paper.document(text, 100) for text in TEXTS]
    asked = [paper.query(text, 32) for text in TEXTS]
    for found, expected in ((encoder.encode_documents(TEXTS), read), (encoder.encode_queries(TEXTS), asked)):
        assert found.counts.tolist() == [len(vectors) for vectors in expected]
        np.testing.assert_allclose(found.vectors, np.concatenate(expected), atol=1e-4)
    scores = [(query @ document.T).max(1).sum() for query, document in zip(asked, read[::-1], strict=True)]
    np.testing.assert_allclose(encoder.score(TEXTS, TEXTS[::-1]), scores, atol=1e-4)
    assert encode_texts(tmp_path / "0.tokens", folder, TEXTS, {"family": "late-interaction", **entry}) == 0
    stored = np.load(tmp_path / "0.tokens/vectors.npy")
    np.testing.assert_allclose(stored, np.concatenate(read), atol=1e-3)
    # Other loaders fill short texts with rows of zeros.
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(vectors) for vectors in read], batch_first=True)
    monkeypatch.setattr(encoder.model, "_encode", lambda *texts, **options: padded)
    np.testing.assert_array_equal(encoder.encode_documents(TEXTS).vectors, np.concatenate(read))
    padded *= 2
    with pytest.raises(DataError, match=f"mteb's loader of {name} gives token vectors whose lengths are not 1"):
        encoder.encode_documents(TEXTS)


@pytest.mark.parametrize("task", ["NQ", "AskUbuntuDupQuestions"])  # mteb makes rows of all terms for a reranking task
def test_weights_of_mtebs_loader_are_those_of_plain_code(tiny_models, no_images, task):
    """Of a model whose code its entry allows."""
    folder = tiny_models["splade"]
    name = "naver/v-splade-quality"
    with pytest.raises(ConfigError, match="it brings code of its own"):
        registry.model_facts(name)
    entry = registry.model_facts(name, trusted=True)["entry"] | {"trust_remote_code": True, "task": task}
    assert (entry["engine"], entry["family"]) == ("mteb", "sparse")
    encoder = opened("sparse", folder, entry)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.inference_mode():
        logits = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in TEXTS]
    expected = np.stack([of_text.amax(0).relu().log1p().numpy() for of_text in logits])
    for _, encode in sides(encoder):
        np.testing.assert_allclose(encode(TEXTS).toarray(), expected, atol=1e-5)
    assert encoder.encode_documents([]).shape == (0, expected.shape[1])


def test_a_reranker_of_mteb_runs_in_our_scorer(tmp_path, monkeypatch):
    folder = save_yes_no(tmp_path / "model")
    name = next(one for one, meta in registry._metas().items() if meta.loader is LlamaReranker)
    entry = registry.model_facts(name)["entry"] | {"revision": "0" * 40}
    scorer = opened("cross-encoder", folder, entry)
    wrapper = LlamaReranker(str(folder), **registry._meta(name).loader_kwargs)
    scores = scorer.score(TEXTS, TEXTS[::-1]).astype(float)
    np.testing.assert_allclose(np.log(scores / (1 - scores)), predicted(wrapper, TEXTS, TEXTS[::-1]), atol=1e-3)
    tasks: list[str] = []
    predict = type(scorer.model).predict

    def recorded(self: Any, *texts: Any, **options: Any) -> Any:
        tasks.append(options["task_metadata"].name)
        return predict(self, *texts, **options)

    monkeypatch.setattr(type(scorer.model), "predict", recorded)
    for task in ({}, {"task": "SciFact"}):
        opened("cross-encoder", folder, entry | task).score(TEXTS, TEXTS)
    assert tasks == ["Retrieval", "SciFact"]


@cache
def _instructed() -> list[str]:
    loaders = ("InstructSentenceTransformerModel", "q3e_instruct_loader", "SentenceTransformerEncoderWrapper")
    usable = [row["name"] for row in registry.models() if (row["engine"], row["family"]) == ("beirgrid", "dense")]
    return [name for name in usable if registry._loader(registry._meta(name)) in loaders]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
def test_every_prompt_is_what_mteb_sends(every, monkeypatch):
    """A recorder replaces the checkpoint of each model's loader, task by task, on both sides."""
    sent: list[str] = []

    class Recorder:
        modalities = ("text",)

        def __init__(self, *args: Any, **options: Any) -> None:
            self.prompts = {"query": None, "document": None}

        def __getattr__(self, name: str) -> Any:
            return SimpleNamespace() if not name.startswith("__") else super().__getattribute__(name)

        def _first_module(self) -> Any:
            config = SimpleNamespace(_attn_implementation="sdpa")
            return SimpleNamespace(auto_model=SimpleNamespace(config=config))

        def encode(self, texts: list[str], prompt: str | None = None, **options: Any) -> np.ndarray:
            sent.append(prompt or "")
            return np.zeros((len(texts), 1), np.float32)

        def encode_query(self, texts: list[str], prompt: str | None = None, **options: Any) -> np.ndarray:
            return self.encode(texts, self.prompts.get("query") if prompt is None else prompt)

        def encode_document(self, texts: list[str], prompt: str | None = None, **options: Any) -> np.ndarray:
            named = next((self.prompts[key] for key in ("document", "passage", "corpus") if key in self.prompts), None)
            return self.encode(texts, named if prompt is None else prompt)

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", Recorder)
    logging.getLogger("mteb").setLevel(logging.ERROR)
    texts, compared = loaded(TEXTS), 0
    for name in _instructed():
        meta = registry._meta(name)
        tasks = mteb_collections.task_names() if every else TASKS
        try:
            facts = registry.model_facts(name, tasks)
        except ConfigError:  # documents get another text in some of all tasks
            if not every:
                raise
            facts = registry.model_facts(name, tasks := TASKS)
        if facts["entry"]["prompts"].get("own"):
            continue
        wrapper = meta.loader(
            name, "main", device="cpu", **{k: deepcopy(v) for k, v in meta.loader_kwargs.items() if k != "device"}
        )
        for side, by_task in (("query", facts.get("queries", {})), ("document", {})):
            for task in tasks:
                encoded(wrapper, task, side, texts)
                assert by_task.get(task, facts["entry"]["prompts"][side]) == sent.pop(), (name, task, side)
                compared += 1
    assert compared > 100 * len(TASKS)
