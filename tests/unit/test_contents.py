"""Hashes of local files: which files are read again, and when."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from beirgrid.core import contents, files
from beirgrid.core.contents import Contents
from beirgrid.pipeline import reruns


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read, and a clock ten seconds ahead, so that no file is too recent."""
    found: list[str] = []
    sha256, now = files.sha256, time.time_ns

    def watched(path):
        found.append(str(path))
        return sha256(path)

    monkeypatch.setattr(files, "sha256", watched)
    monkeypatch.setattr(contents.time, "time_ns", lambda: now() + 10**10)
    return found


def _hash(path: Path, kept: Path) -> str:
    [digest] = Contents(kept).hashes([str(path)]).values()
    return digest


def test_a_file_is_read_once_and_again_when_it_is_another(tmp_path, read):
    path, kept = tmp_path / "qrels.tsv", tmp_path / "kept/hashes.json"
    path.write_text("q1 d1 1")
    first = _hash(path, kept)
    assert _hash(path, kept) == first
    assert len(read) == 1
    (tmp_path / "other").write_text("q1 d1 2")
    shutil.copystat(path, tmp_path / "other")
    shutil.move(tmp_path / "other", path)
    second = _hash(path, kept)
    assert (second != first, len(read)) == (True, 2)
    times = path.stat()
    path.write_text("q1 d1 3")  # in place: the same inode, size and time
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert _hash(path, kept) not in (first, second)


def test_a_file_that_has_just_changed_is_read_again(tmp_path, read, monkeypatch):
    monkeypatch.setattr(contents.time, "time_ns", time.time_ns)
    monkeypatch.setattr(contents, "_SETTLED", 10**12)
    (tmp_path / "a").write_text("a")
    for number in (1, 2):
        _hash(tmp_path / "a", tmp_path / "hashes.json")
        assert len(read) == number


@pytest.mark.parametrize("damage", ["", "[]", '{"x": 1}', "{"])
def test_damaged_hashes_are_computed_again(tmp_path, damage, read):
    (tmp_path / "a").write_text("a")
    (tmp_path / "hashes.json").write_text(damage.replace("x", str(tmp_path / "a")))
    assert _hash(tmp_path / "a", tmp_path / "hashes.json") == files.sha256(tmp_path / "a")


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert _hash(tmp_path / "pipe", tmp_path / "hashes.json")


def test_the_state_of_files_follows_from_content_and_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, names in {"a": "xy", "b": "xy", "c": "xz"}.items():
        Path(folder).mkdir()
        for name in names:
            Path(folder, name).write_text(name.replace("z", "y"))
    first, copied, renamed = (reruns.state(map(str, Path(folder).iterdir())) for folder in "abc")
    assert first == copied != renamed
    assert reruns.state([]) == reruns.state(["a/gone"]) == ""
    assert reruns.state(["a/x"]) not in (first, reruns.state(["a/y"]))
