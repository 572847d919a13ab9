"""Published values, verdicts and tables."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import finished
import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import ROOT, tracked_configuration
from pages import answers_of

from beirgrid.config.entries import TOLERANCES
from beirgrid.config.load import merged
from beirgrid.config.names import local_name
from beirgrid.config.registry import mteb
from beirgrid.core.errors import ConfigError
from beirgrid.measures import MEASURES, parse_metric
from beirgrid.page import sections
from beirgrid.results import cells, published, table_files
from beirgrid.results.answer_files import read_answers, write_answers
from beirgrid.results.answers import typed
from beirgrid.results.summary import DatasetSummary, GridSummary, ModelFacts, ModelNote
from beirgrid.stages.aggregate import work as aggregate
from beirgrid.stages.report import work as report
from beirgrid.tools import export

# Files of published values, and those whose datasets are named as mteb's tasks.
FILES = sorted((ROOT / "config/published").glob("*.csv"))
OF_TASKS = ["mteb_tasks", "mteb_miracl", "mteb_recall", "bge_m3", "pyserini_bright_miracl", "rerankers"]


def test_verdicts_are_two_sided():
    graded = {"reproduced": (0.5, 0.51, 0.49), "close": (0.5101, 0.48), "deviates": (0.5201, 0.4)}
    for verdict, values in graded.items():
        assert {published.grade(value, 0.5, 0.01) for value in values} == {verdict}


@cache
def _tracked(*names: str) -> list[published.Published]:
    """Return the published values that the checkout has, or those of files."""
    tolerances = tracked_configuration()["tolerances"]
    return list(published.read([path for path in FILES if not names or path.stem in names], tolerances))


def test_the_tracked_values_can_be_read_have_sources_and_lie_in_small_files():
    values = _tracked()
    assert len(values) > 1000
    assert all(0 <= value.value <= 1 and value.source for value in values)
    # mteb states 1 for its means over several tasks, which have no commit.
    assert all(re.fullmatch("([0-9a-f]{7,40})?", value.dataset_revision) for value in values)
    cells = [(v.system, v.dataset, v.metric, v.source) for v in values]
    assert len(set(cells)) == len(cells)
    assert max(path.stat().st_size for path in FILES) < 1_000_000


def test_each_published_value_is_of_a_known_system_and_a_registered_dataset():
    """A value of a misspelt or unknown system would stand in the file and be compared with nothing.

    A model that is not registered has its name on the hub.
    """
    registered, values = tracked_configuration(), _tracked()
    on_the_hub = {value.system for value in values if "/" in value.system}
    assert len(on_the_hub) > 200
    assert {value.system for value in values} - on_the_hub <= set(registered["systems"])
    checkpoints = {entry.get("checkpoint") for entry in registered["models"].values()}
    assert not on_the_hub & checkpoints, "a registered model has the name of its system"
    # tests/unit/test_collection_names.py compares the names in these files with mteb's tasks.
    named = {value.dataset for value in _tracked(*OF_TASKS)}
    assert {value.dataset for value in values} - named <= set(registered["datasets"])
    assert {parse_metric(value.metric).measure.name for value in values} <= MEASURES.keys()


def test_values_of_another_protocol_are_marked():
    """What is known to differ: runs on ArguAna that kept the query's own document, BGE's prefix in the Lucene form and
    in mteb, and what mteb read of long texts.
    """
    names = ("beir_paper", "pyserini_2cr", "mteb", "mteb_tasks", "mteb_miracl", "mteb_recall")
    other = {(v.system, v.dataset, v.metric, v.value) for v in _tracked(*names) if v.protocol}
    kept = {("bm25", 0.315), ("doct5query", 0.349), ("bm25+ce", 0.311), ("deepct", 0.309)}
    bge, qwen = ({row for row in other if row[0] == name} for name in ("bge-base-en-v1.5", "qwen3-embedding"))
    assert {row[1] for row in qwen} == {"arguana", "scidocs", "trec-covid", "webis-touche2020"}
    measured = {v.checkpoint for v in _tracked("mteb") if v.protocol and v.metric == "ndcg@10"}
    assert measured >= {"BAAI/bge-base-en-v1.5", "Qwen/Qwen3-Embedding-0.6B"}  # judged of models with these names
    assert other - bge - qwen == {(system, "arguana", "ndcg@10", value) for system, value in kept}
    assert {(dataset, value) for _, dataset, metric, value in bge if metric == "ndcg@10"} == {
        ("arguana", 0.6375),
        ("arguana", 0.63752),
        ("quora", 0.8876),
    }


def test_rerankers_of_another_first_stage_are_marked():
    """Of a card's own BM25, and of candidates to which sentence-transformers adds the relevant documents."""
    values = _tracked("rerankers")
    assert {value.protocol for value in values if value.dataset.startswith("Nano")} == {
        "sentence-transformers adds the relevant documents that BM25's first 100 lack"
    }
    cards = {value.protocol for value in values if value.source.startswith("juanluisdb")}
    assert cards == {"the author's own BM25, whose nDCG@10 is up to 0.014 below Lucene's"}
    judged = {value.system.split("+")[0] for value in values if not value.protocol}
    assert judged == {"bm25-flat", "splade-pp-ed", "BAAI/bge-large-en-v1.5"}
    assert all(value.system.endswith("@100") for value in values if not value.protocol)


