"""Sparse vectors equal those of plain transformers code, and their search equals brute force."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from checkpoints import opened, random_texts, save_changed, states
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sparse_encoder.modules import SpladePooling
from transformers import AutoModelForMaskedLM

from beirgrid.core.compute import Runtime
from beirgrid.core.errors import DataError
from beirgrid.encoders import sparse
from beirgrid.search import impact


def _splade(folder: Path, texts: list[str], limit: int) -> np.ndarray:
    """Compute the max over tokens of log(1 + relu(logit)), one text at a time (Formal et al., 2021)."""
    logits = states(folder, texts, limit, model=AutoModelForMaskedLM.from_pretrained(folder))
    return np.stack([np.log1p(np.maximum(of_tokens, 0)).max(axis=0) for of_tokens in logits])


@pytest.mark.parametrize("kind", ["splade", "distil-splade"])
def test_splade_weights_equal_plain_transformers(tiny_models, kind):
    texts = random_texts(50)
    encoder = opened("sparse", tiny_models[kind], {"max_length": 48})
    expected = _splade(tiny_models[kind], texts, 48)
    assert (expected == 0).mean() > 0.05
    assert encoder.encode_documents([]).shape == (0, expected.shape[1])
    for encode in (encoder.encode_documents, encoder.encode_queries):
        np.testing.assert_allclose(encode(texts).toarray(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("strategy", "activation"), [("max", "relu"), ("max", "log1p_relu"), ("sum", "relu")])
def test_a_saved_sparse_encoder_is_used_as_it_says(tiny_models, tmp_path, strategy, activation):
    transformer = SparseEncoder(str(tiny_models["splade"]), device="cpu")[0]
    model = SparseEncoder(modules=[transformer, SpladePooling(strategy, activation)], device="cpu")
    model.save_pretrained(str(tmp_path))
    expected = model.encode_document(random_texts(30), convert_to_sparse_tensor=False).numpy()
    found = opened("sparse", tmp_path, {}).encode_documents(random_texts(30)).toarray()
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


def test_what_stands_between_transformer_and_pooling_sees_logits(tiny_models):
    class Less(torch.nn.Module):
        def forward(self, features: dict) -> dict:
            return {**features, "token_embeddings": features["token_embeddings"] - 2}

    transformer, pooling = SparseEncoder(str(tiny_models["splade"]), device="cpu")
    model, texts = SparseEncoder(modules=[transformer, Less(), pooling], device="cpu"), random_texts(10)
    expected = model.encode_document(texts, convert_to_sparse_tensor=False).numpy()
    runtime = Runtime("cpu", "float32", 300)
    assert not sparse._pool_maxima(model, model[0].auto_model, runtime, sparta=False)
    np.testing.assert_array_equal(model.encode_document(texts, convert_to_sparse_tensor=False).numpy(), expected)


def test_weights_of_older_files_are_tied(tiny_models, tmp_path):
    """Conversions to safetensors keep the head's matrix, the equal embeddings, or both."""
    expected = _splade(tiny_models["splade"], ["ab cd"], 48)
    embeddings, head = "embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    for kept in [(head,), (embeddings, head)]:

        def change(weights, kept=kept):
            matrix = weights.pop(embeddings)
            weights.update({name: matrix.clone() for name in kept})

        folder = save_changed(tmp_path / str(len(kept)), tiny_models["splade"], change)
        encoder = opened("sparse", folder, {})
        np.testing.assert_allclose(encoder.encode_documents(["ab cd"]).toarray(), expected, atol=1e-4, rtol=1e-4)


def test_sparta_weights_and_rankings_equal_beirs(tiny_models, tmp_path, monkeypatch):
    """One text at a time: in a batch, BEIR's implementation counts the padding."""
    from beir.retrieval.models.sparta import SPARTA

    texts = [text for text in random_texts(40) if text]
    # BEIR's default keeps 2,000 terms, more than this vocabulary has.
    monkeypatch.setattr(sparse, "SPARTA_TERMS", 50)
    reference = SPARTA(str(tiny_models["sparta"]), sparse_vector_dim=50, max_length=48)
    expected = np.zeros((len(texts), len(reference.tokenizer)), np.float32)
    for row, text in enumerate(texts):
        for term, weight in reference._compute_sparse_embeddings([text])[0]:
            expected[row, term] = weight
    spec = {"pooling": "sparta", "max_length": 48}
    encoder = opened("sparse", tiny_models["sparta"], spec)
    found = encoder.encode_documents(texts)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-4, rtol=1e-4)

    queries = ["aab", "abc cba", "", "hij a"]
    shards = _write_shards(tmp_path, found, [0, 11, len(texts)])
    scores, rows = impact.search_shards(shards, encoder.encode_queries(queries), 10)
    for query, score, row in zip(queries, scores, rows, strict=True):
        # As beir.retrieval.search.sparse.SparseSearch adds up the rows of its matrix [terms, documents].
        exact = expected.T[reference.encode_query(query), :].sum(axis=0)
        best = [document for document in np.argsort(-exact, kind="stable")[:10] if exact[document] > 0]
        assert row[row >= 0].tolist() == best
        np.testing.assert_allclose(score[row >= 0], exact[best], rtol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["splade", "distil-splade"])
