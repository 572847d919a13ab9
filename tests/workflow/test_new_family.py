"""Another family of retrievers takes four files: its entry, its row, its encoder and its search."""

from __future__ import annotations

import json
import os
import re
import subprocess
from filecmp import cmp
from pathlib import Path

import pytest
import yaml
from helpers import COMMANDS, ROOT, copy_checkout, fetch_collection, python, run_copy
from stage_words import stage_job

from beirgrid.encoders import open_encoder
from beirgrid.runs import runs

# Insertions into two files of the package.
MODELS = '''
class BinaryModel(ModelEntry):
    """One bit per dimension."""

    family: Literal["binary"] = Field(description="Decides how the checkpoint is opened and searched.")
    bits: Size = Field(256, description="Bits of a vector.")


'''
ROW = """        Family(
            "binary", "retriever", ".npy", ".faiss", "binary:BinaryEncoder", "binary", like="dense"
        ),
"""
# Two files of their own. A bit is whether a dimension of the dense vector is above 0; Hamming distance decides.
ENCODER = """
import numpy as np

from ..config.models import DenseModel
from .dense import DenseEncoder


class BinaryEncoder:
    def __init__(self, folder, entry, runtime):
        self.dense = DenseEncoder(folder, DenseModel(family="dense", similarity="cosine"), runtime)
        self.precision, self.facts, self.dimension = self.dense.precision, self.dense.facts, entry.bits

    def encode_documents(self, texts, *, progress=None):
        return self.bits(self.dense.encode_documents(texts, progress=progress))

    def vectors(self, blocks, role, progress=None):
        return map(self.bits, self.dense.vectors(blocks, role, progress))

    def encode_queries(self, texts, *, progress=None):
        return self.bits(self.dense.encode_queries(texts, progress=progress))

    def bits(self, vectors):
        return (vectors[:, : self.dimension] > 0).astype(np.uint8)
"""
SEARCH = """
import faiss
import numpy as np


def write_vectors(path, blocks, documents, dimension):
    with path.open("wb") as stream:
        np.save(stream, np.packbits(np.concatenate(list(blocks)), axis=1))
    return {"bits": dimension}


def index_vectors(vectors, path):
    rows = np.load(vectors)
    index = faiss.IndexBinaryFlat(rows.shape[1] * 8)
    index.add(rows)
    faiss.write_index_binary(index, str(path))
    return {"index": "BinaryFlat", "metric": "Hamming"}, {"documents": len(rows), "dimension": index.d}


def find(shards, queries, depth, compute):
    (shard,) = shards
    index = faiss.read_index_binary(str(shard))
    distances, rows = index.search(np.packbits(queries, axis=1), min(depth, index.ntotal))
    return -distances.astype(np.float32), rows
"""
GRID = {
    "models": {"coded": {"family": "binary", "checkpoint": "a/b", "revision": "0" * 40, "bits": 128}},
    "systems": {
        "coded": {"retriever": "coded"},
        "coded+ce": {"first_stage": "coded", "reranker": "ms-marco-minilm"},
        "both": {"fusion": "rrf", "of": ["bm25", "coded"]},
    },
    "grid": {"systems": ["coded", "coded+ce", "both"], "datasets": ["demo"]},
}


