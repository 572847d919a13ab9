"""Systems that are opened again from their records: what they answer, and what is refused."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pandas as pd
import pytest
import small
from helpers import made_once, main, run_job

from beirgrid import config
from beirgrid.collections.collection import read_queries
from beirgrid.core import files, paths
from beirgrid.core.provenance import Stamp
from beirgrid.encoders.cross_encoder import CrossEncoderScorer
from beirgrid.encoders.dense import DenseEncoder
from beirgrid.execution import open_systems
from beirgrid.graph import artifacts, job
from beirgrid.graph.dag import jobs_behind
from beirgrid.graph.grid import Grid
from beirgrid.graph.rules import Rules
from beirgrid.results import cells as cell_states
from beirgrid.results.efficiency import efficiency
from beirgrid.results.summary import GridSummary
from beirgrid.runs import runs
from beirgrid.search import lucene
from beirgrid.stages.retrieve import work as retrieve
from beirgrid.stages.score import work as score

SYSTEMS = {
    "bm25": {"retriever": "bm25", "fields": "flat"},
    "bm25-rm3": {"retriever": "bm25", "fields": "flat", "rm3": {"documents": 2, "terms": 3}},
    "tiny": {"retriever": "dense"},
    "own": {"retriever": "brings-code"},
    "int8": {"retriever": "dense", "index": {"kind": "int8"}},
    "moved": {"first_stage": "tiny", "feedback": {"documents": 2, "negatives": 1}},
    "tiny+ce": {"first_stage": "tiny", "reranker": "ce", "depth": 5},
    "fused": {"fusion": "rrf", "of": ["bm25", "tiny"]},
    "mnz": {"fusion": "mnz", "norm": "zmuv", "of": ["bm25", "tiny"]},
    "tuned": {"fusion": "wsum", "weights": "tuned", "of": ["bm25", "tiny"]},
    "trained": {"fusion": "posfuse", "of": ["bm25", "tiny+ce"], "metric": "recall@10"},
    "folds": {"fusion": "wsum", "weights": "tuned", "tuned": "folds", "of": ["bm25", "tiny"]},
}
DENSE = {"family": "dense", "similarity": "cosine"}
MODELS = {
    "dense": {**DENSE, "path": "dense"},
    "brings-code": {**DENSE, "path": "brings-code", "trust_remote_code": True},
    "ce": {"family": "cross-encoder", "max_length": 64, "path": "ce"},
}
# A module of a checkpoint. It writes a file beside the checkpoint when it runs.
CODE = """
import torch

class Module(torch.nn.Module):
    def forward(self, features, **options):
        open({canary!r}, "a").close()
        return features

    @classmethod
    def load(cls, *words, **options):
        return cls()

    def save(self, *words, **options):
        pass
"""
Plant = Callable[..., None]


def _save_models(folder: Path) -> None:
    checkpoints.save_dense(folder / "dense")
    checkpoints.save_cross_encoder(folder / "ce")
    shutil.copytree(folder / "dense", folder / "brings-code")
    (folder / "brings-code/own.py").write_text(CODE.format(canary=str(folder / "code-ran")))
    modules = json.loads((folder / "brings-code/modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "", "type": "own.Module"})
    (folder / "brings-code/modules.json").write_text(json.dumps(modules))


def _finish(folder: Path, models: dict[str, Any] = MODELS, systems: dict[str, Any] = SYSTEMS) -> None:
    """Run a grid on a small collection, which has a query that is a document, in this process."""
    folder.mkdir(parents=True)
    small.collection(folder / "data")
    with (folder / "data/queries.jsonl").open("a") as stream:
        stream.writelines(json.dumps({"_id": f"dev{n}", "text": f"abcd efgh {n}"}) + "\n" for n in range(6))
    rows = [f"dev{n}\td{10 * n + step}\t{step}" for n in range(6) for step in range(3)]
    (folder / "data/qrels/dev.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows, ""]))
    _save_models(folder)
    raw = {
        "corpora": {"small": {"source": "local", "path": "data", "documents": 60}},
        "datasets": {"small": {"corpus": "small", "dev": "dev"}, "dev": {"corpus": "small", "split": "dev"}},
        "models": models,
        "systems": systems,
        "grid": {"systems": [*systems], "datasets": ["small"]},
        "encode": small.ENCODE,
        "metrics": ["ndcg@10"],
        "device": "cpu",
    }
    with contextlib.chdir(folder):
        grid = Grid(config.load(copy.deepcopy(raw)))
        rules = Rules(grid, own_python=True)
        for each in jobs_behind(grid, *(artifacts.scores(grid, *cell) for cell in grid.runs)):
            rules.run(each)
        files.write_text(paths.GRID_SUMMARY.format(grid="grid"), rules.summary_json())


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return made_once(tmp_path_factory, "opened", lambda folder: _finish(folder / "site")) / "site"


@pytest.fixture
def site(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the finished folder, as somebody else gets it: without the checkpoints that the entries name."""
    shutil.copytree(finished / "results", tmp_path / "site/results")
    monkeypatch.chdir(tmp_path / "site")
    return tmp_path / "site"


