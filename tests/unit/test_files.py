"""Atomic files."""

from __future__ import annotations

import os
import socket

import pytest

from beirgrid.core import files


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
