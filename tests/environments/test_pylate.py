"""A model of the real PyLate, with the versions that it requires, evaluated while PyLate's loss trains it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from helpers import ROOT

pytestmark = pytest.mark.environments

# Beside what the tests have, and before it: PyLate requires these sentence-transformers and transformers, which require
# the rest. torch stays that of the tests.
PACKAGES = ["pylate==1.6.0", "sentence-transformers==5.3.0", "transformers==5.3.0", "tokenizers==0.22.2"]
PACKAGES += ["huggingface-hub==1.33.0", "httpx==0.28.1", "httpcore==1.0.9", "ujson==5.12.0"]
PROGRAM = """
import json, sys, torch
from datasets import Dataset
from pylate import evaluation, losses, models, rank, utils
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, __version__
import beirgrid
from beirgrid.collections import collection

torch.manual_seed(0)
model = models.ColBERT(sys.argv[1], device="cpu")
evaluator = beirgrid.Evaluator("demo", metrics=("mrr@10", "recall@100"), directory="results-of-the-demo")
relevant = {query: {name for name, grade in of.items() if grade > 0} for query, of in evaluator.qrels.items()}
first = sorted(relevant)[:32]
documents = {found.id: found.full_text for block in collection.read_documents(evaluator.corpus) for found in block}
pairs = [(evaluator.queries[query], documents[min(relevant[query])]) for query in first if relevant[query]]
arguments = SentenceTransformerTrainingArguments(
    "checkpoints", max_steps=6, per_device_train_batch_size=8, learning_rate=1e-3, eval_strategy="steps", eval_steps=2,
    save_steps=2, load_best_model_at_end=True, metric_for_best_model=f"eval_{evaluator.primary_metric}", use_cpu=True,
    report_to="none", disable_tqdm=True)
trainer = SentenceTransformerTrainer(
    model, arguments, Dataset.from_dict({"query": [q for q, _ in pairs], "positive": [d for _, d in pairs]}),
    loss=losses.Contrastive(model), evaluator=evaluator, data_collator=utils.ColBERTCollator(model.tokenize))
trainer.train()
key = arguments.metric_for_best_model
scored = [entry[key] for entry in trainer.state.log_history if key in entry]

judged = {query: evaluator.queries[query] for query in relevant if relevant[query]}
options = {"mrr_at_k": [10], "precision_recall_at_k": [100], "show_progress_bar": False}
theirs = evaluation.PyLateInformationRetrievalEvaluator(judged, documents, relevant, **options)(model)
vectors = model.encode(list(documents.values()), is_query=False)
queries = model.encode(list(evaluator.queries.values()), is_query=True)
reranked = rank.rerank([list(documents)] * len(queries), queries, [vectors] * len(queries))
expected = [{found["id"]: found["score"] for found in of_query} for of_query in reranked]
run = evaluator.rank(model)
print(json.dumps({
    "version": __version__,
    "scored": scored,
    "best": trainer.state.best_metric,
    "ours": {name: mean * len(relevant) / len(judged) for name, mean in evaluator(model).items()},
    "theirs": [theirs["MaxSim_mrr@10"], theirs["MaxSim_recall@100"]],
    "table": list(beirgrid.evaluate(model, "demo", metrics=["mrr@10"], directory="results-of-the-demo")["value"]),
    "apart": max(abs(of[document] - float(score)) for of, ranking in zip(expected, run.values(), strict=True)
                 for document, score in zip(ranking.ids, ranking.scores, strict=True)),
    "first": [[max(of, key=of.get) for of in expected], [ranking.ids[0] for ranking in run.values()]],
}))
"""


def test_a_model_of_pylate_is_evaluated_while_it_trains(tiny_models, tmp_path):
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*install, "--only-binary", ":all:", "--target", tmp_path / "packages", *PACKAGES], check=True)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'packages'}:{ROOT / 'workflow'}", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", PROGRAM, tiny_models["late-interaction"]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["version"] == "5.3.0"
    assert len(set(found["scored"])) > 1
    assert found["best"] == max(found["scored"]) > 0
    # Their means are over queries with a relevant document.
    assert list(found["ours"].values()) == pytest.approx(found["theirs"], abs=1e-9)
    assert found["table"] == pytest.approx([max(found["scored"])], abs=1e-6)
    assert found["apart"] < 1e-4
    assert found["first"][0] == found["first"][1]