def _insert(path: Path, before: str, text: str) -> None:
    """Put text before a line that stands in a file once."""
    content = path.read_text()
    assert content.count(f"\n{before}") == 1
    path.write_text(content.replace(f"\n{before}", f"\n{text}{before}"))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the checkout, with the new family in it."""
    checkout = copy_checkout(tmp_path_factory.mktemp("family") / "checkout")
    package = checkout / "workflow" / "beirgrid"
    _insert(package / "config" / "models.py", "Model = Annotated[\n", MODELS)
    _insert(package / "config" / "models.py", "    | TermWeightsModel,\n", "    | BinaryModel\n")
    _insert(
        package / "core" / "families.py",
        '        Family("cross-encoder", "reranker", encoder="cross_encoder:CrossEncoderScorer"),\n',
        ROW,
    )
    (package / "encoders" / "binary.py").write_text(ENCODER)
    (package / "search" / "binary.py").write_text(SEARCH)
    return checkout


@pytest.mark.slow
def test_a_family_with_encoder_and_search_takes_four_files(checkout, tiny_models, tmp_path):
    """Documents are ranked by the Hamming distance of their bits to the query's bits."""
    files = {path.relative_to(checkout): path for path in checkout.rglob("*.*") if path.is_file()}
    changed = [name for name, path in files.items() if not (ROOT / name).is_file() or not cmp(path, ROOT / name, False)]
    assert len(changed) <= 4, changed

    texts = ["wheat and rye", "salt", "a long text on the fermentation of dough", "yeast", "flour, water, salt"]
    documents = [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    fetch_collection(tmp_path, documents, [{"_id": "q", "text": "rye"}], [("q", "d0", 1)])
    model = ["--model", json.dumps({"family": "binary", "bits": 24}), "--checkpoint", str(tiny_models["dense"])]
    model += ["--device", "cpu", "--precision", "float32", "--corpus", "corpus.parquet"]
    outputs = [["--output", name, "--record", "record.json"] for name in ("0.npy", "0.faiss", "s.run.gz")]
    read = ["--indexes", "0.faiss", "--queries", "queries.parquet"]
    commands = [
        ["encode", *model, "--shard-size", "100", "--last", *outputs[0]],
        ["index", "binary", "--vectors", "0.npy", *outputs[1]],
        ["retrieve", "binary", "--system", "s", *model, *read, *outputs[2]],
    ]
    subprocess.run(
        [python(), "-c", COMMANDS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(checkout / "workflow")},
        input=json.dumps([stage_job(*words) for words in commands]),
        text=True,
        check=True,
    )
    encoder = open_encoder(tiny_models["dense"], {"family": "dense", "similarity": "cosine", "precision": "float32"})
    query, *rest = (encoder.encode_queries(["rye"]) > 0)[0, :24], *(encoder.encode_documents(texts) > 0)[:, :24]
    expected = {f"d{number}": -int((query != bits).sum()) for number, bits in enumerate(rest)}
    ranking = runs.read(tmp_path / "s.run.gz")["q"]
    assert dict(zip(ranking.ids, ranking.scores.tolist(), strict=True)) == expected


def test_a_grid_with_another_family_is_planned(checkout, tmp_path):
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(GRID))
    grid = ("--directory", tmp_path, "--configfile", tmp_path / "grid.yaml")
    dry = run_copy(checkout, "snakemake", "-n", "-p", "--cores", "1", *grid)
    counts = {rule: int(jobs) for rule, jobs in re.findall(r"^(\w+) +(\d+)$", dry, re.MULTILINE)}
    dense = {rule: jobs for rule, jobs in counts.items() if rule.endswith(("_dense", "_binary"))}
    assert dense == {"encode_dense": 1, "index_dense": 1, "retrieve_dense": 1}
    assert counts["total"] == 2 + 2 + 3 + 2 + 1 + 1 + 1 + 3 + 3  # fetched, binary, BM25, reranked, fused, evaluated
    assert "results/embeddings/coded/demo/0.npy" in dry
    assert re.findall(r" -m beirgrid stage retrieve_(\S+) <<< .*\"coded\"", dry) == ["vectors"]
    settings = re.findall(r" stage encode <<< '(\{.*\})' > ", dry)
    assert [json.loads(text)["settings"]["model"] for text in settings] == [{"family": "binary", "bits": 128}]
    rules = json.loads(run_copy(checkout, "beirgrid", "plan", "--device", "cuda", "--format", "json", *grid))["rules"]
    assert rules["encode_dense"]["mem_mb"] > 1000
    assert rules["encode_dense"]["gpu_hours"] > 0 == rules["index_dense"]["gpu_hours"]
    wrong = {"models": {"minilm": {"bits": 8}}, "grid": GRID["grid"]}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(GRID | wrong))
    refused = run_copy(checkout, "beirgrid", "plan", *grid, status=1)
    assert "models.minilm.bits: Extra inputs are not permitted" in refused
