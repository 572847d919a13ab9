"""The conversion of pickled weights that docs/models.md describes, done as it is described."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from checkpoints import save_plain

from beirgrid import checkpoints
from beirgrid.encoders import DenseEncoder
from beirgrid.errors import DataError

BUDGET = {"cpu": 300, "cuda": 300}
TEXTS = ["a word", "another one", "and a longer text of words"]


def _pickled(folder: Path, kind: str, **more: object) -> dict[str, object]:
    """Make of a plain checkpoint what old repositories hold: its weights in a pickle alone."""
    import torch
    from safetensors.torch import load_file

    save_plain(folder, kind)
    weights = load_file(folder / "model.safetensors")
    torch.save({**weights, **more}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return weights


def _run(root: Path, number: int, folder: Path) -> None:
    """Run one of the documented blocks on a folder."""
    page = (root / "docs/models.md").read_text().split("## Converting pickled weights")[1]
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[number]
    exec(re.sub(r'^folder = ".*"$', f"folder = {str(folder)!r}", block, flags=re.MULTILINE), {})


def test_a_pickled_checkpoint_is_refused_until_it_is_converted(root, tmp_path):
    _pickled(tmp_path / "bert", "bert")
    with pytest.raises(DataError, match=r"no \.safetensors weights.*docs/models\.md"):
        checkpoints.fetch("toy", {"path": str(tmp_path / "bert")}, tmp_path / "first")
    _run(root, 0, tmp_path / "bert")
    checkpoints.fetch("toy", {"path": str(tmp_path / "bert")}, tmp_path / "second")
    save_plain(tmp_path / "same", "bert")
    spec = {"similarity": "dot", "pooling": "mean"}
    found, expected = (
        DenseEncoder(tmp_path / name, spec, "cpu", "float32", BUDGET).encode_documents(TEXTS)
        for name in ("second", "same")
    )
    np.testing.assert_array_equal(found, expected)


def test_ance_keeps_its_head(root, tmp_path):
    import torch
    from transformers import AutoTokenizer, RobertaModel

    torch.manual_seed(0)
    head, norm = torch.nn.Linear(32, 32), torch.nn.LayerNorm(32)
    torch.nn.init.normal_(norm.weight)
    more = {"embeddingHead." + name: value.detach() for name, value in head.named_parameters()}
    more |= {"norm." + name: value.detach() for name, value in norm.named_parameters()}
    _pickled(tmp_path / "ance", "roberta", **more)
    _run(root, 0, tmp_path / "ance")
    _run(root, 1, tmp_path / "ance")
    encoder = DenseEncoder(tmp_path / "ance-whole", {"similarity": "dot"}, "cpu", "float32", BUDGET)

    save_plain(tmp_path / "roberta", "roberta")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "roberta")
    model = RobertaModel.from_pretrained(tmp_path / "roberta", add_pooling_layer=False)
    with torch.inference_mode():
        tokens = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 0] for text in TEXTS]
        expected = norm(head(torch.stack(tokens)))
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), expected, atol=1e-4)