def _record(system: str) -> Path:
    return Path(paths.RUN_RECORD.format(system=system, dataset="small"))


@pytest.mark.parametrize("system", [system for system in SYSTEMS if system not in ("own", "folds")])
def test_a_system_ranks_as_its_run(site, system):
    """Also for a query that is a document, which is not ranked for it."""
    opened = open_systems.open_system(system, "small", "cpu")
    texts, stored = (
        read_queries(paths.QUERIES.format(dataset="small")),
        runs.read(_record(system).with_suffix(".run.gz")),
    )
    assert {query: ranking.ids for query, ranking in opened.rank(texts).items() if ranking.ids} == {
        query: ranking.ids for query, ranking in stored.items()
    }


def test_a_fusion_by_folds_has_no_weights_for_a_new_query(site):
    with pytest.raises(open_systems.NotSearchable, match="'folds' cannot be searched: it was tuned by folds, so each"):
        open_systems.open_system("folds", "small", "cpu")


def test_the_record_of_a_tuned_fusion_has_the_choice_and_its_curve(site):
    told = {
        name: files.read_json(_record(name))["facts"].get("tuned") for name in ("fused", "tuned", "trained", "folds")
    }
    assert told["fused"] is None
    curve = {tuple(one["weights"]): one["value"] for one in told["tuned"]["curve"]}
    assert told["tuned"]["value"] == max(curve.values()) == curve[tuple(told["tuned"]["weights"])]
    assert (len(curve), told["tuned"]["queries"], told["tuned"]["metric"]) == (11, 6, "ndcg@10")
    assert told["trained"] == {"queries": 6, "metric": "recall@10"} | {
        name: told["trained"][name] for name in ("value", "curve")
    }
    assert [(one["fused"], len(one["curve"])) for one in told["folds"]] == [(3, 11), (2, 11), (2, 11), (2, 11), (2, 11)]


def test_the_queries_that_tune_cost_a_query_nothing(site):
    grid = GridSummary.model_validate_json(Path(paths.GRID_SUMMARY.format(grid="grid")).read_bytes())
    cells = cell_states.find(grid)
    assert {state.status for state in cells.values()} == {"done"}
    table = efficiency({cell: state.steps for cell, state in cells.items()}).set_index("system")
    assert table.loc["tuned", "query_ms"] == table.loc["fused", "query_ms"]
    assert table.loc["tuned", "index_bytes"] == table.loc["fused", "index_bytes"]
    assert "results/runs/tiny/dev.json" in cells["tuned", "small"].steps


@pytest.mark.parametrize(
    ("given", "others", "said"),
    [
        ("dev_qrels", "datasets/small/qrels.tsv", "each has another dev_queries behind it"),
        ("dev_runs", ["runs/bm25/small.run.gz", "runs/tiny/small.run.gz"], "another dev_queries behind it"),
        ("runs", ["runs/bm25/dev.run.gz", "runs/tiny/small.run.gz"], "another queries behind it"),
    ],
)
def test_runs_and_judgements_that_tune_belong_together(site, capsys, given, others, said):
    made = files.read_json(_record("tuned"))["job"]
    made["inputs"][given] = [f"results/{one}" for one in others] if isinstance(others, list) else f"results/{others}"
    assert run_job(made) == 1
    assert said in capsys.readouterr().err


# A stage that a person adds ---------------------------------------------------------------------------------------


@pytest.fixture
def plant(site, monkeypatch) -> Plant:
    """Return a function that runs a retrieval of the site again, as a copied stage that drops the best document."""
    module = types.ModuleType("beirgrid.stages.planted")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    outputs = {"run": "", "record": ""}
    known = dict(job.by_function())
    monkeypatch.setattr(job, "by_function", lambda: known)

    def run_again(system: str, stage: str = "planted", learned: str = "", **names: str) -> None:
        known[stage] = types.SimpleNamespace(module=module.__name__, stamp=Stamp("planted", 1), outputs=outputs)
        source = Path(str(retrieve.__file__)).read_text()
        for name, other in names.items():
            source = source.replace(f"def {name}(", f"def {other}(")
        source = source.replace("runs.write(output, run, system)", "runs.write(output, _shifted(run), system)")
        source += (
            "\n\ndef _shifted(run):\n    return {q: runs.Ranking(r.ids[1:], r.scores[1:]) for q, r in run.items()}\n"
        )
        source = source.replace("from ...", "from beirgrid.")
        if learned:
            source = source.replace("    depth: Depth = 1000,", f"    {learned}: Any = None,\n    depth: Depth = 1000,")
        exec(compile(source, "planted.py", "exec"), module.__dict__)
        made = json.loads(_record(system).read_text())["job"]
        made["settings"] |= {learned: {"terms": 10}} if learned else {}
        job.run(stage, json.dumps({name: part for name, part in made.items() if name != "stage"}).encode())

    return run_again


