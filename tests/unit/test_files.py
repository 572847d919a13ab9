"""Atomic files."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT

from beirgrid.__main__ import main
from beirgrid.core import files
from beirgrid.core.errors import DataError
from beirgrid.runs import runs


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


def _device(path: Path) -> None:
    """Make a node of the null device, or skip where only root may."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.write_bytes(b"")  # a file system without devices refuses to open it
    except OSError:
        pytest.skip("no device can be made here")


@pytest.mark.parametrize("write", [files.write_text, files.replace_text])
def test_a_device_stays_a_device(tmp_path, write):
    _device(tmp_path / "null")
    write(tmp_path / "null", "text")
    assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


@pytest.mark.parametrize("write", [files.write_text, files.replace_text])
def test_a_pipe_gets_the_bytes(tmp_path, write):
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write(tmp_path / "pipe", "text")
    reader.join(10)
    assert read == ["text"]
    assert (tmp_path / "pipe").is_fifo()


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
        ("loop", False, "loop is a link that leads to itself"),
        ("loop", True, "loop is a link"),
        ("socket", False, "socket is a socket, not a file"),
        ("to-folder", True, "to-folder is a link, and a folder is to be written"),
        ("to-folder", False, "to-folder is a folder, and a file is to be written"),
        ("folder", False, "folder is a folder, and a file is to be written"),
        ("file", True, "file is not a folder, and a folder is to be written"),
        ("pipe", True, "pipe is not a folder, and a folder is to be written"),
    ],
)
def test_what_no_output_can_be_is_refused_before_any_work(tmp_path, monkeypatch, name, directory, message):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("folder/kept").write_text("kept")
    Path("file").write_text("kept")
    Path("to-folder").symlink_to("folder")
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    there = sorted(map(str, Path().rglob("*")))
    with pytest.raises(DataError, match=message), files.atomic(name, directory):
        raise AssertionError("the block began")
    assert sorted(map(str, Path().rglob("*"))) == there


@pytest.mark.parametrize("output", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("to", ["pipe", "file"])
def test_standard_output_is_an_output(tmp_path, output, to):
    """A file that the shell has opened would be lost if another one took its name."""
    program = (
        "import sys; from beirgrid.core import files; print('first'); "
        "files.write_text(sys.argv[1], 'text\\n'); print('last')"
    )
    command = [sys.executable, "-c", program, output]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    with (tmp_path / "out").open("w") as stream:
        place = subprocess.PIPE if to == "pipe" else stream
        done = subprocess.run(command, stdout=place, env=environment, text=True, check=True)
    written = done.stdout if to == "pipe" else (tmp_path / "out").read_text()
    assert written == "first\ntext\nlast\n"


def test_commands_write_into_devices(tmp_path, monkeypatch, capsys):
    """Runs, tables and records alike."""
    monkeypatch.chdir(tmp_path)
    for name in ("null", "zero"):
        _device(Path(name))
    for name in ("a", "b"):
        runs.write(f"{name}.run.gz", {"q": runs.Ranking(["d"], np.ones(1, np.float32))}, name)
    Path("qrels.tsv").write_text("q\td\t1\n")
    evaluate = ["evaluate", "--run", "a.run.gz", "--qrels", "qrels.tsv", "--metrics", "ndcg@10", "--output"]
    fuse = ["fuse", "--system", "s", "--runs", "a.run.gz", "b.run.gz", "--method", "rrf", "--output"]
    assert main([*fuse, "null", "--record", "zero"]) == 0
    assert main([*evaluate, "zero", "--per-query", "null"]) == 0
    assert all(stat.S_ISCHR(Path(name).stat().st_mode) for name in ("null", "zero"))
    assert main([*fuse, ".", "--record", "zero"]) == 1
    assert capsys.readouterr().err == (
        "beirgrid fuse: error: . is a folder, and a file is to be written: name another output\n"
    )
