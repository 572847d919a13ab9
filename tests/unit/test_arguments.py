"""Arguments in files, and settings on standard input."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

from beirgrid.__main__ import main
from beirgrid.core.cli import as_words


def _with_input(words: list[str], text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder as rules do: bash passes the text as standard input."""
    command = shlex.join([sys.executable, "-m", "beirgrid", *words])
    (folder / "job.sh").write_text(f"{command} <<< {shlex.quote(text)}\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    return subprocess.run(["bash", "job.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_stage_reads_its_settings_and_its_record_has_the_command_with_them(root, tmp_path):
    """An entry that is too long for a Linux argument, with characters that are special to a shell and a parser."""
    odd = {"note": "a\n\u2028 'b' {c} $(d) @e"}
    entry = {"source": "local", "path": str(root / "workflow/resources/demo")}
    words = ["fetch", "corpus", "--name", "x", "@-", "--output", "x.parquet", "--record", "x.json"]
    done = _with_input(words, json.dumps({"entry": entry}), tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "x.json").read_text())
    entry["path"] = "workflow/resources/demo"  # from the checkout: the record names no folder of this machine
    assert record["settings"] == entry
    whole = [word for given in words for word in (["--entry", json.dumps(entry)] if given == "@-" else [given])]
    assert record["command"] == shlex.join(["python", "-m", "beirgrid", *whole])
    long = {**entry, "path": "x" * 300_000, **odd}
    refused = _with_input(words, json.dumps({"entry": long}), tmp_path)
    assert "note: Extra inputs are not permitted" in refused.stderr


def test_options_without_a_value_are_left_out_and_0_is_a_value():
    options = {"a_b": 0, "c": None, "d": False, "e": True, "f": [], "g": ["x", 1], "h": {"i": None}, "j": ""}
    assert as_words(options) == ["--a-b", "0", "--e", "--g", "x", "1", "--h", '{"i": null}', "--j", ""]


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "\x00"])
def test_an_input_that_is_no_object_of_options_is_refused(capsys, monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["fuse", "@-"]) == 1
    assert capsys.readouterr().err == "beirgrid fuse: error: @-: standard input is not a JSON object of options\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "a.args: No such file or directory"),
        (b"\xca\xfe\n", "a.args is not a list of arguments, one per line: it is not UTF-8 text"),
        (b"--run\na\0b\n", "a.args is not a list of arguments, one per line: it is not UTF-8 text"),
    ],
)
def test_a_file_of_no_arguments_is_named(capsys, tmp_path, content, message):
    path = tmp_path / "a.args"
    if content is not None:
        path.write_bytes(content)
    assert main([f"@{path}"]) == 1
    assert capsys.readouterr().err == f"beirgrid: error: @{tmp_path}/{message}\n"


def test_a_line_of_a_file_stands_for_itself(capsys, tmp_path):
    """Each file is read once, even a file that names itself."""
    path = tmp_path / "self.args"
    path.write_text(f"@{path}\n")
    with pytest.raises(SystemExit):
        main([f"@{path}"])
    assert f"argument command: invalid choice: '@{path}'" in capsys.readouterr().err


def test_a_file_is_read_as_utf_8_in_every_locale(tmp_path):
    """Rules write these files in UTF-8; another encoding would change names."""
    (tmp_path / "a.args").write_text("müller\n", encoding="utf-8")
    program = "from beirgrid.core.cli import read_files; print(ascii(read_files(['fuse', '@a.args'])))"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **locale, "PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("['fuse', 'm\\xfcller']\n", "")


@pytest.mark.parametrize(
    ("words", "closed", "statuses", "said"),
    [
        (["evaluate", "--run", "a.trec", "--qrels", "qrels.tsv"], True, {128 + signal.SIGPIPE}, b""),
        (["--help"], True, {0, 128 + signal.SIGPIPE}, b""),  # argparse of some Pythons ignores the error
        (["evaluate", "--run", "a.trec", "--qrels", "qrels.tsv"], False, {1}, b"error: the disk is full"),
    ],
)
def test_an_output_that_nobody_reads_ends_a_command_quietly(tmp_path, words, closed, statuses, said):
    (tmp_path / "a.trec").write_text("q1 Q0 d1 1 1 t\n")
    (tmp_path / "qrels.tsv").write_text("q1\td1\t1\n")
    if closed:
        reader, output = os.pipe()
        os.close(reader)
    else:
        output = os.open("/dev/full", os.O_WRONLY)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    for unbuffered in ("", "1"):
        environment["PYTHONUNBUFFERED"] = unbuffered
        command = [sys.executable, "-m", "beirgrid", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.PIPE, check=False
        )
        assert done.returncode in statuses
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == bool(said)
    os.close(output)


def test_streams_that_the_shell_closed_are_opened(tmp_path):
    """Otherwise Snakemake and Java print into the next file that is opened."""
    command = [sys.executable, "-m", "beirgrid", "run", "demo", "--directory", str(tmp_path), "--dry-run", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run(
        ["bash", "-c", '"$@" >&- <&-', "bash", *command], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("fuse", "depth"),
        ("fuse", "k"),
        ("rerank", "depth"),
        ("score", "depth"),
        ("fetch run", "depth"),
        ("retrieve lexical", "depth"),
        ("retrieve lexical", "threads"),
        ("retrieve lexical", "memory"),
        ("retrieve dense", "depth"),
        ("retrieve dense", "dimensions"),
        ("retrieve late-interaction", "candidates"),
        ("index lexical", "threads"),
        ("index lexical", "memory"),
        ("index approximate", "dimensions"),
        ("encode", "shard-size"),
        ("expand", "shard-size"),
        ("mine", "threads"),
        ("train", "threads"),
        ("latency", "queries"),
        ("plan", "jobs"),
    ],
)
@pytest.mark.parametrize("number", ["0", "1000001"])
def test_a_count_of_nothing_or_of_too_much_is_refused(capsys, command, option, number):
    with pytest.raises(SystemExit):
        main([*command.split(), f"--{option}", number])
    message = f"argument --{option}: {int(number):,} is not between 1 and 1,000,000"
    assert capsys.readouterr().err.endswith(f"{message}\n")


@pytest.mark.parametrize("depth", ["-1", "1.0", "1e3", "٣", "", "9" * 5000])
def test_a_number_that_no_option_counts_is_refused(capsys, depth):
    with pytest.raises(SystemExit):
        main(["fuse", "--depth", depth])
    assert "argument --depth: " in capsys.readouterr().err
