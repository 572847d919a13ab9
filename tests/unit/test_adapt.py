"""Adapt models to a domain stage by stage, on tiny models: queries, negatives, margins, training."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkpoints import _config, _tokenizer
from helpers import ROOT, main, python, quick_first
from safetensors.numpy import load_file
from stage_words import stage_job

from beirgrid.collections import collection, training_data
from beirgrid.core.compute import Runtime
from beirgrid.stages import train

DERIVE = {"derive": ["titles", "sentences"], "documents": 40, "queries_per_document": 3, "seed": 1}
GENQ = {"recipe": "genq", "similarity": "cosine", "epochs": 6, "batch": 12, "learning_rate": 3e-4}
GENQ |= {"warmup": 0.1, "seed": 1, "max_length": 64, "base": {"family": "dense", "similarity": "cosine"}}
GPL = {**GENQ, "recipe": "gpl", "steps": 90, "epochs": 1, "learning_rate": 1e-3}
TSDAE = {**GENQ, "recipe": "tsdae", "documents": 40, "batch": 4, "learning_rate": 2e-3}
MLM = {**TSDAE, "recipe": "mlm"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 documents of four sentences, each document with its own words."""
    choose = random.Random(0)
    rows = []
    for number in range(60):
        words = ["".join(choose.choices("abcdefghij", k=4)) for _ in range(4)]
        sentences = [" ".join(choose.choices(words, k=4)) + "." for _ in range(4)]
        rows.append((f"d{number}", f"{words[0]} {words[1]}", " ".join(sentences)))
    path = tmp_path_factory.mktemp("corpus") / "corpus.parquet"
    columns = [list(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, schema=collection.CORPUS_SCHEMA), path, row_group_size=16)
    return path


def stage(name: str, folder: Path, output: str, recipe: dict[str, Any], **paths: Path) -> Path:
    """Run a stage in this process, write to ``folder / output`` and return that path."""
    arguments = [name, "--recipe", json.dumps(recipe), "--output", str(folder / output)]
    arguments += ["--record", str(folder / f"{output}.json"), "--device", "cpu", "--precision", "float32"]
    for option, path in paths.items():
        arguments += [f"--{option}", str(path)]
    assert main(arguments) == 0
    return folder / output


def facts(output: Path) -> dict[str, Any]:
    """Return the facts in the record of an output."""
    return json.loads(output.with_name(f"{output.name}.json").read_text())["facts"]


def weights(checkpoint: Path) -> np.ndarray:
    """Return all weights of a checkpoint as one vector."""
    return np.concatenate([value.ravel() for _, value in sorted(load_file(checkpoint / "model.safetensors").items())])


@pytest.fixture(scope="module")
def queries(corpus: Path) -> Path:
    """Queries derived from 40 of the documents."""
    return stage("generate", corpus.parent, "queries.parquet", DERIVE, corpus=corpus)


def test_queries_come_of_a_bounded_sample_that_follows_the_seed(corpus, queries, tmp_path):
    rows = pq.read_table(queries).to_pylist()
    made = Counter(row["document"] for row in rows)
    assert len(made) == 40
    assert max(made.values()) == 3
    assert facts(queries)["queries"] == len(rows)
    again = stage("generate", tmp_path, "again.parquet", DERIVE, corpus=corpus)
    other = stage("generate", tmp_path, "other.parquet", {**DERIVE, "seed": 2}, corpus=corpus)
    assert pq.read_table(again).to_pylist() == rows
    assert {row["document"] for row in pq.read_table(other).to_pylist()} != set(made)


def test_a_derived_query_is_taken_out_of_its_document():
    document = collection.Document("d", "Tea", "Green one. Black two. White three.")
    pairs = training_data.derive(document, ["titles", "sentences"], 2, random.Random(3))
    assert pairs[0] == ("Tea", "Green one. Black two. White three.")
    assert len(pairs) == 3
    for sentence, rest in pairs[1:]:
        assert sentence in document.text
        assert sentence not in rest
        assert rest.startswith("Tea ")


