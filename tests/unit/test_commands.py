"""The command line, and what jobs give to the functions of stages."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import helpers
import numpy as np
import pytest
from helpers import tracked_configuration
from jobs import JOBS, PROGRAM, PUBLISHED, REWRITTEN, SLICES

from beirgrid import config
from beirgrid.__main__ import COMMANDS, main
from beirgrid.core.compute import Runtime
from beirgrid.core.errors import DataError
from beirgrid.graph import job
from beirgrid.graph.dag import Job
from beirgrid.graph.grid import Grid
from beirgrid.graph.rules import Rules
from beirgrid.runs import pairs, runs
from beirgrid.stages.rerank import work as rerank


def test_every_option_that_users_type_is_on_a_page(capsys, root):
    pages = "\n".join(path.read_text(encoding="utf-8") for path in [*root.glob("docs/*.md"), root / "README.md"])

    def shown(*words: str) -> str:
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        return capsys.readouterr().out

    overview = shown()
    assert [words for words in COMMANDS if words.split()[0] not in overview] == []
    texts = {words: shown(*words.split()) for words in COMMANDS if words != "evaluate"}
    options = {f"{name} {option}": option for name, text in texts.items() for option in re.findall(r"--[a-z-]+", text)}
    assert len(options) > 100
    assert [words for words, text in texts.items() if "``" in text] == []
    described = [part for text in texts.values() for part in re.split(r"\n  (?=\S)", text.partition("\noptions:")[2])]
    assert [part for part in described if part.startswith("-") and not re.search(r"\s{2,}\S", part)] == []
    assert [use for use, option in options.items() if not re.search(rf"{option}(?![a-z-])", pages)] == []


# Packages that take over a second to import together, and programs that need few of them.
HEAVY = {"torch", "transformers", "datasets", "ranx", "numba", "scipy", "statsmodels", "matplotlib", "faiss", "sklearn"}
RANKING = "runs.Ranking(['a', 'b'], np.array([2, 1], np.float32))"
FUSIONS = f"[fusion.fuse([{{'q': {RANKING}}}] * 2, fusion.Fusion(method, 10)) for method in ('rrf', 'wsum')]"
LIGHT = {
    "import beirgrid; dir(beirgrid)": {"numpy", "torch", "pandas", "pydantic"},
    "from beirgrid.__main__ import main; main(['--help'])": {
        "numpy",
        "pydantic",
        "torch",
        "beirgrid.stages.fetch.work",
    },
    "import beirgrid.stages.evaluate.work": HEAVY | {"pandas", "jinja2"},
    "import beirgrid.stages.aggregate.work": HEAVY | {"jinja2"},
    "import beirgrid.stages.report.work": HEAVY,
    f"import beirgrid.stages.fuse.work, numpy as np; from beirgrid.runs import fusion, runs; {FUSIONS}": HEAVY
    | {"pandas", "pyarrow", "jinja2"},
}


@pytest.mark.parametrize("program", LIGHT)
def test_what_needs_no_model_imports_little(program):
    ends = f"import atexit, sys; atexit.register(lambda: print(sorted({LIGHT[program]} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", f"{ends}; {program}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture(scope="module")
def rules_of_paper() -> Rules:
    """The rules of the paper's grid, and of systems of all other kinds."""
    raw = tracked_configuration("grids/paper")
    raw["systems"] |= {"published": PUBLISHED, "program": PROGRAM, "rewritten": REWRITTEN}
    raw["datasets"]["scifact"]["slices"] = SLICES
    raw["systems"]["mine"] = {"run": "{dataset}.trec"}
    raw["systems"]["smaller"] = {"retriever": "tas-b", "index": {"kind": "int8"}}
    return Rules(Grid(config.load(raw)), own_python=True)