def test_values_that_are_judged_agree_with_each_other():
    """Two sources of one cell that differ by more than they are held to follow different protocols."""
    tolerances = tracked_configuration()["tolerances"]
    of_cell = defaultdict(list)
    for value in _tracked():
        if not value.protocol:
            of_cell[value[:3]].append(value)
    shared = [values for values in of_cell.values() if len(values) > 1]
    assert len(shared) > 100
    for first, *others in shared:
        for other in others:
            tolerance = max(tolerances[value.tolerance_class] for value in (first, other))
            disputed = "disputed" in (first.tolerance_class, other.tolerance_class)
            assert not disputed or first[:2] == ("bge-base-en-v1.5", "scifact")
            most = 0.0041 if disputed else tolerances["commit"]
            assert abs(first.value - other.value) <= min(tolerance, most), (first, other)


def test_values_say_how_they_were_made_where_that_moves_them():
    """This loader of mteb searches with PLAID, an approximate index. XLM-R models had wrong positions for weeks."""
    loaders = {str(meta.name): getattr(meta.loader, "__name__", "") for meta in mteb().get_model_metas()}
    measured = [value for value in _tracked() if value.mteb]
    late = [value for value in measured if loaders.get(value.checkpoint or value.system) == "MultiVectorModel"]
    assert {value.tolerance_class for value in late} == {"plaid"}
    assert {value.note.partition(",")[0] for value in late} == {"searched with PLAID"}
    named = "LateOn", "LateOn-unsupervised", "mLateOn", "ColBERT-Zero", "GTE-ModernColBERT-v1"
    beir = [value for value in _tracked("mteb") if value.metric == "ndcg@10" and value.tolerance_class == "plaid"]
    assert sum(value.system in {f"lightonai/{name}" for name in named} for value in beir) == 75
    flash = [value for value in measured if value.tolerance_class == "flash"]
    assert {(value.system, value.mteb) for value in flash} == {
        ("BAAI/bge-m3", "2.18.6"),
        ("intfloat/multilingual-e5-large", "2.18.6"),
    }
    assert all("flash attention" in value.note for value in flash)
    others = {value.tolerance_class for value in _tracked() if value not in {*late, *flash}}
    assert others.isdisjoint({"plaid", "flash"})


def test_values_that_were_copied_from_model_cards_are_marked():
    """mteb's results keep them in folders without a commit; a commit is a value that somebody measured."""
    values = [value for value in _tracked() if value.source.startswith("embeddings-benchmark/results")]
    cards = [value for value in values if value.tolerance_class == "card"]
    assert len(cards) > 1000
    assert all(value.note == "copied from the model card" and not value.revision for value in cards)
    # Models of vendors, and mteb's own BM25, have no commits.
    without = {value.system for value in values if value.tolerance_class != "card" and not value.revision}
    assert {name.partition("/")[0].lower() for name in without} == {
        *("bytedance-seed", "cohere", "google", "mteb", "octen", "openai", "voyageai")
    }


def _value(value: float, **keys: Any) -> published.Published:
    """Return a published value of nDCG@10: of a on x and in a paper, unless keys say otherwise."""
    return published.Published("a", "x", "ndcg@10", value, "paper", "one", "")._replace(**keys)


MINILM = {"sentence-transformers/all-MiniLM-L6-v2": "8b3219a92973c328a8e22fadcfa821b5dc75636a"}


@pytest.mark.parametrize(
    ("measured", "checkpoints", "same"),
    [
        ({}, MINILM, None),
        ({"revision": "8b3219a92973"}, MINILM, True),
        ({"revision": "8b3219a92973c328a8e22fadcfa821b5dc75636a"}, MINILM, True),
        ({"revision": "1110a243fdf4"}, MINILM, False),
        ({"revision": "8b3219a92973"}, {}, None),
        ({"revision": "8b3219a92973"}, dict.fromkeys(MINILM, ""), None),
        ({"revision": "1"}, MINILM, None),
        ({"checkpoint": "sentence-transformers/all-MiniLM-L6-v2"}, MINILM, None),
        ({"checkpoint": "sentence-transformers/all-MiniLM-L6-v2", "revision": "1110a243fdf4"}, MINILM, False),
        ({"checkpoint": "nreimers/MiniLM-L6-H384-uncased"}, MINILM, False),
    ],
)
def test_a_commit_is_compared_as_far_as_both_sides_name_one(measured, checkpoints, same):
    assert published.same_commit(_value(0.5, **measured), checkpoints) is same


