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
import torch
from datasets import Dataset
from helpers import ROOT, main, python
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from stage_words import stage_job
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from beirgrid.collections import collection, training_data
from beirgrid.core.compute import Runtime
from beirgrid.stages.adapt import work as adapt

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


def words(name: str, folder: Path, output: str, recipe: dict[str, Any], **paths: Path) -> list[str]:
    """Return the words of a stage that writes to ``folder / output``."""
    arguments = [name, "--recipe", json.dumps(recipe), "--output", str(folder / output)]
    arguments += ["--record", str(folder / f"{output}.json"), "--device", "cpu", "--precision", "float32"]
    return [*arguments, *(str(word) for option, path in paths.items() for word in (f"--{option}", path))]


def stage(name: str, folder: Path, output: str, recipe: dict[str, Any], **paths: Path) -> Path:
    """Run a stage in this process, write to ``folder / output`` and return that path."""
    assert main(words(name, folder, output, recipe, **paths)) == 0
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


@pytest.mark.parametrize(("amount", "of_each"), [({"queries_per_document": 3}, 3), ({"queries": 70}, 2)])
def test_queries_come_of_a_bounded_sample_that_follows_the_seed(corpus, tmp_path, amount, of_each):
    recipe = {"derive": ["titles", "sentences"], "documents": 40, "seed": 1, **amount}
    first, again, other = (
        stage("generate", tmp_path, f"{name}.parquet", {**recipe, "seed": seed}, corpus=corpus)
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    rows = pq.read_table(first).to_pylist()
    made = Counter(row["document"] for row in rows)
    assert len(made) == 40
    assert max(made.values()) == facts(first)["queries_per_document"] == of_each
    assert facts(first)["queries"] == len(rows)
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


def test_a_corpus_that_gives_no_query_is_refused(tmp_path, capsys):
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table([["d"], [""], ["one sentence"]], schema=collection.CORPUS_SCHEMA), path)
    assert main(words("generate", tmp_path, "queries.parquet", DERIVE, corpus=path)) == 1
    assert "yields no training queries" in capsys.readouterr().err
    assert [left.name for left in tmp_path.iterdir()] == ["corpus.parquet"]


def _mine(corpus: Path, queries: Path, model: Path, folder: Path) -> Path:
    documents = [document for rows in collection.read_documents(corpus) for document in rows]
    encoder = SentenceTransformer(str(model), device="cpu")
    vectors = encoder.encode([document.full_text for document in documents], normalize_embeddings=True)
    np.save(folder / "vectors.npy", vectors)
    shard, made = str(folder / "0.faiss"), str(folder / "0.json")
    assert main(["index", "dense", "--vectors", str(folder / "vectors.npy"), "--output", shard, "--record", made]) == 0
    recipe = {"negative_depth": 5, "language": "en", "dense": [{"family": "dense", "similarity": "cosine"}]}
    inputs = {"queries": queries, "corpus": corpus, "checkpoints": model, "dense_indexes": shard}
    output = stage("mine", folder, "negatives.parquet", recipe, **inputs)
    # By hand: the five nearest, without documents that the query is from.
    rows = pq.read_table(queries).to_pylist()
    scores = encoder.encode([row["query"] for row in rows], normalize_embeddings=True) @ vectors.T
    for row, near, found in zip(rows, scores, pq.read_table(output)["negatives"].to_pylist(), strict=True):
        answers = {other["document"] for other in rows if other["query"] == row["query"]}
        assert set(found) == {documents[i].id for i in np.argsort(-near)[:5]} - answers
        assert len(found) == len(set(found)) >= 4
    return output


@pytest.fixture(scope="module")
def margins(corpus: Path, queries: Path, tiny_models: dict[str, Path], tmp_path_factory: Any) -> Path:
    """Triplets with the margins of the tiny cross-encoder."""
    folder = tmp_path_factory.mktemp("gpl")
    negatives = _mine(corpus, queries, tiny_models["dense"], folder)
    recipe = {"teacher": {"family": "cross-encoder", "max_length": 64}, "steps": 60, "batch": 4, "seed": 1}
    inputs = {"corpus": corpus, "queries": queries, "negatives": negatives, "teacher": tiny_models["cross-encoder"]}
    return stage("label", folder, "margins.parquet", recipe, **inputs)


@pytest.fixture(scope="module")
def examples(corpus: Path, queries: Path, margins: Path) -> dict[str, Path]:
    """The examples of each recipe."""
    return {"genq": queries, "gpl": margins, "tsdae": corpus, "mlm": corpus}


def test_margins_are_the_differences_of_the_teachers_logits(margins, tiny_models):
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
        *((recipe, similarity) for recipe in (GENQ, GPL) for similarity in ("cosine", "dot")),
        *((recipe, "cosine") for recipe in (TSDAE, MLM)),  # whose losses use no similarity
    ],
    ids=lambda value: value if isinstance(value, str) else value["recipe"],
)
def test_training_with_prompts_lowers_the_loss(examples, tiny_models, tmp_path, capsys, recipe, similarity):
    changed = {**recipe, "similarity": similarity, "prompts": {"query": "find: ", "document": "text: "}}
    inputs = {"base": tiny_models["dense"], "examples": examples[recipe["recipe"]]}
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


