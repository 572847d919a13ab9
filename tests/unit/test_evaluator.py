"""Evaluate objects that encode texts in this process, and compare with the evaluator of sentence-transformers."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import write_collection
from sentence_transformers import (
    MultiVectorEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    SparseEncoder,
)
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim

import beirgrid
from beirgrid.collections import collection
from beirgrid.core.errors import BeirgridError
from beirgrid.search import exact

METRICS = ("ndcg@10", "recall@100", "mrr@10", "p@10")


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    """An evaluator on the demo collection."""
    return beirgrid.Evaluator("demo", metrics=METRICS, directory=tmp_path_factory.mktemp("evaluator"))


@pytest.fixture(scope="module")
def documents(evaluator) -> dict[str, str]:
    return {found.id: found.full_text for block in collection.read_documents(evaluator.corpus) for found in block}


@pytest.mark.slow
def test_a_model_in_training_has_the_scores_of_sentence_transformers(evaluator, documents, tiny_models, monkeypatch):
    monkeypatch.setattr("beirgrid.api.evaluator._DOCUMENTS", 100)
    model = SentenceTransformer(str(tiny_models["dense"]), device="cpu")
    found = evaluator(model, None, 1, 10)
    assert list(found) == [f"demo_{metric}" for metric in METRICS]
    assert evaluator.primary_metric in found
    relevant = {query: {name for name, grade in of.items() if grade > 0} for query, of in evaluator.qrels.items()}
    theirs = InformationRetrievalEvaluator(
        {query: evaluator.queries[query] for query in relevant},
        documents,
        relevant,
        mrr_at_k=[10],
        precision_recall_at_k=[10, 100],
        main_score_function=model.similarity_fn_name,
        show_progress_bar=False,
    )(model)
    name = model.similarity_fn_name
    # Their means are over queries with a relevant document, ours over all queries with qrels, as trec_eval's are.
    share = sum(map(bool, relevant.values())) / len(relevant)
    for metric, other in zip(METRICS[1:], ("recall@100", "mrr@10", "precision@10"), strict=True):
        assert found[f"demo_{metric}"] == pytest.approx(share * theirs[f"{name}_{other}"], abs=1e-9), metric


@pytest.mark.slow
def test_the_ranking_is_that_of_all_scores(evaluator, documents, tiny_models, monkeypatch):
    """Covers models with token vectors and sparse vectors, and objects that only encode."""
    monkeypatch.setattr("beirgrid.api.evaluator._DOCUMENTS", 100)
    late = MultiVectorEncoder(str(tiny_models["late-interaction"]), device="cpu")
    sparse = SparseEncoder(str(tiny_models["splade"]), device="cpu")
    texts, ids = list(documents.values()), list(documents)
    for model in (late, sparse):
        query, text = next(iter(evaluator.queries.items()))
        all_scores = model.similarity(model.encode_query([text]), model.encode_document(texts)).float()
        expected = {ids[row] for row in torch.topk(all_scores[0], 10).indices}
        assert set(evaluator.rank(model)[query].ids[:10]) == expected

    table = beirgrid.evaluate(Letters(), "demo", metrics=["ndcg@10"], directory=evaluator.directory)
    assert table[["system", "dataset", "metric", "queries"]].to_numpy().tolist() == [["Letters", "demo", "ndcg@10", 50]]
    assert 0 < table["value"].item() < 0.5


@pytest.mark.parametrize("own", [False, True])
def test_documents_with_equal_scores_stand_as_in_a_grid(evaluator, documents, monkeypatch, own):
    """The first documents of the corpus are found, in whatever block they are. Of these, the larger id comes first."""
    assert evaluator.depth == 1000, "nDCG of judged documents needs more than its cut"
    monkeypatch.setattr("beirgrid.api.evaluator._DOCUMENTS", 37)
    for place in (evaluator, evaluator.limits):
        monkeypatch.setattr(place, "depth", 10)
    vectors = np.random.default_rng(0).standard_normal((7, 24)).astype(np.float32)

    class Few:
        def encode(self, texts: list[str]) -> np.ndarray:
            return vectors[[len(text) % 7 for text in texts]]

    class Own(Few):
        similarity_fn_name, similarity = "cosine", staticmethod(cos_sim)

    found = evaluator.rank(Own() if own else Few())
    shard = Few().encode(list(documents.values()))
    queries = Few().encode(list(evaluator.queries.values()))
    if own:
        shard, queries = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (shard, queries))
    searched = exact.search([shard], queries, evaluator.limits.searched(len(shard)))
    names = list(documents)
    cut = 0
    for query, vector, rows, scores in zip(evaluator.queries, queries, searched.rows, searched.scores, strict=True):
        assert found[query].ids == evaluator.limits.ranking(query, [names[row] for row in rows], scores).ids
        cut += found[query].ids != evaluator.limits.ranking(query, names, shard @ vector).ids
    assert cut > 0, "larger ids are left out at the cut"


@pytest.mark.slow
def test_a_trainer_of_sentence_transformers_evaluates_while_it_trains(evaluator, tiny_models, tmp_path):
    model = SentenceTransformer(str(tiny_models["dense"]), device="cpu")
    before = evaluator(model)[evaluator.primary_metric]
    pairs = {"anchor": list(evaluator.queries.values())[:32], "positive": ["a text", "another one"] * 16}
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{evaluator.primary_metric}",
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, Dataset.from_dict(pairs), loss=loss, evaluator=evaluator)
    trainer.train()
    key = f"eval_{evaluator.primary_metric}"
    values = [entry[key] for entry in trainer.state.log_history if key in entry]
    assert len(values) == 2
    assert trainer.state.best_metric == max(values)
    assert evaluator(model)[evaluator.primary_metric] == pytest.approx(max(values), abs=1e-6)
    assert set(values) != {before}


class Letters:
    """Counts letters."""

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array([[text.count(letter) for letter in "abcdef"] for text in texts])


def test_folders_and_names_of_the_directory_are_fetched_without_a_grid_a_page_or_a_word(tmp_path, capfd):
    """A folder that changed is read again; what did not change is not."""
    folder, work, inodes = tmp_path / "notes", tmp_path / "work", []
    for text, score in (("bbb", 1), ("bbb", 1), ("aaa", 0.5)):  # where all scores are 0, the larger id comes first
        documents = [{"_id": f"d{i}", "text": of} for i, of in enumerate(["aaa", text, "ccc"])]
        write_collection(folder, documents, [{"_id": "q", "text": "b"}], {"test": [("q", "d1", 1)]})
        evaluator = beirgrid.Evaluator(str(folder), metrics=["mrr@10"], directory=work)
        assert evaluator(Letters()) == {"notes_mrr@10": score}
        inodes.append((work / "results/corpora/notes/corpus.parquet").stat().st_ino)
    assert inodes[0] == inodes[1] != inodes[2]
    shutil.rmtree(folder)
    again = beirgrid.Evaluator("notes", metrics=["mrr@10"], directory=work)
    assert again(Letters()) == {"notes_mrr@10": 0.5}
    assert {path.name for path in (work / "results").iterdir()} == {"corpora", "datasets"}
    assert capfd.readouterr().out == ""


def test_what_cannot_be_evaluated_is_said(evaluator):
    with pytest.raises(BeirgridError, match="dict has no method encode"):
        evaluator({})

    class OfPyLate(SentenceTransformer):
        """Its ``encode_document``, which it inherits, would encode documents as queries."""

        def __init__(self) -> None: ...

        def encode(self, texts: list[str], is_query: bool = True) -> list[np.ndarray]: ...

    with pytest.raises(BeirgridError, match=r"OfPyLate\.encode takes is_query, as in PyLate: save"):
        evaluator(OfPyLate())
    with pytest.raises(BeirgridError, match="'cqadupstack' is the mean of"):
        beirgrid.Evaluator("cqadupstack", directory=evaluator.directory)

    class Broken:
        def encode(self, texts: list[str]) -> np.ndarray:
            return np.full((len(texts), 2), np.nan)

    with pytest.raises(BeirgridError, match="is NaN"):
        evaluator(Broken())


def test_slices_stand_beside_their_dataset(evaluator):
    """The mean of a slice and that of all other queries give the whole."""
    slices = {"short": {"most_words": 9}, "others": {"most_words": 9, "invert": True}}
    sliced = beirgrid.Evaluator("demo", metrics=METRICS, directory=evaluator.directory, slices=slices)
    table = sliced.table(Letters()).pivot(index="dataset", columns="metric", values=["value", "queries"])
    parts = table.loc[["demo:short", "demo:others"]]
    queries = parts["queries"]["ndcg@10"]
    short = sum(len(text.split()) <= 9 for text in sliced.queries.values())
    assert queries.tolist() == [short, 50 - short]
    for metric in METRICS:
        assert np.average(parts["value"][metric], weights=queries) == pytest.approx(table["value"][metric]["demo"])
    assert sliced(Letters())["demo:short_ndcg@10"] == table["value"]["ndcg@10"]["demo:short"]
