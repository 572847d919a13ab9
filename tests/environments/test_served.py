"""Compare a real server of models, infinity from the package index, with the same checkpoints opened by beirgrid.

transformers' own server answers chats.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from checkpoints import opened, save_bert, save_chat, save_cross_encoder
from helpers import install_beside

from beirgrid.config.models import Endpoint
from beirgrid.encoders.served import messages
from beirgrid.models.endpoints import Client

pytestmark = pytest.mark.environments

# infinity 0.0.78 needs package releases of its time, but uses the PyTorch of the tests.
PACKAGES = ["infinity-emb[server]==0.0.78", "sentence-transformers==3.4.1", "transformers==4.48.3", "optimum<2"]
SERVER = ["fastapi==0.165.0", "opentelemetry-api==1.45.2"]  # of transformers' server, beside the packages of the tests
TEXTS = ["a cat", "the dog and the cat", "zebra", "numbers 1 2 3 and (brackets)", "a longer text " * 9]


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(command: list[str], url: str, packages: Path | None = None) -> Iterator[None]:
    """Run a server, with more packages than its environment has, until the block ends."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "NO_PROXY": "127.0.0.1"}
    environment["PYTHONPATH"] = str(packages or "")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            for _ in range(600):
                assert process.poll() is None, process.communicate()[0].decode()[-3000:]
                try:
                    requests.get(f"{url}/v1/models", timeout=5).raise_for_status()
                    break
                except requests.ConnectionError:
                    time.sleep(0.5)
            yield
        finally:
            process.terminate()
            process.communicate()


def embedder(folder: Path) -> Path:
    """Save a BERT with mean pooling in the form that sentence-transformers 3 and 6 read."""
    save_bert(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


@pytest.fixture(scope="module")
def infinity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """Install infinity, and serve two tiny checkpoints: yield its address and the checkpoints."""
    folder = tmp_path_factory.mktemp("infinity")
    dense, reranker = embedder(folder / "dense"), save_cross_encoder(folder / "reranker")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    packages = next((folder / "venv/lib").iterdir()) / "site-packages"
    for place in Path(sysconfig.get_path("purelib")).glob("*torch*"):
        if place.name.split("-")[0] in ("torch", "torchgen", "functorch"):
            (packages / place.name).symlink_to(place)
    # The server compiles the modules that it imports, a small part of all.
    install = [sys.executable, "-m", "pip", "--python", folder / "venv/bin/python", "install", "-q", "--no-compile"]
    subprocess.run([*install, *PACKAGES], check=True)
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [str(folder / "venv/bin/infinity_emb"), "v2", "--port", str(port), "--host", "127.0.0.1"]
    command += ["--engine", "torch", "--device", "cpu", "--dtype", "float32", "--no-bettertransformer"]
    for model in (dense, reranker):
        command += ["--model-id", str(model), "--served-model-name", model.name]
    with running([*command, "--url-prefix", "/v1"], url):
        yield f"{url}/v1", dense, reranker


def asked(url: str, model: str, folder: Path, **keys: Any) -> Client:
    """Return a client of a model, with its ledger in a folder."""
    return Client(Endpoint(model=model, url=url, **keys), folder / "spent.tsv")


def test_vectors_of_a_real_server_are_those_of_its_checkpoint(infinity, tmp_path):
    url, dense, _ = infinity
    client = asked(url, "dense", tmp_path, price={"input": 2.0})
    found = client.embed(TEXTS, dimension=32)
    expected = opened("dense", dense, {"similarity": "cosine"}).encode_documents(TEXTS)
    np.testing.assert_allclose(found / np.linalg.norm(found, axis=1, keepdims=True), expected, atol=1e-5)
    assert client.facts()["tokens"] > 0
    assert client.facts()["price"] == pytest.approx(client.facts()["tokens"] * 2 / 1e6, abs=1e-6)


def test_scores_of_a_real_server_are_those_of_its_checkpoint(infinity, tmp_path):
    url, _, reranker = infinity
    found = asked(url, "reranker", tmp_path).rerank(TEXTS[0], TEXTS)
    logits = opened("cross-encoder", reranker, {}).score(TEXTS[:1] * len(TEXTS), TEXTS)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)), atol=1e-5)


def test_chats_of_transformers_server(tmp_path):
    """Its answer to a window of documents equals the checkpoint's own: the likeliest token at each step."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, port = save_chat(tmp_path / "model", seed=1), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(Path(sys.executable).with_name("transformers")), "serve", "--device", "cpu", "--dtype", "float32"]
    asking = messages("a query", TEXTS[:3])
    install_beside(tmp_path / "packages", *SERVER)
    with running([*command, "--host", "127.0.0.1", "--port", str(port), str(folder)], url, tmp_path / "packages"):
        client = asked(f"{url}/v1", str(folder), tmp_path, body={"max_tokens": 24})
        answer = client.chat(asking)
        assert client.facts()["tokens"] > 24
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(asking, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    written = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert answer == tokenizer.decode(written, skip_special_tokens=True)