def test_the_papers_holes_are_those_of_the_corpus():
    """Its nine rates are at most 659 of 500 pairs together, and 980 judgements filled the holes of queries."""
    table = [value for value in _tracked() if value.source == "BEIR paper, Table 4"]
    assert {value.metric for value in table} == {"hole_corpus@10"}
    assert sum(value.value for value in table) * 500 == pytest.approx(659)


HEADER = ",".join(published.COLUMNS)


def _read(folder: Path, text: str) -> list[published.Published]:
    """Write published values to p.csv and read them."""
    (folder / "p.csv").write_text(text, errors="surrogateescape")
    return list(published.read([folder / "p.csv"], {"paper": 0.02}))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("s,d,ndcg@10,high,paper,x,,", r"p.csv:2: the value 'high' is not a number"),
        ("s,d,ndcg@10,nan,paper,x,,", r"p.csv:2: the value 'nan' is not a number"),
        (
            "s,d,ndcg@10,0.1,paper,x,,\ns,d,ndcg@10,0.2,paper,x,again,",
            r"p.csv:3: line 2 has a value from the same source",
        ),
        ("s" * 200_000 + ",d,ndcg@10,0.1,paper,x,,", r"p.csv is not a CSV file \(field larger than field limit"),
        ("s,d,ndcg@10,0.1,paper,caf\udce9,,", r"p.csv is not a CSV file \('utf-8' codec can't decode byte 0xe9"),
        ("s,d,ndcg@10,0.1,papper,x,,", r"p.csv:2: no tolerance class 'papper'; did you mean 'paper'"),
        ("s,d,ndcg@10,0.1,paper,x,,kept its document, it seems", r"p.csv:2: the line must have 8 values"),
        ("s,d,ndcg@10,0.1,paper,x,", r"p.csv:2: the line must have 8 values"),
        ('s,d,ndcg@10,0.1,paper,x,,"open\nt,d,ndcg@10,0.1,paper,x,,', r"p.csv is not a CSV file \(unexpected end of"),
        ('s,d,ndcg@10,0.1,paper,x,"open,\nt,d,ndcg@10,0.1,paper,x,shut",', r"p.csv:3: a line break within a value"),
    ],
)
def test_broken_published_files_are_named(tmp_path, line, message):
    limit = csv.field_size_limit(131_072)  # Python's own, which a library that another test imports may have raised
    try:
        with pytest.raises(ConfigError, match=message):
            _read(tmp_path, f"system,dataset,metric,value,class,source,note,protocol\n{line}\n")
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize("half", [",bm25,", ",,100", ",bm25,100"])
def test_a_reranked_system_is_named_whole(tmp_path, half):
    with pytest.raises(ConfigError, match=r"p\.csv:2: first_stage, checkpoint and depth go together"):
        _read(tmp_path, f"{HEADER},checkpoint,first_stage,depth\ns,d,ndcg@10,0.1,paper,x,,,{half}\n")


def test_files_may_say_what_was_measured(tmp_path):
    """After a byte order mark, which is no column."""
    (value,) = _read(tmp_path, f"\ufeff{HEADER},checkpoint,mteb\ns,d,ndcg@10,0.1,paper,x,,,org/model,2.6.7\n")
    assert (value.system, value.checkpoint, value.revision, value.mteb) == ("s", "org/model", "", "2.6.7")
    with pytest.raises(ConfigError, match=r"p\.csv: the columns must be .*, followed by any of checkpoint"):
        _read(tmp_path, f"{HEADER},mteb,checkpoint\n")


@pytest.mark.parametrize(
    ("tolerances", "shown", "message"),
    [
        ({"own": 0.1}, ["mteb"], None),
        ({"mine": 0.1}, [], r"^tolerances\.mine: no published value has this class$"),
        ({"lucne": 0.1}, [], r"^tolerances\.lucne: no .* class; did you mean 'lucene'"),
        ({}, ["mtebb"], r"grid\.show\.published: .*published/mtebb\.csv; did you mean 'mteb'"),
    ],
)
def test_unknown_classes_and_files_are_refused(tolerances, shown, message):
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        published.check(FILES, {**dict.fromkeys(TOLERANCES, 0.1), **tolerances}, shown)


def _scores() -> pd.DataFrame:
    """Return the scores of a (in float32) and b (on y in bfloat16)."""
    rows = [("a", "x", "ndcg@10", 0.5, 10, "float32"), ("a", "y", "ndcg@10", 0.7, 20, "float32")]
    rows += [("b", "x", "ndcg@10", 0.6, 10, "float32"), ("b", "y", "ndcg@10", 0.1, 20, "bfloat16")]
    columns = ["system", "dataset", "metric", "value", "queries", "precision"]
    return typed("scores", pd.DataFrame(rows, columns=columns).assign(status="done"))


def _grid(systems: Iterable[str], **datasets: dict[str, Any]) -> GridSummary:
    described = {name: DatasetSummary(**keys) for name, keys in datasets.items()}
    return GridSummary(systems=tuple(systems), rows=tuple(datasets), datasets=described, metrics=("ndcg@10",))