@pytest.mark.parametrize(("system", "work"), [("bm25", "retrieve_lexical"), ("tiny", "retrieve_vectors")])
def test_a_copied_stage_is_never_answered_with_the_ranking_of_the_first(plant, capsys, system, work):
    """A copy of the work has no opener; one whose opener was copied with it ranks otherwise than the run."""
    plant(system, **{work: "planted"})
    assert main(["search", system, "small", "text"]) == 1
    assert f"{system!r} cannot be searched: its stage planted has no opener" in capsys.readouterr().err
    plant(system, **{work: "planted", f"open_{work}": "open_planted"})
    [first, *_] = runs.read(_record(system).with_suffix(".run.gz"))["q0"].ids
    assert main(["search", system, "small", "text"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{system!r} cannot be searched: opened again, it ranks d" in shown.err
    assert f"for query 'q0', and its run results/runs/{system}/small.run.gz {first} " in shown.err


def test_a_key_that_a_stage_learns_is_refused_until_its_opener_takes_it(plant, capsys):
    plant("bm25", "retrieve_lexical", learned="bo1")
    assert main(["search", "bm25", "small", "text"]) == 1
    shown = capsys.readouterr()
    message = "'bm25' cannot be searched: its stage retrieve_lexical was given bo1, which its opener does not take"
    assert message in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("system", "part", "name", "value"),
    [
        ("bm25", "settings", "bo1", {"terms": 10}),
        ("bm25", "inputs", "vectors", "results/corpora/small/corpus.parquet"),
        ("tiny", "settings", "drift", 3),
        ("fused", "settings", "tuned", True),
        ("tiny+ce", "settings", "blend", 0.5),
    ],
)
def test_a_value_that_the_opener_does_not_take_is_refused_by_its_name(site, capsys, system, part, name, value):
    record = json.loads(_record(system).read_text())
    record["job"][part][name] = value
    _record(system).write_text(json.dumps(record))
    assert main(["search", system, "small", "text"]) == 1
    stage = record["job"]["stage"]
    message = f"{system!r} cannot be searched: its stage {stage} was given {name}, which its opener does not take"
    assert message in capsys.readouterr().err


def test_a_run_under_another_name_is_not_answered_for(site, capsys):
    shutil.copytree(_record("tiny").parent, _record("kept").parent)
    assert main(["search", "kept", "small", "text"]) == 1
    shown = capsys.readouterr()
    assert f"'kept' cannot be searched: {_record('kept')} is the record of 'tiny', not of 'kept'" in shown.err
    assert shown.out == ""


# Code of a checkpoint ------------------------------------------------------------------------------------------------


def test_the_code_of_a_checkpoint_runs_only_where_a_person_says_so(finished, site, capsys):
    ran = finished / "code-ran"
    assert ran.exists(), "its entry allowed it to the grid"
    ran.unlink()
    commands = (["search", "own", "small", "text"], ["latency", "--dataset", "small", "--systems", "own"])
    for words in commands:
        assert main(words) == 1
        told = "'own' cannot be searched: its model brings code of its own, which runs only with --trust-remote-code"
        assert told in capsys.readouterr().err
        assert not ran.exists()
    for words in commands:
        assert main([*words, "--trust-remote-code"]) == 0
        assert ran.exists()
        ran.unlink()
    ran.touch()


def test_a_server_that_records_name_is_asked_only_where_a_person_says_so(served, tmp_path, monkeypatch, capsys):
    """The records may be somebody else's: they would get the query, and the key of the variable that they name."""
    endpoint = {"model": "served", "url": served.url, "key": "TESTED_KEY"}
    _finish(tmp_path / "theirs", {"theirs": {**DENSE, "endpoint": endpoint}}, {"theirs": {"retriever": "theirs"}})
    monkeypatch.chdir(tmp_path / "theirs")
    for words in (["search", "theirs", "small", "text"], ["latency", "--dataset", "small", "--queries", "2"]):
        served.asked.clear()
        capsys.readouterr()
        assert main(words) == 1
        told = "your query and the key in the environment variable TESTED_KEY would go to the server"
        assert f"{told} {served.url}: allow it by --ask-endpoint" in capsys.readouterr().err
        assert not served.asked
        assert main([*words, "--ask-endpoint"]) == 0
        assert served.asked


# Comparison with the run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        ("a 9, b 8, c 7.999, d 1", False),
        ("a 9.001, b 8, c 7.999, d 1", False),  # rounding
        ("a 9, c 8.002, b 7.999, d 1", False),  # near ties swap
        ("a 9, b 8, d 7.999, c 1", True),
        ("b 9, a 8, c 7.999, d 1", True),
        ("b 8, c 7.999, d 1", True),
        ("e 9.5, a 9, b 8, c 7.999, d 1", True),
        ("a 8, b 7, c 6.999, d 0", True),
        ("", True),
    ],
)
def test_rounding_is_no_difference(now, differs):
    def ranking(text: str) -> runs.Ranking:
        pairs = [pair.split() for pair in text.split(", ") if pair]
        return runs.Ranking([name for name, _ in pairs], np.array([score for _, score in pairs], np.float32))

    assert open_systems.differ(ranking("a 9, b 8, c 7.999, d 1"), ranking(now)) == differs


