"""The stages, and what follows from them."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
from helpers import ROOT, rules, tracked_configuration

from beirgrid import config
from beirgrid.core import files, provenance
from beirgrid.core.provenance import Made
from beirgrid.graph.dag import Job, by_function, stages
from beirgrid.graph.grid import Grid
from beirgrid.graph.job import JobRecord
from beirgrid.graph.rules import Rules
from beirgrid.graph.stage import Kind


def test_every_rule_has_a_stage_and_every_stage_a_rule():
    assert set(stages()) == set(rules())


def test_jobs_of_a_lexical_cell_start_before_those_of_a_model():
    first = {name: stage.priority for name, stage in stages().items()}
    lexical = ("fetch_corpus", "fetch_dataset", "index_lexical", "retrieve_lexical", "evaluate")
    models = ("encode_dense", "retrieve_dense", "train", "score", "adapt", "mine", "label")
    assert min(first[name] for name in lexical) > max(first[name] for name in models)
    assert first["evaluate"] > first["index_lexical"]
    assert first["retrieve_dense"] > first["encode_dense"]


def test_stages_with_one_name_in_records_have_one_stamp():
    stamps = {stage.stamp for stage in stages().values()}
    assert len(stamps) == len({stamp.name for stamp in stamps})


@pytest.mark.parametrize("stage", stages().values(), ids=lambda stage: stage.rule)
def test_the_rule_of_a_stage_is_whole(stage):
    """Some rules are made from others, so the test reads the final form of each."""
    rule = rules()[stage.rule]
    assert rule.params.version == stage.stamp.version
    assert rule.priority == stage.priority
    assert rule.resources.get("network") == (1 if stage.downloads else None)
    assert "gres" not in rule.resources  # gres and gpu together conflict in SLURM's plugin
    assert ("gpu" in rule.resources) == (stage.runs_models or stage.gpu)
    assert all((rule.message, rule.log, rule.benchmark, rule.conda_env))
    assert rule.shellcmd == "{params.command} > {log:q} 2>&1"  # Rules.command quotes the command
    if stage.of_grid:  # its rule fills in the name of the grid
        assert stage.outputs.keys() <= set(rule.output.keys())
    else:
        outputs = {name: re.sub(r"\{(\w+),[^}]*\}", r"{\1}", str(path)) for name, path in rule.output.items()}
        assert outputs == stage.outputs


@pytest.mark.parametrize("function", by_function())
def test_the_function_of_a_stage_is_there(function):
    module = importlib.import_module(by_function()[function].module)
    assert callable(getattr(module, function))


def test_only_its_plan_and_its_work_name_a_stage():
    """Names that are also other words of the package are left out, unless they are compared with a record's stage."""
    words = {"analyse", "encode", "evaluate", "index", "label", "mine", "page", "report", "rerank", "retrieve"}
    words |= {"score", "train", *get_args(Kind)}
    own: dict[str, set[str]] = {}
    package = ROOT / "workflow" / "beirgrid"
    for stage in stages().values():
        folder = Path(str(sys.modules[type(stage).__module__].__file__)).parent
        for name in {stage.rule, stage.name, stage.function} - words:
            own.setdefault(name, set()).update(str(path.relative_to(package)) for path in folder.glob("*.py"))
    for path in package.rglob("*.py"):
        text, place = path.read_text(encoding="utf-8"), str(path.relative_to(package))
        for name, places in own.items():
            assert place in places or not re.search(rf"[\"']{name}[\"']", text), (place, name)
        assert not re.search(r"\[\"stage\"\] (==|!=|in|not in) ", text), place


@pytest.mark.parametrize(
    ("rule", "wildcards", "kind", "model"),
    [
        ("encode_dense", {"model": "minilm", "corpus": "demo", "shard": "0"}, "encode", "minilm"),
        ("index_dense", {"model": "minilm", "corpus": "demo", "shard": "0"}, "index", None),
        ("retrieve_dense", {"system": "minilm", "dataset": "demo"}, "search", "minilm"),
        ("retrieve_lexical", {"system": "bm25", "dataset": "demo"}, "search", None),
        ("score", {"reranker": "ms-marco-minilm", "dataset": "demo", "first": "bm25"}, "score", "ms-marco-minilm"),
        ("rerank", {"system": "bm25+ce", "dataset": "demo"}, "rerank", None),
    ],
)
def test_a_record_says_which_model_its_job_ran_and_what_kind_of_step_it_is(tmp_path, rule, wildcards, kind, model):
    raw = tracked_configuration() | {"grid": {"systems": ["bm25", "minilm", "bm25+ce"], "datasets": ["demo"]}}
    planned = Rules(Grid(config.load(raw)), own_python=True)
    stage = stages()[rule]
    inputs = dict.fromkeys(stage.inputs(planned.grid, **wildcards))
    made = json.loads(planned.as_json(Job.of(rule, wildcards), inputs, dict.fromkeys(stage.outputs, ""), 1, 2000))
    job = {**made, "stage": stage.function, "inputs": {}, "outputs": {}}
    JobRecord(stage.stamp, job).write(tmp_path / "record.json", Made({}))
    record = provenance.read_record(tmp_path / "record.json")
    assert (record["kind"], record["model"]) == (kind, model)
    # Records of earlier versions have no model.
    files.write_json(tmp_path / "before.json", {name: value for name, value in record.items() if name != "model"})
    assert provenance.read_record(tmp_path / "before.json")["settings_key"] == record["settings_key"]