def test_a_generator_writes_the_queries_of_whole_documents(corpus, tiny_models, tmp_path):
    entry = {"family": "query-generator", "max_length": 64, "top_k": 25, "top_p": 0.95}
    recipe = {"documents": 12, "queries_per_document": 3, "seed": 1, "generator": entry}
    inputs = {"corpus": corpus, "generator": tiny_models["query-generator"]}
    rows = pq.read_table(stage("generate", tmp_path, "queries.parquet", recipe, **inputs)).to_pylist()
    other = pq.read_table(stage("generate", tmp_path, "other.parquet", {**recipe, "seed": 2}, **inputs)).to_pylist()
    documents = {document.id: document for found in collection.read_documents(corpus) for document in found}
    assert len({row["document"] for row in rows}) == 12
    assert all(row["positive"] == documents[row["document"]].full_text for row in rows)
    assert all(row["query"].strip() for row in rows)
    assert {row["query"] for row in rows}.isdisjoint(row["query"] for row in other)


def test_queries_per_document_follow_from_the_documents_unless_given(corpus, tmp_path):
    recipe = {key: value for key, value in DERIVE.items() if key != "queries_per_document"}
    output = stage("generate", tmp_path, "queries.parquet", {**recipe, "queries": 70}, corpus=corpus)
    made = Counter(row["document"] for row in pq.read_table(output).to_pylist())
    assert len(made) == 40
    assert max(made.values()) == facts(output)["queries_per_document"] == 2


def test_a_corpus_that_gives_no_query_is_refused(tmp_path, capsys):
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table([["d"], [""], ["one sentence"]], schema=collection.CORPUS_SCHEMA), path)
    arguments = ["generate", "--recipe", json.dumps(DERIVE), "--corpus", str(path)]
    assert main([*arguments, "--output", str(tmp_path / "q.parquet"), "--record", str(tmp_path / "q.json")]) == 1
    assert "yields no training queries" in capsys.readouterr().err
    assert [left.name for left in tmp_path.iterdir()] == ["corpus.parquet"]


def _mine(corpus: Path, queries: Path, model: Path, folder: Path) -> Path:
    from sentence_transformers import SentenceTransformer

    documents = [document for rows in collection.read_documents(corpus) for document in rows]
    encoder = SentenceTransformer(str(model), device="cpu")
    vectors = encoder.encode([document.full_text for document in documents], normalize_embeddings=True)
    np.save(folder / "vectors.npy", vectors)
    shard, made = str(folder / "0.faiss"), str(folder / "0.json")
    assert main(["index", "dense", "--vectors", str(folder / "vectors.npy"), "--output", shard, "--record", made]) == 0
    output = folder / "negatives.parquet"
    recipe = {"negative_depth": 5, "language": "en", "dense": [{"family": "dense", "similarity": "cosine"}]}
    arguments = ["mine", "--recipe", json.dumps(recipe), "--queries", str(queries), "--corpus", str(corpus)]
    arguments += ["--checkpoints", str(model), "--indexes", shard, "--precision", "float32"]
    assert main([*arguments, "--output", str(output), "--record", str(folder / "negatives.json")]) == 0
    # By hand: the five nearest, without the document that the query is from.
    texts = [row["query"] for row in pq.read_table(queries).to_pylist()]
    scores = encoder.encode(texts, normalize_embeddings=True) @ vectors.T
    for row, found in zip(scores, pq.read_table(output)["negatives"].to_pylist(), strict=True):
        assert set(found) <= {documents[i].id for i in np.argsort(-row)[:5]}
        assert len(found) >= 4
    return output


@pytest.fixture(scope="module")
def margins(corpus: Path, queries: Path, tiny_models: dict[str, Path], tmp_path_factory: Any) -> Path:
    """Triplets with the margins of the tiny cross-encoder."""
    folder = tmp_path_factory.mktemp("gpl")
    negatives = _mine(corpus, queries, tiny_models["dense"], folder)
    recipe = {"teacher": {"family": "cross-encoder", "max_length": 64}, "steps": 60, "batch": 4, "seed": 1}
    inputs = {"corpus": corpus, "queries": queries, "negatives": negatives, "teacher": tiny_models["cross-encoder"]}
    return stage("label", folder, "margins.parquet", recipe, **inputs)


