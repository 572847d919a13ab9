"""The stated use of a sentence-transformers checkpoint is taken, replaced by the entry, or refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Literal

import pytest

from beirgrid.config.models import DenseModel, Prompts
from beirgrid.core.errors import DataError
from beirgrid.models import saved
from beirgrid.models.checkpoints import CheckpointEntry
from beirgrid.stages.fetch import work as fetch

QWEN = {"prompts": {"query": "Instruct: …\nQuery:", "document": ""}, "default_prompt_name": None}
NAMED = {"prompts": {"s2p_query": "Retrieve: ", "passage": ""}}
BOTH = {"prompts": {"query": "q: ", "passage": "p: "}, "default_prompt_name": None}
DEFAULT = {"prompts": {"web": "web: "}, "default_prompt_name": "web"}


def _folder(folder: Path, settings: dict, modules: list[str] = ()) -> Path:
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    if modules:
        (folder / "modules.json").write_text(
            json.dumps([{"type": f"sentence_transformers.{name}", "path": ""} for name in modules])
        )
    return folder


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        (QWEN, ["query"]),
        (NAMED, ["query"]),
        (BOTH, ["query", "document"]),
        (DEFAULT, ["query", "document"]),
        ({"prompts": {"query": "", "document": ""}}, []),
        ({"prompts": {}}, []),
        ({}, []),
        ({"prompts": {"query": "[Q] "}, "model_type": "ColBERT"}, []),
    ],
)
def test_own_prompts_are_refused_until_the_entry_names_each_side(tmp_path, settings, needed):
    folder = _folder(tmp_path, settings)
    for given in ([], ["query"], ["document"]):
        left_out = [role for role in needed if role not in given]
        if not left_out:
            saved.check_prompts("toy", folder, given)
            continue
        written = ", ".join(f'{role}: "…"' for role in left_out)
        with pytest.raises(
            DataError, match=re.escape(f'prompts: {{{written}}} to models.toy, or "" for none')
        ) as caught:
            saved.check_prompts("toy", folder, given)
        assert json.dumps(next(filter(None, settings["prompts"].values())), ensure_ascii=False) in str(caught.value)
    saved.check_prompts("toy", folder, ["query", "document"])


OF_TASKS = [
    {"query": "q: ", "document": "d: "},
    {"NFCorpus-query": "n: ", "NFCorpus": "both: ", "query": "q: "},
    {"NFCorpus": "n: ", "Retrieval-query": "r: "},
    {"Retrieval": "r: ", "Reranking": "rr: ", "query": "q: ", "document": "d: "},
    {"InstructionRetrieval": "i: ", "InstructionReranking-document": "ir: ", "Retrieval-query": "r: ", "query": "q: "},
]


@pytest.mark.parametrize("stated", OF_TASKS)
def test_own_prompts_are_those_that_mteb_takes(tmp_path, stated):
    """For tasks of every type that ranks documents, in the order of mteb's keys."""
    import mteb
    from mteb.models.abs_encoder import get_prompt
    from mteb.types import PromptType

    folder, texts = _folder(tmp_path, {"prompts": stated}), set()
    for name in ("NFCorpus", "AskUbuntuDupQuestions", "InstructIR", "Core17InstructionRetrieval"):
        task = mteb.get_task(name).metadata
        keys = {"task": name, "task_type": task.type, "prompts": Prompts(own=True)}
        found = saved.prompts(folder, DenseModel(family="dense", similarity="cosine", **keys))
        assert found == {role: get_prompt(stated, task, PromptType(role)) or "" for role in ("query", "document")}
        texts.add(found["query"])
    assert len(texts) > 1 or stated is OF_TASKS[0]


def test_a_cross_encoder_with_prompts_is_refused(tmp_path):
    folder = _folder(tmp_path, {"prompts": {"web": "web: "}, "model_type": "CrossEncoder"})
    with pytest.raises(DataError, match="beirgrid does not support prompts for cross-encoders"):
        saved.check_prompts("toy", folder, [])