GRID = _grid("ab", x={}, y={})


def _judged(*values: published.Published, scores: pd.DataFrame | None = None, **known: Any) -> pd.DataFrame:
    """Return the verdicts on the scores of a and b, or on others, by system and dataset."""
    verdicts = aggregate.judge(_scores() if scores is None else scores, values, {"paper": 0.02}, **known)
    return verdicts.set_index(["system", "dataset"])


def test_each_published_value_has_its_verdict():
    verdicts = _judged(_value(0.5), _value(0.9, source="two"))["verdict"]
    assert list(verdicts) == ["reproduced", "deviates", "no reference", "no reference", "no reference"]


def test_a_value_of_another_protocol_is_shown_with_its_reason_and_not_judged():
    """A run that keeps the query's own document would be reproduced, and a correct one would deviate."""
    reason, values = "keeps the query's own document", {"a": 0.4, "b": 0.6}
    verdicts = _judged(*(_value(value, system=system, protocol=reason) for system, value in values.items()))
    for system, value in values.items():
        row = verdicts.loc[system, "x"]
        assert (row["verdict"], row["published"], row["protocol"]) == ("other protocol", value, reason)
        assert pd.isna(row["tolerance"])
    assert verdicts.loc[("a", "x"), "difference"] == pytest.approx(0.1)


def test_a_system_by_its_name_on_the_hub_has_the_values_of_its_checkpoint():
    """Also those whose protocol the registered entry does not follow: by its name it runs as mteb runs it."""
    value = _value(0.5, system="registered", checkpoint="org/a")
    other = value._replace(dataset="y", protocol="this entry reads 512")
    on_the_hub = _scores().replace({"system": {"a": local_name("org/a")}})
    verdicts = _judged(value, other, scores=on_the_hub)
    assert verdicts.loc["org__a", "verdict"].to_dict() == {"x": "reproduced", "y": "deviates"}
    assert set(verdicts["protocol"]) == {""}
    registered = _scores().replace({"system": {"a": "registered"}})
    assert "other protocol" in list(_judged(value, other, scores=registered)["verdict"])


# A reranker that has no entry, and systems of the registry and of a user.
ENTRIES = """
models:
  mine: {family: cross-encoder, checkpoint: cross-encoder/ms-marco-MiniLM-L6-v2, revision: resolve}
  m3: {family: dense, checkpoint: BAAI/bge-m3, revision: resolve, similarity: cosine, pooling: cls}
systems:
  words: {retriever: bm25}
  bm25: {retriever: bm25, fields: flat}
  e5: {retriever: bge-base-en-v1.5}
  vectors: {retriever: e5}
  few: {retriever: e5, dimensions: 64}
  other: {first_stage: words, reranker: mine, depth: 100}
  flat: {first_stage: bm25, reranker: mine}
  shallow: {first_stage: words, reranker: mine, depth: 50}
  of-dense: {first_stage: vectors, reranker: mine, depth: 100}
  m3-sparse: {retriever: m3, head: sparse}
  m3-all: {fusion: rrf, of: [m3-sparse, words]}
  theirs: {run: "runs/{dataset}.run"}
  bm25+e5: {of: [few, words]}
"""
CROSS = "cross-encoder__ms-marco-MiniLM-L6-v2@100"


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("words", ["bm25"]),
        ("bm25", ["bm25-flat"]),
        ("e5", ["bge-base-en-v1.5", "BAAI__bge-base-en-v1.5"]),
        ("vectors", ["e5", "intfloat__e5-base-v2"]),
        ("few", []),
        ("other", [f"bm25+{CROSS}"]),
        ("flat", [f"bm25-flat+{CROSS}"]),
        ("bm25+ce@10", [f"bm25-flat+{CROSS.replace('100', '10')}"]),
        ("shallow", [f"bm25+{CROSS.replace('100', '50')}"]),
        ("of-dense", [f"e5+{CROSS}", f"intfloat__e5-base-v2+{CROSS}"]),
        ("m3-sparse", ["BAAI__bge-m3@sparse"]),
        ("m3-all", ["m3-all"]),
        ("theirs", ["theirs"]),
        ("bm25+e5", []),
        ("colbert", ["colbert", "colbert-ir__colbertv2.0"]),
        ("colbertv2", ["colbertv2", "colbert-ir__colbertv2.0"]),
    ],
)
def test_a_system_is_known_by_what_it_is_and_not_by_its_name(system, names):
    """First stage, model and depth; the entry bm25 was replaced, so that bm25+ce@10 reranks other documents."""
    config = merged(more=yaml.safe_load(ENTRIES))
    assert sorted(published.names_of(config, system)) == sorted(names)