SHORT = {"genq": {**GENQ, "epochs": 3}, "gpl": {**GPL, "steps": 40, "epochs": 2}}
SHORT |= {"tsdae": {**TSDAE, "epochs": 3}, "mlm": {**MLM, "epochs": 3}}
# The command line, which writes a state every 9 steps and is killed at the start of step 23.
KILLED = """
import os, signal, sys
from transformers import trainer_callback
from beirgrid import __main__
from beirgrid.stages.adapt import work as adapt

def die(self, args, state, control, **_):
    if state.global_step == 22:
        os.kill(os.getpid(), signal.SIGKILL)

adapt.SAVED_STEPS = 9
trainer_callback.DefaultFlowCallback.on_step_begin = die
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory, examples, tiny_models) -> Callable[[str, Path], dict[str, Path]]:
    """Return a function that fills a folder with the files of a training that was killed after its second state.

    The function returns the training's inputs.
    """

    @cache
    def kill(name: str) -> tuple[Path, dict[str, Path]]:
        inputs = {"base": tiny_models["dense"], "examples": examples[name]}
        folder = tmp_path_factory.mktemp(name)
        options, job = stage_job(*words("adapt", folder, "model", SHORT[name], **inputs))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
        command = [python(), "-c", KILLED, *options]
        done = subprocess.run(command, env=environment, input=job.encode(), capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert not (folder / "model").exists()
        assert list(folder.glob(".model-state-*/checkpoint-18"))
        return folder, inputs

    def copy(name: str, folder: Path) -> dict[str, Path]:
        left, inputs = kill(name)
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
@pytest.mark.parametrize("change", ["examples", "base", "seed"])
def test_another_training_does_not_go_on_from_it(killed, queries, tiny_models, tmp_path, change):
    inputs, recipe = killed("genq", tmp_path), SHORT["genq"]
    if change == "seed":
        recipe = {**recipe, "seed": 2}
    elif change == "examples":
        inputs["examples"] = tmp_path / "fewer.parquet"
        pq.write_table(pq.read_table(queries).slice(3), inputs["examples"])
    else:
        inputs["base"] = shutil.copytree(tiny_models["dense"], tmp_path / "base")
        (inputs["base"] / "README.md").write_text("another commit")
    assert facts(stage("adapt", tmp_path, "model", recipe, **inputs))["resumed_from_step"] == 0
    assert not list(tmp_path.glob(".model-state-*"))


def test_a_half_written_state_is_passed_over(tmp_path):
    for step, written in ((900, '{"epoch": 1}'), (1000, '{"epoch": 1}'), (1100, '{"ep'), (1200, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if written:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(written)
    assert adapt._last_state(tmp_path) == tmp_path / "checkpoint-1000"
    assert adapt._last_state(tmp_path / "nowhere") is None


def test_no_batch_has_a_query_or_a_document_twice(queries):
    examples = Dataset.from_parquet(str(queries), cache_dir=str(queries.parent / "cache"))
    batches = list(adapt._distinct(examples)(examples, batch_size=12, drop_last=False))
    assert sorted(row for batch in batches for row in batch) == list(range(len(examples)))
    for batch in batches:
        assert len(set(examples[batch]["document"])) == len(batch)


def _mlm_loss(folder: Path, entry: dict[str, Any], seed: int = 1) -> Any:
    base = {"family": "dense", "similarity": "cosine", **entry}
    recipe = adapt.AdaptRecipe.model_validate({**MLM, "seed": seed, "base": base, "max_length": 128})
    runtime = Runtime("cpu", "float32", 2048)
    return (model := adapt._open(folder, recipe, runtime)), adapt._loss(model.eval(), recipe, folder)


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


@pytest.mark.parametrize(
    ("recipe", "kind", "pooling", "needed"),
    [
        (TSDAE, "distilbert", "cls", "distilbert model: tsdae needs a decoder"),
        (MLM, "decoder", None, "qwen3 model: mlm needs a masked language model"),
        (MLM, "gtr", None, "t5 model: mlm needs a masked language model"),
        (MLM, "dpr-question", "pooler", "dpr model: mlm needs a masked language model"),
    ],
)
def test_pretraining_says_which_bases_it_takes(corpus, tiny_models, tmp_path, capsys, recipe, kind, pooling, needed):
    entry = {"family": "dense", "similarity": "cosine", **({"pooling": pooling} if pooling else {})}
    inputs = {"base": tiny_models[kind], "examples": corpus}
    assert main(words("adapt", tmp_path, "x", {**recipe, "base": entry}, **inputs)) == 1
    assert f"is a {needed}, and transformers has none of that kind" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
