"""Arguments that travel in files."""

from __future__ import annotations

import json
import shlex

import pytest

from beirgrid.__main__ import main
from beirgrid.graph.commands import in_file


def test_the_content_gives_the_file_its_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    entry = json.dumps({"query": "a\n\u2028 'b' {c} $(d) @e"})
    assert in_file(entry) == in_file(entry)
    assert in_file(entry, "x") != in_file(entry)
    assert in_file() == ""
    assert (tmp_path / in_file(entry, "x")[1:]).read_text().splitlines() == [entry, "x"]
    assert len(list((tmp_path / ".snakemake/beirgrid").iterdir())) == 2
    with pytest.raises(AssertionError, match="line break"):
        in_file("a\nb")


def test_a_stage_reads_them_and_its_record_has_the_command_without_the_file(monkeypatch, root, tmp_path):
    monkeypatch.chdir(tmp_path)
    entry = {"source": "local", "path": str(root / "workflow/resources/demo")}
    given = in_file(json.dumps(entry))
    command = ["fetch", "corpus", "--name", "x", "--entry", given, "--output", "x.parquet", "--record", "x.json"]
    assert main(command) == 0
    record = json.loads((tmp_path / "x.json").read_text())
    assert record["settings"] == entry
    whole = [json.dumps(entry) if word == given else word for word in command]
    assert record["command"] == shlex.join(["python", "-m", "beirgrid", *whole])


def test_a_file_that_is_gone_is_named(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["aggregate", "--grid", f"@{tmp_path / 'gone.args'}"])
    assert f"{tmp_path / 'gone.args'}" in capsys.readouterr().err