def test_negatives_leave_out_what_answers_the_query(queries, margins):
    answers = pq.read_table(queries).to_pylist()
    negatives = pq.read_table(margins.parent / "negatives.parquet")["negatives"].to_pylist()
    assert all(row["document"] not in found for row, found in zip(answers, negatives, strict=True))
    assert all(len(found) == len(set(found)) for found in negatives)


def test_margins_are_the_differences_of_the_teachers_logits(margins, tiny_models):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    teacher = AutoModelForSequenceClassification.from_pretrained(tiny_models["cross-encoder"])
    tokenizer = AutoTokenizer.from_pretrained(tiny_models["cross-encoder"])

    def logit(query: str, text: str) -> float:
        inputs = tokenizer(query, text, truncation=True, max_length=64, return_tensors="pt")
        with torch.inference_mode():
            return float(teacher.eval()(**inputs).logits)

    rows = pq.read_table(margins).to_pylist()
    assert len(rows) >= 60 * 4
    assert np.std([row["label"] for row in rows]) > 0.01
    for row in rows[::20]:
        expected = logit(row["query"], row["positive"]) - logit(row["query"], row["negative"])
        assert row["label"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "similarity"),
    [
        *quick_first([(recipe, similarity) for recipe in (GENQ, GPL) for similarity in ("cosine", "dot")]),
        # The losses of these recipes use no similarity.
        *(pytest.param(recipe, "cosine", marks=pytest.mark.slow) for recipe in (TSDAE, MLM)),
        *(pytest.param(recipe, "dot", marks=pytest.mark.full) for recipe in (TSDAE, MLM)),
    ],
    ids=lambda value: value if isinstance(value, str) else value["recipe"],
)
def test_training_lowers_the_loss(corpus, queries, margins, tiny_models, tmp_path, capsys, recipe, similarity):
    examples = {"genq": queries, "gpl": margins}.get(recipe["recipe"], corpus)
    inputs = {"base": tiny_models["dense"], "examples": examples}
    # One of the two tests of each recipe has prompts, and CI runs it.
    prompted = similarity == ("dot" if recipe["recipe"] in ("genq", "gpl") else "cosine")
    prompts = {"query": "find: ", "document": "text: "} if prompted else {}
    changed = {**recipe, "similarity": similarity, "prompts": prompts}
    adapted = stage("adapt", tmp_path, "model", changed, **inputs)
    losses = facts(adapted)["losses"]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-20:]) < np.mean(losses[:20])  # single batches vary
    assert (steps := facts(adapted)["steps"]) >= 60
    said = capsys.readouterr().err
    assert f"train: 0/{steps} steps\n" in said
    assert f"train: {steps}/{steps} steps, " in said
    assert weights(adapted).shape == weights(tiny_models["dense"]).shape
    assert not np.allclose(weights(adapted), weights(tiny_models["dense"]))
    assert {path.name for path in tmp_path.iterdir()} == {"model", "model.json"}  # no partial file is left


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [GENQ, GPL, TSDAE, MLM], ids=["genq", "gpl", "tsdae", "mlm"])
def test_the_weights_follow_the_seed(corpus, queries, margins, tiny_models, tmp_path, recipe):
    """The test of killed trainings shows that equal seeds give equal weights."""
    examples = {"genq": queries, "gpl": margins}.get(recipe["recipe"], corpus)
    inputs = {"base": tiny_models["dense"], "examples": examples}
    short = {**recipe, "epochs": 1} | ({"steps": 10} if recipe["recipe"] == "gpl" else {})
    first, other = (
        weights(stage("adapt", tmp_path / str(seed), "model", {**short, "seed": seed}, **inputs)) for seed in (1, 2)
    )
    assert not np.array_equal(first, other)


SHORT = {"genq": {**GENQ, "epochs": 3}, "gpl": {**GPL, "steps": 40, "epochs": 2}}
SHORT |= {"tsdae": {**TSDAE, "epochs": 3}, "mlm": {**MLM, "epochs": 3}}
# The command line, which writes a state every 9 steps and is killed at the start of step 23.
KILLED = """
import os, signal, sys
from transformers import trainer_callback
from beirgrid import __main__
from beirgrid.stages import train

def die(self, args, state, control, **_):
    if state.global_step == 22:
        os.kill(os.getpid(), signal.SIGKILL)

train.SAVED_STEPS = 9
trainer_callback.DefaultFlowCallback.on_step_begin = die
sys.exit(__main__.main(sys.argv[1:]))
"""