def test_a_reranked_system_has_the_values_of_its_first_stage_model_and_depth():
    """Those of the BEIR paper's cross-encoder under any name, and none under its name alone."""
    config = merged(more=yaml.safe_load(ENTRIES))
    names = {name: published.names_of(config, name) for name in ("other", "shallow", "flat", "bm25+ce")}
    scores = pd.concat([_scores().head(1).assign(system=name, dataset="scifact", value=0.688) for name in names])
    found = _judged(*_tracked("beir_paper"), scores=scores, names=names).droplevel("dataset")
    assert found["published"].dropna().to_dict() == {"other": 0.688}
    assert found["verdict"].to_dict() == {name: "reproduced" if name == "other" else "no reference" for name in names}


@pytest.mark.parametrize(
    ("grid", "cells", "judged", "reranked"),
    [("today", 345, 323, 37), ("modern", 137, 133, 14), ("paper", 190, 189, 19)],
)
def test_the_cells_of_a_ready_made_grid_meet_their_values(monkeypatch, grid, cells, judged, reranked):
    """By nDCG@10: those with a value, of these those with one that follows the protocol, and those of rerankers."""
    monkeypatch.chdir(ROOT)
    config = merged([ROOT / f"config/grids/{grid}.yaml"])
    names = {system: published.names_of(config, system) for system in config.grid.systems}
    found = [
        (system, value)
        for system, value in published.of_systems(_tracked(), names)
        if value.metric == "ndcg@10" and value.dataset in config.grid.datasets and not value.recorded
    ]
    assert len({(system, value.dataset) for system, value in found}) == cells
    assert len({(system, value.dataset) for system, value in found if not value.protocol}) == judged
    assert len({(system, value.dataset) for system, value in found if value.first_stage}) == reranked


def test_each_value_of_a_reranker_names_first_stage_model_and_depth():
    values = [value for value in _tracked() if value.first_stage]
    named = {value.system for value in values}
    assert named == {value.system for value in _tracked("rerankers")} | {"bm25+ce"}
    written = {f"{value.first_stage}+{value.checkpoint}@{value.depth}" for value in values if value.system != "bm25+ce"}
    assert written == named - {"bm25+ce"}
    (paper,) = {(*value[-2:], value.checkpoint) for value in values if value.system == "bm25+ce"}
    entry = merged().systems["bm25+ce"]
    assert paper == (entry.first_stage, str(entry.depth), merged().models[entry.reranker].checkpoint)


@pytest.mark.parametrize(
    ("precision", "revision", "kind", "tolerance", "verdict"),
    [
        ("float32", "a" * 12, "checkpoint", 0.0015, "close"),
        ("float32", "a" * 12, "disputed", 0.005, "reproduced"),
        ("float32", "a" * 12, "plaid", 0.005, "reproduced"),
        ("float32", "a" * 12, "flash", 0.0125, "reproduced"),
        ("bfloat16", "a" * 12, "checkpoint", 0.005, "reproduced"),
        ("float32", "", "checkpoint", 0.005, "reproduced"),
        ("float32", "b" * 12, "checkpoint", 0.005, "reproduced"),
    ],
)
def test_a_value_of_our_commit_is_held_to_more_in_float32(precision, revision, kind, tolerance, verdict):
    scores = _scores().head(1).assign(checkpoints="org/model@" + "a" * 40, precision=precision)
    row = aggregate.judge(scores, [_value(0.503, tolerance_class=kind, revision=revision)], TOLERANCES).iloc[0]
    assert (row["verdict"], row["tolerance"]) == (verdict, tolerance)


@pytest.mark.parametrize(
    ("differences", "changes", "verdict"),
    [
        ([0.0012] * 6, {}, "deviates"),
        ([-0.0008] * 5, {}, "close"),
        ([0.0014, -0.0014] * 3, {}, "reproduced"),
        ([0.0012] * 4, {}, None),
        ([0.0012] * 6, {"precision": "bfloat16"}, None),
        ([0.0012] * 6, {"checkpoints": "org/model@" + "b" * 40}, None),
    ],
)
def test_an_error_that_moves_all_datasets_shows_in_their_mean(differences, changes, verdict):
    """Each score alone is reproduced. The parts of a dataset count in its mean alone."""
    rows = [*(f"d{number}" for number in range(len(differences))), "part"]
    scores = pd.DataFrame({"dataset": rows, "value": [*(0.5 + one for one in differences), 0.5]})
    facts = {"system": "a", "metric": "ndcg@10", "precision": "float32", "checkpoints": "org/model@" + "a" * 40}
    scores = typed("scores", scores.assign(**facts | changes, status="done"))
    values = [_value(0.5, dataset=row, tolerance_class="checkpoint", revision="a" * 12) for row in rows]
    found = aggregate.judge(scores, values, TOLERANCES, averaged=rows[:-1]).set_index("dataset")
    assert set(found.loc[rows, "verdict"]) == {"reproduced"}
    means = found.drop(rows)
    assert list(means["verdict"]) == ([verdict] if verdict else [])
    assert list(means.index) == ([f"mean of {len(differences)} datasets"] if verdict else [])
    assert list(means["difference"]) == pytest.approx([np.mean(differences)] if verdict else [])


