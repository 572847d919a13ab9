"""Paths in records and on pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import write_record

from beirgrid.core.checkout import portable, without_folders
from beirgrid.stages.aggregate.plan import Aggregate


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    """A working directory with the folder notes, beside a folder other."""
    (tmp_path / "work" / "notes").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_paths_start_at_the_working_directory_or_at_the_checkout(work, root):
    assert portable(str(work / "notes")) == "notes"
    assert portable(str(work)) == "."
    assert portable(str(root / "workflow/resources/demo")) == "workflow/resources/demo"
    assert portable(str(work.parent / "other")) == "../other"
    assert portable(str(work.parent / "other" / "{corpus}.jsonl")) == "../other/{corpus}.jsonl"
    assert portable("results/runs/x") == "results/runs/x"


@pytest.mark.parametrize(
    "text", ["", "/query: ", "/no/such/folder/x", "ndcg@10", "/" + "x" * 5000, "{not json", "[1", "/a\0b"]
)
def test_other_texts_stay(work, text):
    assert portable(text) == text


def test_settings_are_searched(work):
    entry = {"source": "local", "path": str(work / "notes"), "documents": 8, "allow": [str(work / "notes")]}
    expected = {"source": "local", "path": "notes", "documents": 8, "allow": ["notes"]}
    assert portable(entry) == expected
    assert portable({"tuple": (str(work / "notes"), 1.5, None)}) == {"tuple": ["notes", 1.5, None]}


def test_records_name_no_folder_of_this_machine(work, root):
    published = str(root / "config/published/mteb.csv")
    settings = {"path": str(work / "notes"), "published": published}
    write_record(Aggregate(), work / "record.json", settings=settings)
    text = (work / "record.json").read_text()
    assert '"published": "config/published/mteb.csv"' in text
    assert str(work.parent) not in text
    assert f"{root}/" not in text


def test_messages_lose_the_folders(work, root):
    message = f"{work}/results/x.json is damaged; {root}/config/systems.yaml says {work.parent}/other"
    assert without_folders(message) == f"results/x.json is damaged; config/systems.yaml says {work.parent}/other"
