"""Atomic files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from beirgrid.core import files
from beirgrid.core.errors import DataError


def test_nothing_is_left_when_the_block_fails(tmp_path):
    (tmp_path / "a").write_text("before")

    def write_half() -> None:
        with files.atomic(tmp_path / "a") as temporary:
            temporary.write_text("half")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write_half()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "before"


def test_a_folder_replaces_the_old_one_whole(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "old").write_text("old")
    with files.atomic(tmp_path / "d", directory=True) as temporary:
        (temporary / "new").write_text("new")
        assert (tmp_path / "d" / "old").exists()
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["new"]


def test_leftovers_of_dead_processes_go_and_those_of_live_ones_stay(tmp_path):
    host = socket.gethostname()
    dead = tmp_path / f".a.beirgrid-tmp-{host}-999999999"
    live = tmp_path / f".a.beirgrid-tmp-{host}-{os.getppid()}"
    for path in (dead, live):
        path.write_text("x")
    with files.atomic(tmp_path / "a") as temporary:
        temporary.write_text("whole")
    assert not dead.exists()
    assert live.exists()
    assert (tmp_path / "a").read_text() == "whole"


@pytest.mark.parametrize("links", [["a"], ["a", "b"], ["../here/a"]])
def test_a_link_stays_and_its_file_is_replaced(tmp_path, links):
    (tmp_path / "here").mkdir()
    target = tmp_path / "here/file"
    target.write_text("before")
    last = "file"
    for link in links:
        (tmp_path / "here" / link).symlink_to(last)
        last = link
    files.write_text(tmp_path / "here" / last, "after")
    assert target.read_text() == "after"
    assert not target.is_symlink()
    assert (tmp_path / "here" / last).is_symlink()


def test_a_link_to_a_file_that_is_to_come_is_followed(tmp_path):
    (tmp_path / "link").symlink_to("folder/file")
    files.write_text(tmp_path / "link", "text")
    assert (tmp_path / "folder/file").read_text() == "text"


@pytest.mark.parametrize(
    ("name", "directory", "message"),
    [
        ("to-folder", False, "output to-folder exists and is not a file"),
        ("folder", False, "output folder exists and is not a file"),
        ("pipe", False, "output pipe exists and is not a file"),
        ("/dev/null", False, "output /dev/null exists and is not a file"),
        ("file", True, "output file exists and is not a folder"),
    ],
)
def test_what_no_output_can_be_is_refused_before_any_work(tmp_path, monkeypatch, name, directory, message):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("folder/kept").write_text("kept")
    Path("file").write_text("kept")
    Path("to-folder").symlink_to("folder")
    os.mkfifo("pipe")
    there = sorted(map(str, Path().rglob("*")))
    with pytest.raises(DataError, match=message), files.atomic(name, directory):
        raise AssertionError("the block began")
    assert sorted(map(str, Path().rglob("*"))) == there


def test_a_link_to_a_folder_gives_way_and_the_folder_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/kept").write_text("kept")
    (tmp_path / "link").symlink_to("folder")
    with files.atomic(tmp_path / "link", directory=True) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in (tmp_path / "link").iterdir()] == ["new"]
    assert (tmp_path / "folder/kept").read_text() == "kept"