def test_a_value_of_another_commit_is_no_plain_deviation(tmp_path):
    """Two commits are two models: far values say so, and near ones are still reproduced."""
    scores = _scores().assign(checkpoints="org/model@" + "a" * 40)
    far = _value(0.9, source="far", revision="b" * 12, mteb="2.6.7", dataset_revision="c" * 12)
    near, same = far._replace(source="near", value=0.51), far._replace(system="b", revision="a" * 12)
    verdicts = _judged(far, near, same, scores=scores).dropna(subset="published").reset_index()
    assert list(verdicts["verdict"]) == ["another commit", "reproduced", "deviates"]
    other = f"measured on another commit: {'b' * 12}"
    assert list(verdicts["commit"]) == [other, other, "measured on the same commit"]
    assert set(verdicts["mteb"]) == {"2.6.7"}
    write_answers(answers_of(scores=scores, verdicts=verdicts), tmp_path)
    page = " ".join(report.render(GRID, read_answers(tmp_path)).split())
    assert "1 not reproduced, but measured on another commit" in page
    assert re.search(rf"<td[^>]*>far</td>.*<td[^>]*>{other}</td>", page)


def test_published_systems_are_shown_beside_those_of_the_grid(tmp_path):
    """Neither in verdicts, nor in groups, nor with an interval. The grid's own system a is between two of them."""
    facts = {"show_published": ("mteb",), "models": {"a": ModelFacts(model="org/a", parameters=22.7)}}
    grid = GRID.model_copy(update=facts)
    better = _value(0.9, system="org/better", tolerance_class="checkpoint")
    card = {"tolerance_class": "card"}
    values = [
        better,
        _value(0.8, system="org/better", dataset="y", **card),
        _value(0.1, system="BAAI/bge-m3", **card),
        _value(0.2, system="BAAI/bge-m3", dataset="y", protocol="adds the relevant documents", **card),
        _value(0.99, system="org/partial", **card),
        _value(0.5, **card),
        _value(0.9, system="org/elsewhere", dataset="z", **card),
        better._replace(system="registered", checkpoint="b"),
        better._replace(value=0.3, source="another source"),
    ]
    shown = aggregate.collect_published(grid, values)
    assert set(shown["system"]) == {"org/better", "BAAI/bge-m3", "org/partial"}
    assert shown.loc[shown["system"] == "org/better", "value"].tolist() == [0.9, 0.8]
    answers = answers_of(scores=_scores(), published=shown)
    write_answers(answers, tmp_path)
    table = sections.systems(grid, read_answers(tmp_path))
    assert table.columns == ["system", "measured", "model", "parameters (M)", "rank", "mean", "other (2)"]
    assert [[*row[:2], *row[3:6]] for row in table.rows["ndcg@10"]] == [
        ["org/better", "published, not run here (card)", "", "1", "0.8500"],
        ["a", "", "22.7", "2", "0.6000"],
        ["b", "", "", "3", "0.3500"],
        ["BAAI/bge-m3", "published, not run here (card, other protocol)", "", "4", "0.1500"],
        ["org/partial", "published, not run here (card)", "", "", ""],
    ]
    assert report.render(grid, answers).count('<td class="text">published, not run here (card') == 3
    assert "published, not run here" not in report.render(GRID, answers_of(scores=_scores()))


def _wide(scores: pd.DataFrame, grid: GridSummary) -> dict[str, pd.DataFrame]:
    return table_files.wide(answers_of(scores=scores), grid, "ndcg@10")


def _written(folder: Path, scores: pd.DataFrame, grid: GridSummary = GRID, **tables: pd.DataFrame) -> tuple[str, str]:
    """Write the tables of a grid; return those of its metric in Markdown and in LaTeX."""
    table_files.write(answers_of(scores=scores, **tables), grid, folder)
    markdown, latex = ((folder / f"{grid.metrics[0]}.{suffix}").read_text() for suffix in ("md", "tex"))
    return markdown, latex


def test_a_mean_says_what_it_is_over():
    table = _wide(_scores(), _grid("ba", x={}, y={}))["value"]
    assert list(table.columns) == ["b", "a"]
    assert list(table.index) == ["x", "y", "mean of x, y"]
    assert table.loc["mean of x, y", "a"] == pytest.approx(0.6)
    assert list(_wide(_scores(), _grid("a", x={}))["value"].index) == ["x"]


def test_the_mean_counts_nothing_twice_and_leaves_ms_marco_out():
    over = {"corpus": "msmarco"}
    datasets = {"msmarco": over, "trec-dl-2019": over, "a": {}, "b": {}, "both": {"mean_of": ["a", "b"]}, "c": {}}
    grid = _grid("", **datasets)
    assert table_files.averaged_rows(grid) == ["both", "c"]
    assert table_files.mean_name(grid) == "mean of both, c (without msmarco, trec-dl-2019)"


