"""The state of local files, which is a param of the jobs that read them."""

from __future__ import annotations

import os
from pathlib import Path

from beirgrid.core import files
from beirgrid.pipeline import rules


def test_a_pipe_is_not_read_and_a_file_once(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    assert rules.state([str(tmp_path / "pipe")])
    (tmp_path / "a").write_text("a")
    first = rules.state([str(tmp_path / "a")])
    monkeypatch.setattr(files, "sha256", None)
    assert rules.state([str(tmp_path / "a")]) == first


def test_the_state_of_files_follows_from_content_and_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, names in {"a": "xy", "b": "xy", "c": "xz"}.items():
        Path(folder).mkdir()
        for name in names:
            Path(folder, name).write_text(name.replace("z", "y"))
    first, copied, renamed = (rules.state(map(str, Path(folder).iterdir())) for folder in "abc")
    assert first == copied != renamed
    assert rules.state([]) == rules.state(["a/gone"]) == ""
    assert rules.state(["a/x"]) not in (first, rules.state(["a/y"]))