def kill(folder: Path, recipe: dict[str, Any], **paths: Path) -> None:
    """Start a training that is killed after it has written its second state."""
    folder.mkdir(exist_ok=True)
    arguments = ["adapt", "--recipe", json.dumps(recipe), "--output", str(folder / "model"), "--device", "cpu"]
    arguments += ["--record", str(folder / "model.json"), "--precision", "float32"]
    for option, path in paths.items():
        arguments += [f"--{option}", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    words, job = stage_job(*arguments)
    command = [python(), "-c", KILLED, *words]
    done = subprocess.run(command, env=environment, input=job.encode(), capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "model").exists()
    assert list(folder.glob(".model-state-*/checkpoint-18"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory, corpus, queries, margins, tiny_models) -> Callable[[str, Path], dict[str, Path]]:
    """Return a function that fills a folder with the files of a killed training, and returns the training's inputs."""

    @cache
    def once(name: str) -> tuple[Path, dict[str, Path]]:
        inputs = {"base": tiny_models["dense"], "examples": {"genq": queries, "gpl": margins}.get(name, corpus)}
        folder = tmp_path_factory.mktemp("killed") / name
        kill(folder, SHORT[name], **inputs)
        return folder, inputs

    def copy(name: str, folder: Path) -> dict[str, Path]:
        left, inputs = once(name)
        shutil.copytree(left, folder, dirs_exist_ok=True)
        return dict(inputs)

    return copy


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_killed_training_goes_on_to_the_same_weights(killed, tmp_path, name):
    inputs = killed(name, tmp_path)
    undisturbed = stage("adapt", tmp_path / "undisturbed", "model", SHORT[name], **inputs)
    resumed = stage("adapt", tmp_path, "model", SHORT[name], **inputs)
    assert facts(resumed)["resumed_from_step"] == 18
    assert facts(resumed)["steps"] == facts(undisturbed)["steps"]
    assert facts(resumed)["losses"] == facts(undisturbed)["losses"]
    assert np.array_equal(weights(resumed), weights(undisturbed))
    assert {path.name for path in tmp_path.iterdir()} == {"model", "model.json", "undisturbed"}  # the state is gone


@pytest.mark.slow
@pytest.mark.parametrize("change", ["recipe", "examples", "base"])
def test_another_training_does_not_go_on_from_it(killed, queries, tiny_models, tmp_path, change):
    inputs = killed("genq", tmp_path)
    recipe = {**SHORT["genq"], "seed": 2} if change == "recipe" else SHORT["genq"]
    if change == "examples":
        inputs["examples"] = tmp_path / "fewer.parquet"
        pq.write_table(pq.read_table(queries).slice(3), inputs["examples"])
    if change == "base":
        inputs["base"] = tmp_path / "base"
        shutil.copytree(tiny_models["dense"], inputs["base"])
        (inputs["base"] / "README.md").write_text("another commit")
    assert facts(stage("adapt", tmp_path, "model", recipe, **inputs))["resumed_from_step"] == 0
    assert not list(tmp_path.glob(".model-state-*"))


def test_a_half_written_state_is_passed_over(tmp_path):
    for step, written in ((900, '{"epoch": 1}'), (1000, '{"epoch": 1}'), (1100, '{"ep'), (1200, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if written:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(written)
    assert train._last_state(tmp_path) == tmp_path / "checkpoint-1000"
    assert train._last_state(tmp_path / "nowhere") is None


def test_no_batch_has_a_query_or_a_document_twice(queries):
    from datasets import Dataset

    examples = Dataset.from_parquet(str(queries), cache_dir=str(queries.parent / "cache"))
    batches = list(train._distinct(examples)(examples, batch_size=12, drop_last=False))
    assert sorted(row for batch in batches for row in batch) == list(range(len(examples)))
    for batch in batches:
        assert len(set(examples[batch]["document"])) == len(batch)


def _mlm_loss(folder: Path, entry: dict[str, Any], seed: int = 1) -> Any:
    base = {"family": "dense", "similarity": "cosine", **entry}
    recipe = train.AdaptRecipe.model_validate({**MLM, "seed": seed, "base": base, "max_length": 128})
    runtime = Runtime("cpu", "float32", 2048)
    return (model := train._open(folder, recipe, runtime)), train._loss(model.eval(), recipe, folder)


def _restored(model: Any, loss: Any, texts: list[str]) -> tuple[Any, Any, Any]:
    """Return the tokens of texts, their masked form, and the loss."""
    seen: list[Any] = []
    loss.language_model.register_forward_pre_hook(
        lambda _, __, inputs: seen.append(inputs["input_ids"]), with_kwargs=True
    )
    features = model.tokenize(texts)
    tokens = features["input_ids"].clone()
    value = loss([features])
    return tokens, seen[0], value


def test_mlm_learns_what_plain_transformers_code_learns(tiny_models):
    """Loss and gradient equal those of AutoModelForMaskedLM with the checkpoint's own head."""
    import torch
    from transformers import AutoModelForMaskedLM

    model, loss = _mlm_loss(tiny_models["splade"], {"pooling": "mean"}, seed=1)
    texts = [" ".join("abcdefghij"[(i * k) % 10] * 3 for k in range(20)) for i in range(6)]
    tokens, read, value = _restored(model, loss, texts)
    value.backward()

    # The random numbers of a batch follow from the seed and its tokens.
    digest = hashlib.sha256(b"1" + tokens.numpy().tobytes()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
    special = tokens < 5  # [PAD], [UNK], [CLS], [SEP], [MASK]
    chosen = torch.bernoulli(torch.full(tokens.shape, 0.15).masked_fill(special, 0), generator=generator).bool()
    assert ((read == tokens) | chosen).all()
    plain = AutoModelForMaskedLM.from_pretrained(tiny_models["splade"]).eval()
    attention = model.tokenize(texts)["attention_mask"]
    expected = plain(input_ids=read, attention_mask=attention, labels=tokens.masked_fill(~chosen, -100)).loss
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-5)
    mine = model.transformers_model.get_input_embeddings().weight.grad
    torch.testing.assert_close(mine, plain.get_input_embeddings().weight.grad, atol=1e-6, rtol=1e-4)


def test_a_batch_without_a_token_to_restore_teaches_nothing(tiny_models):
    model, loss = _mlm_loss(tiny_models["dense"], {})
    _, _, value = _restored(model, loss, [""])
    value.backward()
    assert value.item() == 0
    assert all(not p.grad.any() for p in loss.parameters() if p.grad is not None)


@pytest.fixture
def distilbert(tmp_path: Path) -> Path:
    """A dense checkpoint of a kind of model for which transformers has no decoder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import DistilBertConfig, DistilBertModel

    size = _config()
    config = DistilBertConfig(vocab_size=size.vocab_size, dim=32, n_layers=1, n_heads=2, hidden_dim=64)
    DistilBertModel(config).save_pretrained(tmp_path / "distilbert")
    _tokenizer().save_pretrained(tmp_path / "distilbert")
    modules = [Transformer(str(tmp_path / "distilbert")), Pooling(32, "cls")]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "base"))
    return tmp_path / "base"


@pytest.mark.parametrize(
    ("recipe", "kind", "family", "needed"),
    [
        (TSDAE, "distilbert", "distilbert", "tsdae needs a decoder"),
        (MLM, "decoder", "qwen3", "mlm needs a masked language model"),
        (MLM, "gtr", "t5", "mlm needs a masked language model"),
        (MLM, "dpr-question", "dpr", "mlm needs a masked language model"),
    ],
)
def test_pretraining_says_which_bases_it_takes(
    corpus, tiny_models, distilbert, tmp_path, capsys, recipe, kind, family, needed
):
    pooling = {"pooling": "pooler"} if family == "dpr" else {}
    recipe = {**recipe, "base": {"family": "dense", "similarity": "cosine", **pooling}}
    base = distilbert if kind == "distilbert" else tiny_models[kind]
    arguments = ["adapt", "--recipe", json.dumps(recipe), "--base", str(base), "--examples", str(corpus)]
    assert main([*arguments, "--output", str(tmp_path / "x"), "--record", str(tmp_path / "x.json")]) == 1
    expected = f"is a {family} model: {needed}, and transformers has none of that kind"
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