def test_logits_are_float32_sums(tiny_models, kind, precision):
    """Hidden states are multiplied in float32, whatever the transformer's precision."""
    head = opened("sparse", tiny_models[kind], {}).transformer.get_output_embeddings()
    terms, bias = head.weight.detach().double(), head.bias.detach().double()
    encoder = opened("sparse", tiny_models[kind], {}, precision)
    features = []
    encoder.model[0].register_forward_hook(lambda *call: features.append(call[2]))
    text = "ab cd efgh"
    found = encoder.encode_documents([text]).toarray()
    logits = features[-1]["token_embeddings"][0].double() @ terms.T + bias
    np.testing.assert_allclose(np.expm1(found.astype(np.float64)), logits.relu().amax(0)[None], rtol=2e-6, atol=1e-6)
    assert torch.get_float32_matmul_precision() == "highest"  # as before: other products are not rounded


def _random(rows: int, seed: int, terms: int = 60) -> scipy.sparse.csr_matrix:
    values = np.random.default_rng(seed)
    # Whole numbers, so that many scores tie and every order of addition gives the same sum.
    return scipy.sparse.random(rows, terms, 0.1, "csr", np.float32, values, lambda n: values.integers(1, 4, n))


def _write_shards(folder: Path, documents: scipy.sparse.csr_matrix, bounds: list[int]) -> list[Path]:
    shards = []
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        shards.append(folder / str(number))
        shards[-1].mkdir(parents=True)
        impact.write_index(documents[start:stop], shards[-1])
    return shards


@pytest.mark.parametrize("bounds", [[0, 300], [0, 1, 120, 120, 300]])
@pytest.mark.parametrize(("depth", "threads"), [(1, 1), (10, 3), (400, 2)])
def test_search_equals_brute_force(tmp_path, bounds, depth, threads):
    documents, queries = _random(300, seed=0), _random(20, seed=1)
    documents = scipy.sparse.vstack([documents[:250], scipy.sparse.csr_matrix((50, 60), dtype=np.float32)]).tocsr()
    queries = scipy.sparse.vstack([queries, scipy.sparse.csr_matrix((1, 60), dtype=np.float32)]).tocsr()
    scores, rows = impact.search_shards(_write_shards(tmp_path, documents, bounds), queries, depth, threads)
    exact = (queries @ documents.T).toarray()
    for query, row in enumerate(rows):
        found = row[row >= 0]
        assert len(found) == min(depth, (exact[query] > 0).sum())
        assert len(set(found)) == len(found)
        np.testing.assert_array_equal(scores[query][: len(found)], exact[query, found])
        np.testing.assert_array_equal(scores[query][: len(found)], np.sort(exact[query])[::-1][: len(found)])


def test_another_vocabulary_than_the_indexed_one_is_refused(tmp_path):
    shards = _write_shards(tmp_path, _random(10, seed=0), [0, 10])
    with pytest.raises(DataError, match="vocabulary of 60 terms, but the model has 61: the checkpoint changed"):
        impact.search_shards(shards, _random(2, seed=1, terms=61), 10)


@pytest.mark.parametrize("kind", ["dense", "sparta", "older"])
def test_a_dense_checkpoint_is_no_splade(tiny_models, kind, tmp_path):
    """sentence-transformers would add a layer of random weights."""
    if kind == "older":  # most on the hub do not say which class saved them
        saved = shutil.copytree(tiny_models["dense"], tmp_path / "older") / "config_sentence_transformers.json"
        config = json.loads(saved.read_text())
        saved.write_text(json.dumps({key: value for key, value in config.items() if key != "model_type"}))
    with pytest.raises(DataError, match=r"holds a dense model|is saved as a SentenceTransformer"):
        opened("sparse", tiny_models.get(kind, tmp_path / "older"), {})


def test_another_model_for_queries_is_refused(tiny_models, tmp_path):
    queries, documents = (list(SparseEncoder(str(tiny_models["splade"]), device="cpu")) for _ in range(2))
    router = Router.for_query_document(query_modules=queries, document_modules=documents)
    SparseEncoder(modules=[router], device="cpu").save_pretrained(str(tmp_path))
    with pytest.raises(DataError, match="must route queries and documents"):
        opened("sparse", tmp_path, {})