def _partial_scores() -> pd.DataFrame:
    missing = [(system, dataset, "ndcg@10", "not supplied") for system in "ab" for dataset in "zm"]
    rows = pd.DataFrame(missing, columns=["system", "dataset", "metric", "status"])
    return pd.concat([_scores(), typed("scores", rows)], ignore_index=True)


def test_a_mean_without_what_is_not_supplied_says_so():
    absent = {"not_supplied": ("/data/z",)}
    table = _wide(_partial_scores(), _grid("ab", x={}, y={}, z=absent, m=absent))
    assert table["value"].loc["mean of x, y (without z, m)", "a"] == pytest.approx(0.6)
    assert table["text"].loc["z", "a"] == "not supplied"


def test_a_mean_that_lacks_a_cell_has_no_value_and_says_what_it_lacks(tmp_path):
    scores = _scores()
    unfinished = (scores["system"] == "b") & (scores["dataset"] == "y")
    scores.loc[unfinished, ["value", "status"]] = [float("nan"), "failed"]
    table = _wide(scores, GRID)
    assert table["text"].loc["mean of x, y"].to_dict() == {"a": "0.6000", "b": "incomplete"}
    assert pd.isna(table["value"].loc["mean of x, y", "b"])
    assert "| y | **0.7000** | failed |" in _written(tmp_path, scores)[0]
    assert pd.read_csv(tmp_path / "ndcg@10.csv").dtypes[["a", "b"]].tolist() == ["float64", "float64"]


def test_the_group_of_the_best_is_marked(tmp_path):
    best = pd.DataFrame({"dataset": [*"xxyy"], "system": [*"abab"], "best": [*"bbaa"], "metric": "ndcg@10"})
    pairs = pd.DataFrame({"dataset": [*"xy"], "p_tukey": [0.06, 0.05], "difference": [-0.1, 0.6], "metric": "ndcg@10"})
    pairs = pairs.assign(system="a", other="b")
    markdown, latex = _written(tmp_path, _scores(), significance=best, pairs=pairs)
    assert "| x | 0.5000† | **0.6000** |\n| y | **0.7000** | 0.1000 |" in markdown
    assert "†: open against the best of the row" in markdown
    assert r"x & 0.5000$^\dagger$ & \textbf{0.6000} \\" in latex
    table = pd.read_csv(tmp_path / "ndcg@10.csv", index_col=0, keep_default_na=False)
    assert table["open against the best"].to_dict() == {"x": "a, b", "y": "a", "mean of x, y": ""}


def test_tables_mark_what_systems_were_trained_on(tmp_path):
    """In the signs' order: the group of the best, training data, flaws."""
    scores = _scores().assign(detail=["a flaw", "", "", ""])
    training = {"trained_on": {"a": ("x",)}, "training_unknown": {"b": ("x", "y")}}
    markdown, latex = _written(tmp_path, scores, GRID.model_copy(update=training))
    assert "| x | 0.5000‡§ | **0.6000**? |\n| y | **0.7000** | 0.1000? |" in markdown
    assert r"x & 0.5000$^\ddagger$\S{} & \textbf{0.6000}? \\" in latex
    assert "?: it is not known whether the system was trained on the dataset, so zero-shot means leave" in markdown
    assert "leave the system out (b)." in markdown
    assert "‡: the system was trained on the dataset" in markdown


def _typesets(package: str) -> bool:
    """Whether TeX is here, with a package."""
    command = ["kpsewhich", f"{package}.sty"]
    return bool(shutil.which("pdflatex")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _typesets("booktabs"), reason="there is no TeX here with booktabs")
def test_tables_are_typeset(tmp_path):
    """With all characters that a name may have, within a float and with notes of several lines."""
    scores = _scores().replace({"system": {"a": "A_1.x+y@20-w"}, "dataset": {"y": "y_2.a+b@c-d"}})
    odd, plain = (
        scores.assign(detail=scores["system"].map({"b": detail}).fillna(""))
        for detail in (
            "50%_of ~/{my} #1 \\runs^$2.trec lacks <5 of 12",
            "1 of 10 queries has no documents and counts 0",
        )
    )
    grid = _grid(["A_1.x+y@20-w", "b"], **{"x": {}, "y_2.a+b@c-d": {}})
    seeded = grid.model_copy(update={"seeds": {"b": ("b.1", "b.2")}})
    row = {"system": "b", "dataset": "x", "metric": "ndcg@10", "deviation": 0.0012, "seeds": 2, "of": 2}
    assert r"\S{} $\pm$ 0.0012" in _written(tmp_path, odd, seeded, seeds=pd.DataFrame([row]))[1]
    (tmp_path / "paper.tex").write_text(export.latex(grid, answers_of(scores=plain), "ndcg@10"))
    inputs = r"\begin{table}\input{ndcg@10.tex}\end{table}\input{paper.tex}"
    text = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}\end{{document}}"
    (tmp_path / "all.tex").write_text(text)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout


def test_what_is_not_supplied_is_never_judged():
    verdicts = _judged(_value(0.0, dataset="z"), scores=_partial_scores())
    assert verdicts.loc[("a", "z"), "verdict"] == verdicts.loc[("b", "z"), "verdict"] == "not supplied"
    assert verdicts.loc[("a", "z"), "published"] == 0.0
    assert verdicts.loc[("a", "x"), "verdict"] == "no reference"


@pytest.mark.parametrize(("metric", "best"), [("ndcg@10", "**0.6000**"), ("hole@10", "**0.5000**")])
def test_the_best_of_a_row_is_one_that_is_there_and_of_holes_the_fewest(tmp_path, metric, best):
    grid = _grid("ab", x={}, z={}).model_copy(update={"metrics": (metric,)})
    text, _ = _written(tmp_path, _partial_scores().assign(metric=metric), grid)
    assert text.count("**") == 2
    assert f" {best} " in text
    assert "| z | not supplied | not supplied |" in text


def test_scores_say_in_which_precision_their_models_read():
    """That of encoding, searching and scoring, not that of training; the precisions of all parts of a mean."""

    def state(*read: dict[str, str]) -> cells.CellState:
        of_records = [("train", {"precision": "float16"}), *(("encode", facts) for facts in read)]
        steps = {str(n): finished.record("", kind=kind, facts=facts) for n, (kind, facts) in enumerate(of_records)}
        return cells.CellState("done", "", pd.DataFrame({"ndcg@10": [0.5]}), steps)

    float32, bfloat16 = {"precision": "float32"}, {"precision": "bfloat16"}
    of_x = {"bm25": state({"device": "cpu"}), "dense": state(float32), "hybrid": state(float32, bfloat16, {})}
    states = {(system, dataset): of for system, of in of_x.items() for dataset in "xy"}
    states["dense", "y"] = state(bfloat16)
    intervals = typed("scores", pd.DataFrame())[["system", "dataset", "metric", "low", "high"]]
    scores = aggregate.collect_scores(_grid(of_x, x={}, y={}, both={"mean_of": ("x", "y")}), states, intervals)
    assert scores.pivot(index="system", columns="dataset", values="precision").to_dict("index") == {
        "bm25": dict.fromkeys(("x", "y", "both"), ""),
        "dense": {"x": "float32", "y": "bfloat16", "both": "bfloat16, float32"},
        "hybrid": dict.fromkeys(("x", "y", "both"), "bfloat16, float32"),
    }


def test_checkpoints_of_a_cell_have_the_commit_that_was_fetched():
    """What the hub gave, or what the entry says of a package; nothing for a folder."""

    def fetched(settings: dict[str, Any], **facts: str) -> dict[str, Any]:
        return {"stage": "fetch", "kind": "fetch", "settings": settings, "facts": {"files": {}, **facts}}

    records = [
        fetched({"checkpoint": "o/hub", "revision": "resolve"}, commit="a1"),
        fetched({"entry": {"checkpoint": "o/package", "revision": "b2", "package": "p"}}),
        fetched({"checkpoint": "o/folder", "revision": "c3", "path": "/models/x"}),
        fetched({"source": "local"}),
        {
            "stage": "encode",
            "kind": "encode",
            "settings": {"family": "dense", "engine": "mteb", "checkpoint": "o/own"},
            "facts": {},
        },
    ]
    assert cells.checkpoints(records) == {"o/hub": "a1", "o/package": "b2", "o/folder": ""}


def test_tables_name_what_was_not_computed_in_float32(tmp_path):
    assert table_files.precision_note(_scores(), _grid("ab", x={})) == ""
    assert table_files.precision_note(_scores(), _grid("ab", y={})) == "Computed in bfloat16: b."
    markdown, latex = _written(tmp_path, _scores())
    assert markdown.endswith(" Computed in bfloat16: b (y).\n")
    assert "Computed in bfloat16: b (y).\\par}\n" in latex


def test_the_report_tells_reasons_precisions_and_notes(tmp_path):
    """Of the cells a, x (another protocol) and b, y (bfloat16), and of a model behind both systems."""
    kept = _value(0.4, source="Table 2", protocol="The run kept the query's own document.")
    answers = answers_of(scores=_scores(), verdicts=_judged(kept).reset_index())
    notes = (ModelNote(model="writer", systems=("a", "b"), note="Writes other queries."),)
    write_answers(answers, tmp_path)
    page = report.render(GRID.model_copy(update={"notes": notes}), read_answers(tmp_path))
    page = " ".join(page.replace("&#39;", "'").split())
    assert "0 deviate, 1 not judged, because they follow another protocol" in page
    assert re.search(r"<td[^>]*>Table 2</td><td[^>]*>The run kept the query's own document\.</td>", page)
    assert '<td class="text">other protocol</td>' in page
    assert not re.search('data-marks="[^"]*[✓≈✗]', page)  # no cell is judged
    assert "Computed in bfloat16: b (y)." in page
    assert "<strong>writer</strong> (behind a, b): Writes other queries." in page