@pytest.mark.parametrize("rule", JOBS)
def test_the_job_of_each_rule_fits_its_function(rules_of_paper, rule, tmp_path, monkeypatch):
    """One job of each rule."""
    monkeypatch.chdir(tmp_path)
    own = {"system": "mine"} if rule == "fetch_run" else {}
    each = Job.of(rule, JOBS[rule] | own)
    outputs = dict.fromkeys(each.stage.outputs, "out")
    command = rules_of_paper.command(each, rules_of_paper.inputs(each), outputs, 1, SimpleNamespace(mem_mb=2000))
    *_, name, _, text = shlex.split(command)
    made, function = {"stage": name, **json.loads(text)}, job.stage_function(name)
    if rule in ("aggregate", "report", "analyses"):
        with pytest.raises(DataError, match=r"grid.json is missing"):
            job.arguments(function, job.options(made))
    else:
        values = job.arguments(function, job.options(made))
        assert set(inspect.signature(function).parameters) == set(values)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{"source": "local", "path": "x", "documnets": 3}', "documnets: Extra inputs are not permitted"),
        ('{"source": "hub"}', "Input tag 'hub' found using 'source'"),
    ],
)
def test_a_wrong_entry_is_one_message(capsys, entry, message):
    words = ["fetch", "corpus", "--name", "x", "--entry", entry, "--output", "x.parquet", "--record", "x.json"]
    assert helpers.main(words) == 1
    error = capsys.readouterr().err
    assert error.startswith("beirgrid stage fetch_corpus: error: ")
    assert message in error
    assert error.count("\n") == 1


def test_rerank_reads_the_parts_that_the_manifest_names(tmp_path):
    store = tmp_path / "pairs" / "fingerprint"
    store.mkdir(parents=True)
    pairs.write_part(store, [("q", "a"), ("q", "b")], np.array([1, 2], np.float32))
    parts = [path.name for path in store.iterdir()]
    settings = {"family": "cross-encoder", "precision": "float32"}
    content = {"pairs": {"store": "pairs/fingerprint", "parts": parts, "settings": settings}}
    # Of another job; its scores would put a first.
    pairs.write_part(store, [("q", "a"), ("q", "c")], np.array([9, 3], np.float32))
    (tmp_path / "first.json").write_text(json.dumps(content))
    runs.write(tmp_path / "first.run.gz", {"q": runs.canonical("q", ["a", "b"], [2, 1])}, "first")
    given = {"system": "x", "first_stage": tmp_path / "first.run.gz", "scores": tmp_path / "first.json"}
    facts = rerank.rerank(**given, output=tmp_path / "x.run.gz")
    assert runs.read(tmp_path / "x.run.gz")["q"].ids == ["b", "a"]
    assert facts["reranker"] == settings


@pytest.mark.parametrize("content", ["[]", "{}", '{"pairs": {}}', '{"pairs": 1}', "{"])
def test_a_file_that_is_no_manifest_is_named(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DataError, match=r"x\.json is damaged"):
        pairs.read_manifest(tmp_path / "x.json")


def test_training_keeps_to_its_own_gpu(monkeypatch, tmp_path):
    """The libraries would take the first of four GPUs, and spread each batch over all of them."""
    import torch

    from beirgrid.encoders.trainers import arguments
    from beirgrid.stages.adapt.work import Trainer
    from beirgrid.stages.train.work import TrainRecipe

    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: current.append(str(device)))
    runtime = Runtime("cuda:2", "auto", 1)
    settings = arguments(Trainer, tmp_path, TrainRecipe(base="b", corpus="c", batch=8), runtime, "float32")
    assert (str(settings.device), settings.n_gpu, settings.train_batch_size) == ("cuda:2", 1, 8)
    assert current[-1] == "cuda:2"


def test_words_that_a_command_does_not_know_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["status", "--cores", "1"])
    assert "unrecognized arguments: --cores 1" in capsys.readouterr().err


def test_without_words_there_is_the_help(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_the_shell_completes_commands_and_options(tmp_path):
    script = "import sys; sys.argv = ['beirgrid']; from beirgrid.__main__ import main; main()"

    def completed(line: str) -> list[str]:
        said = tmp_path / "said"
        variables = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
        variables |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(said)}
        subprocess.run([sys.executable, "-c", script], env={**os.environ, **variables}, check=True)
        return said.read_text().split()

    assert completed("beirgrid re") == ["reproduce", "report"]
    assert completed("beirgrid run --dat") == ["--datasets"]
    assert completed("beirgrid list sys") == ["systems"]
    assert completed("beirgrid plan --format ") == ["text", "json"]
    assert "--directory" in completed("beirgrid export mteb --dir")
    assert "trec" in completed("beirgrid export ")