@pytest.mark.parametrize(("precision", "refused"), [("float16", False), ("float32", True)])
def test_another_precision_may_rank_half_of_the_documents_otherwise(site, capsys, precision, refused):
    """A run of a GPU, opened on a CPU: here, its best two documents have changed places."""
    record = json.loads(_record("tiny").read_text())
    run = _record("tiny").with_suffix(".run.gz")
    changed = {
        query: runs.Ranking([second, first, *others], ranking.scores)
        for query, ranking in runs.read(run).items()
        for first, second, *others in [ranking.ids]
    }
    runs.write(run, changed, "tiny")
    record["facts"]["precision"] = precision
    record["outputs"][run.name] = {"bytes": run.stat().st_size, "sha256": files.sha256(run)}
    _record("tiny").write_text(json.dumps(record))
    assert main(["search", "tiny", "small", "text"]) == int(refused)
    assert ("its run results/runs/tiny/small.run.gz" in capsys.readouterr().err) == refused


# Cost of a query -----------------------------------------------------------------------------------------------------


def _slow(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, seconds: float) -> None:
    """Delay a function."""
    function = getattr(owner, name)

    def slowed(*words: Any, **options: Any) -> Any:
        time.sleep(seconds)
        return function(*words, **options)

    monkeypatch.setattr(owner, name, slowed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "start", "work", "seconds"),
    [
        ("results/runs/bm25/small.json", (lucene.Searcher, "__init__"), (lucene.Searcher, "search"), 0.05),
        ("results/runs/tiny/small.json", (retrieve, "open_encoder"), (DenseEncoder, "encode_queries"), 0.5),
        ("results/pairs/ce/small/tiny.json", (score, "open_model"), (CrossEncoderScorer, "score"), 0.5),
    ],
)
def test_the_cost_of_a_query_has_its_encoding_and_no_start(site, monkeypatch, path, start, work, seconds):
    """Java, or a model, takes 3 s longer to start, and all queries half a second longer to encode, search or score."""
    for store in Path("results/pairs/ce/small").glob("*/"):
        shutil.rmtree(store)
    _slow(monkeypatch, *start, 3)
    _slow(monkeypatch, *work, seconds)
    assert run_job(json.loads(Path(path).read_text())["job"]) == 0
    facts = json.loads(Path(path).read_text())["facts"]
    taken = facts["pairs"] / facts["pairs_per_second"] if "pairs" in facts else facts["query_seconds"]
    assert 0.5 <= taken < 3


# Latency -------------------------------------------------------------------------------------------------------------


def test_latency_measures_what_it_can_and_names_the_rest(plant, capsys):
    plant("tiny", retrieve_vectors="planted")
    assert main(["latency", "--dataset", "small", "--queries", "3", "--warm-up", "1"]) == 0
    shown = capsys.readouterr()
    left_out = {
        "tiny": "'tiny' cannot be searched: its stage planted has no opener",
        "fused": "results/runs/tiny/small.run.gz is another one than results/runs/fused/small.json was made from",
        "own": "'own' cannot be searched: its model brings code of its own",
    }
    for name, why in left_out.items():
        assert f"{name} is not measured: {why}" in shown.out
    [heads, _, row, feedback, approximate, *_] = shown.out.splitlines()
    assert row.split()[:3] == ["bm25", "retrieve", "1000"]
    assert feedback.split()[:3] == ["bm25-rm3", "retrieve", "1000"]
    table = pd.read_csv("results/grids/grid/tables/latency.csv")
    assert table["system"].tolist() == ["bm25", "bm25-rm3", "int8"]
    assert f"{table['p50_ms'][0]:.1f}" == row.split()[3]
    assert heads.split()[-1] == "recall_of_exact"
    assert np.isnan(table["recall_of_exact"][0])
    assert f"{table['recall_of_exact'][2]:.3f}" == approximate.split()[-1]
    assert table["recall_of_exact"][2] > 0.5