def _fetch(folder: Path, checkpoint: Path, *prompts: Literal["query", "document"]) -> None:
    entry = CheckpointEntry(path=str(checkpoint))
    fetch.fetch_model(name="toy", entry=entry, prompts=prompts, output=folder / "out")


def test_a_fetched_model_with_prompts_of_its_own_is_refused(tiny_models, tmp_path):
    folder = shutil.copytree(tiny_models["dense"], tmp_path / "dense")
    _folder(folder, QWEN)
    with pytest.raises(DataError, match="model 'toy': its checkpoint has prompts of its own"):
        _fetch(tmp_path, folder)
    assert not (tmp_path / "out").exists()
    _fetch(tmp_path, folder, "query")


SETTINGS = "config_sentence_transformers.json"
DAMAGED: dict[str, tuple[str, str, str]] = {
    "cut settings": (SETTINGS, '{"prompts": {', "Expecting property name"),
    "a page as settings": (SETTINGS, "<html>", "Expecting value"),
    "a list as settings": (SETTINGS, "[]", "top level: Input should be an object"),
    "a number as a prompt": (SETTINGS, '{"prompts": {"query": 3}}', r"prompts\.query: Input should be a valid string"),
    "a text as prompts": (SETTINGS, '{"prompts": "query: "}', "prompts: Input should be an object"),
    "cut length": ("sentence_bert_config.json", '{"max_seq', "Unterminated string"),
    "no number as length": (
        "sentence_bert_config.json",
        '{"max_seq_length": "all"}',
        "max_seq_length: Input should be",
    ),
    "cut pooling": ("1_Pooling/config.json", '{"embedding', "Unterminated string"),
    "cut list of modules": ("modules.json", '[{"idx": 0,', "Expecting property name"),
    "a module without path": ("modules.json", '[{"idx": 0, "type": "a.B"}]', r"0\.path: Field required"),
    "a module without type": ("modules.json", '[{"idx": 0, "path": ""}]', r"0\.type: Field required"),
    "no list of modules": ("modules.json", "7", "top level: Input should be a valid array"),
}


@pytest.mark.parametrize(("file", "content", "told"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_settings_of_a_checkpoint_are_told_by_file_and_key(tiny_models, tmp_path, file, content, told):
    folder = shutil.copytree(tiny_models["dense"], tmp_path / "dense")
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=rf"^model 'toy': {file} is damaged \({told}") as caught:
        _fetch(tmp_path, folder)
    assert "\n" not in str(caught.value)


def test_another_similarity_is_refused(tmp_path):
    saved.check_use(_folder(tmp_path, {"similarity_fn_name": "cosine"}), "SentenceTransformer", "dot")  # the default
    with pytest.raises(DataError, match=r"has the similarity 'dot' .* the entry's similarity is 'cosine'"):
        saved.check_use(_folder(tmp_path, {"similarity_fn_name": "dot"}), "SentenceTransformer", "cosine")
    with pytest.raises(DataError, match="has the similarity 'euclidean'"):
        saved.check_use(_folder(tmp_path, {"similarity_fn_name": "euclidean"}), "SentenceTransformer", "dot")
    _folder(tmp_path, {"similarity_fn_name": "dot"}, ["models.Transformer", "models.Pooling", "models.Normalize"])
    saved.check_use(tmp_path, "SentenceTransformer", "cosine")


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    with pytest.raises(DataError, match="is saved as a CrossEncoder, not as a SentenceTransformer"):
        saved.check_use(_folder(tmp_path, {"model_type": "CrossEncoder"}), "SentenceTransformer", "dot")
    with pytest.raises(DataError, match=r"truncates vectors to 3 dimensions \(max_active_dims\)"):
        saved.check_use(_folder(tmp_path, {"max_active_dims": 3}), "SparseEncoder", "dot")
