"""Slices: named groups of queries of a dataset, which are shown beside it."""

from __future__ import annotations

import contextlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import finished
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import yaml
from helpers import ROOT, hub, main, snakemake, write_collection
from model_hub import serve

from beirgrid.analysis import significance
from beirgrid.collections import overlaps, slices
from beirgrid.config.load import merged
from beirgrid.core import paths
from beirgrid.core.errors import DataError
from beirgrid.graph import artifacts
from beirgrid.graph.dag import jobs_behind
from beirgrid.graph.grid import Grid
from beirgrid.graph.rules import Rules
from beirgrid.page.answer import answer
from beirgrid.results import comparisons, summary, table_files
from beirgrid.results.answers import Answers
from beirgrid.results.cells import find
from beirgrid.results.summary import DatasetSummary, GridSummary
from beirgrid.stages.aggregate import work as aggregate

WORDS = {query: " ".join(["word"] * (number + 1)) for number, query in enumerate(finished.QUERIES)}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two datasets with two systems. Query qN of ``x`` has N + 1 words."""
    folder = tmp_path_factory.mktemp("slices") / "work"
    with finished.at(folder):
        for name in ("x", "y"):
            finished.collection(Path(), name, words=WORDS)
            finished.searched("base", name, finished.rankings(1), "float32")
            finished.searched("s", name, finished.rankings(2, 5), "float32")
    return folder


@pytest.fixture
def here(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, as the working directory."""
    monkeypatch.chdir(work)
    return work


def _slice(name: str, **entry: Any) -> str:
    """Choose the queries of a slice of ``x``, as its job does; return the path of the record."""
    record = paths.SLICE.format(dataset="x", slice=name)
    corpus = json.dumps({"source": "local", "path": "data/x"})
    column = ["--dataset", json.dumps({"corpus": "x"}), "--corpus-entry", corpus] if "column" in entry else []
    given = ["--name", f"datasets.x.slices.{name}", "--entry", json.dumps(entry)]
    finished.command(
        "fetch", "slice", *given, "--queries", paths.QUERIES.format(dataset="x"), *column, "--record", record
    )
    return record


def _kept(record: str) -> list[str]:
    kept: list[str] = json.loads(Path(record).read_text())["kept"]
    return kept


def _grid(**slices: str) -> GridSummary:
    """Summarise the grid, with slices of ``x``, by their records."""
    cells = [finished.cell(system, dataset) for dataset in "xy" for system in ("base", "s")]
    more = {f"x:{name}": DatasetSummary(corpus="x", slice_of="x", slice_record=of) for name, of in slices.items()}
    return finished.summary(cells, more, rows=("x", *more, "y"))


@pytest.fixture(scope="module")
def made(work: Path) -> dict[str, tuple[GridSummary, Answers]]:
    """The grid without and with a slice of five queries, and the tables of both."""
    with contextlib.chdir(work):
        grids = {"plain": _grid(), "sliced": _grid(short=_slice("short", most_words=5))}
        return {name: (grid, aggregate.compute(grid, find(grid), [])) for name, grid in grids.items()}


# Which queries


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        ({"least_words": 11}, ["q10", "q11"]),
        ({"most_words": 2}, ["q0", "q1"]),
        ({"least_words": 3, "most_words": 4}, ["q2", "q3"]),
        ({"least_words": 3, "invert": True}, ["q0", "q1"]),
        ({"path": "ids.txt"}, ["q3", "q7"]),
        ({"path": "ids.txt", "least_words": 5}, ["q7"]),
        ({"column": "kind", "value": "a"}, ["q1", "q2"]),
        ({"column": "kind", "value": 7}, ["q3"]),
        ({"column": "deep", "value": True}, ["q4"]),
    ],
)
def test_all_keys_of_a_slice_choose_its_queries(here, entry, kept):
    Path("ids.txt").write_text("q7\n\nq3\r\n")
    rows = [{"_id": query, "text": text} for query, text in WORDS.items()]
    rows[1]["kind"] = rows[2]["kind"] = "a"
    rows[3] |= {"kind": 7}
    rows[4] |= {"metadata": {"deep": True}}
    Path("data/x/queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert _kept(_slice("any", **entry)) == kept


LANGUAGES = {
    "q0": "Wie hoch ist der Eiffelturm in Paris?",
    "q1": "How tall is the Eiffel tower in Paris?",
    "q2": "Quelle est la hauteur de la tour Eiffel ?",
    "q3": "12345",
    "q4": "Hauptstadt von Frankreich",
}


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        ({"language": "de"}, ["q0", "q4"]),
        ({"language": "de", "least_words": 4}, ["q0"]),
        ({"language": "en", "invert": True}, ["q0", "q2", "q3", "q4"]),  # an unsure text is in no language
    ],
)
def test_a_slice_by_language(tmp_path, monkeypatch, entry, kept):
    """The record says how many texts are in none, and which py3langid read them."""
    monkeypatch.chdir(tmp_path)
    finished.collection(Path(), "x", words=LANGUAGES)
    record = json.loads(Path(_slice("any", **entry)).read_text())
    assert record["kept"] == kept
    assert record["facts"] == {"queries": len(kept), "of": 5, "unsure": 1}
    assert record["packages"]["py3langid"] == version("py3langid")


def test_a_language_needs_its_extra(here, capsys, monkeypatch):
    words = ["fetch", "slice", "--name", "datasets.x.slices.a", "--entry", '{"language": "de"}', *OTHERS]
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    assert main(words) == 1
    assert "datasets.x.slices.a.language: " in (said := capsys.readouterr().err)
    assert "pip install 'beirgrid[language]'" in said


@pytest.mark.parametrize(
    ("entry", "lines", "message"),
    [
        ({"path": "ids.txt"}, "q1\nq99\n", "ids.txt:2: the dataset has no judged query 'q99'"),
        ({"path": "ids.txt"}, "\n", "ids.txt (datasets.x.slices.bad): 0 of 12 queries: a slice has some"),
        ({"path": "ids.txt"}, "\n".join(WORDS), "ids.txt (datasets.x.slices.bad): 12 of 12 queries: a slice has"),
        (
            {"least_words": 13},
            "",
            "queries.parquet (datasets.x.slices.bad): 0 of 12 queries: a slice has some, and not all. Change its keys",
        ),
        (
            {"most_words": 12},
            "",
            "queries.parquet (datasets.x.slices.bad): 12 of 12 queries: a slice has some, and not all",
        ),
        ({"language": "xx"}, "", "datasets.x.slices.bad.language: py3langid knows no language 'xx'"),
        ({"column": "sort", "value": 1}, "", "datasets.x.slices.bad.column: no query has a key 'sort' in the source"),
    ],
)
def test_a_slice_that_cannot_be_one_is_refused_with_its_place(here, capsys, entry, lines, message):
    Path("ids.txt").write_text(lines)
    assert main(["fetch", "slice", "--name", "datasets.x.slices.bad", "--entry", json.dumps(entry), *OTHERS]) == 1
    assert message in capsys.readouterr().err
    assert not Path("bad.json").exists()


OTHERS = [
    *("--queries", paths.QUERIES.format(dataset="x"), "--record", "bad.json"),
    *("--dataset", '{"corpus": "x"}', "--corpus-entry", '{"source": "local", "path": "data/x"}'),
]


# What a slice shows


@pytest.mark.parametrize("seed", range(3))
def test_means_of_a_slice_and_of_its_complement_give_the_whole(here, seed):
    """Weighted by their queries."""
    numbers = np.random.default_rng(seed)
    chosen = numbers.choice(finished.QUERIES, size=int(numbers.integers(1, 12)), replace=False)
    Path("ids.txt").write_text("\n".join(chosen))
    records = {"some": _slice("some", path="ids.txt"), "others": _slice("others", path="ids.txt", invert=True)}
    assert sorted(_kept(records["some"]) + _kept(records["others"])) == sorted(finished.QUERIES)
    grid = _grid(**records)
    intervals = pd.DataFrame(columns=["system", "dataset", "metric", "low", "high"])
    scores = aggregate.collect_scores(grid, find(grid), intervals).set_index(["system", "dataset"])
    for system in ("base", "s"):
        parts = scores.loc[[(system, "x:some"), (system, "x:others")]]
        assert np.average(parts["value"], weights=parts["queries"]) == pytest.approx(scores.loc[(system, "x"), "value"])


def test_a_slice_stands_beside_its_dataset_and_in_no_mean(here, made):
    _, plain = made["plain"]
    _, sliced = made["sliced"]
    for name in ("across", "zero_shot", "costs", "efficiency", "seeds"):
        pd.testing.assert_frame_equal(getattr(plain, name), getattr(sliced, name))
    for name in ("scores", "significance", "pairs", "verdicts", "per_query"):
        of_datasets = getattr(sliced, name).query("dataset != 'x:short'").reset_index(drop=True)
        pd.testing.assert_frame_equal(getattr(plain, name), of_datasets)
    values = pd.read_parquet(paths.PER_QUERY.format(system="s", dataset="x")).set_index("query")["ndcg@10"]
    row = sliced.scores.query("system == 's' and dataset == 'x:short'").iloc[0]
    assert (row["value"], row["queries"]) == (pytest.approx(values[[f"q{i}" for i in range(5)]].mean()), 5)
    assert row["low"] <= row["value"] <= row["high"]


def test_the_tables_of_a_grid_without_slices_say_nothing_of_them(made):
    grid, answers = made["plain"]
    assert "slice" not in " ".join(table_files.common_notes(grid, answers))
    assert "slice" not in grid.model_dump_json(exclude_defaults=True)


def test_a_slice_says_what_it_can_tell(here, made):
    """The stated difference has the stated power by the noncentral t distribution."""
    grid, answers = made["sliced"]
    [note] = [note for note in table_files.common_notes(grid, answers) if "x:short" in note]
    tables = [
        pd.read_parquet(paths.PER_QUERY.format(system=name, dataset="x")).set_index("query") for name in ("s", "base")
    ]
    differences = (tables[0] - tables[1])["ndcg@10"].loc[[f"q{i}" for i in range(5)]]
    least = float(note.split("difference of ")[1].split(" ")[0])
    critical = scipy.stats.t.ppf(0.975, 4)
    power = 1 - scipy.stats.nct.cdf(critical, 4, least / differences.std() * np.sqrt(5))
    assert power == pytest.approx(0.8, abs=0.001)
    said = [sentence for sentence in answer(grid, answers).more if "x:short" in sentence]
    assert len(said) == 1
    assert "x:short (5 queries)" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("queries", [10, 41, 130])
def test_tests_over_a_slice_find_equal_systems_different_in_three_to_seven_percent_of_cases(queries):
    """The slice has the harder of 300 queries, whose difficulty the systems share; 30 % of the scores are 0."""
    cases = 2000
    numbers = np.random.default_rng(55)
    scores = np.empty((queries, 2, cases))
    for case in range(cases):
        hard = numbers.random(300)
        kept = np.argsort(hard + numbers.normal(0, 0.3, 300))[:queries]
        values = np.clip(hard[:, None] + numbers.normal(0, 0.25, (300, 2)), 0, 1)
        scores[:, :, case] = (values * (numbers.random((300, 2)) > 0.3))[kept]
    p_t = comparisons.student(scores[:, 0] - scores[:, 1]).p()
    p_tukey = significance.tukey(scores, significance.generator(0, "x:s", "tukey"), permutations=500)
    for p in (p_t, p_tukey):
        assert 0.03 <= np.mean(p <= 0.05) <= 0.07


def test_planned_differences_are_those_of_datasets(made):
    grid, answers = made["sliced"]
    grid = grid.model_copy(update={"compare": ("s", "base")})
    assert set(comparisons.planned(grid, answers.pairs)["dataset"]) == {"x", "y"}
    assert comparisons.planned_tests(grid) == 2


@pytest.mark.parametrize(("content", "status"), [(None, "pending"), ("{", "failed")])
def test_a_slice_without_its_record_has_no_scores(here, content, status):
    record = _slice("lost", most_words=5)
    Path(record).unlink()
    if content:
        Path(record).write_text(content)
    cells = find(_grid(lost=record))
    assert {cells[system, "x:lost"].status for system in ("base", "s")} == {status}
    assert cells["base", "x"].status == "done"


def test_compare_shows_slices(here, made, tmp_path, capsys):
    grid, answers = made["sliced"]
    place = Path(paths.GRID_SUMMARY.format(grid="grid"))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(grid.model_dump_json(exclude_defaults=True))
    assert summary.read(place).slices == {"x:short": "x"}
    assert main(["compare", "base", "s", "--output", str(tmp_path / "c.csv")]) == 1
    row = pd.read_csv(tmp_path / "c.csv").query("dataset == 'x:short' and metric == 'ndcg@10'").iloc[0]
    pair = answers.pairs.query("dataset == 'x:short'").iloc[0]
    assert (row["difference"], row["queries"]) == (pytest.approx(-pair["difference"]), 5)
    assert "x:short" in capsys.readouterr().out
    assert main(["compare", "base", "s", "--datasets", "x:short"]) == 1
    place.unlink()


# In a grid


def test_a_slice_changes_no_other_job():
    """Nothing is encoded or searched again: digests of all other jobs stay."""
    slices = {"short": {"most_words": 8}}
    made = (merged(more={"grid": {"datasets": ["demo"]}, "datasets": {"demo": {"slices": of}}}) for of in ({}, slices))
    plain, sliced = (Rules(Grid(of), own_python=True) for of in made)
    assert sliced.digests.items() >= plain.digests.items()
    assert sliced.digests.keys() - plain.digests.keys() == {paths.SLICE.format(dataset="demo", slice="short")}


# Decontaminated: the queries that another dataset keeps


@pytest.mark.slow  # it imports mteb
def test_a_slice_by_a_decontaminated_set_is_fetched_at_the_commit_that_mteb_pins(tmp_path, monkeypatch):
    """From a hub on the loopback interface, whose set keeps two of three queries over a smaller corpus."""
    text = "claims are {} of documents".format
    whole = [{"_id": f"q{number}", "text": text(number)} for number in range(3)]
    documents = [{"_id": f"d{number}", "title": "", "text": f"text {number}"} for number in range(4)]
    folder = write_collection(
        tmp_path / "scifact", documents, whole, {"test": [(f"q{n}", f"d{n}", 1) for n in range(3)]}
    )
    layout: dict[str, dict[str, Any]] = {
        "corpus": {"corpus": [{**row, "_id": row["_id"]} for row in documents[1:]]},
        "queries": {"queries": whole[1:]},
        "default": {"test": [{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": 1} for n in (1, 2)]},
    }
    hub(tmp_path / "data", layout)
    own = {"path": str(folder), "source": "local", "documents": 4}
    sliced = {"queries": 3, "slices": {"decontaminated": {"dataset": "SciFactDecontaminated"}}}
    more: dict[str, Any] = {
        "corpora": {"scifact": own, "SciFactDecontaminated": {"documents": 3}},
        "datasets": {"scifact": sliced},
    }
    monkeypatch.chdir(tmp_path)
    with serve() as loopback:
        for name, value in loopback.environment(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        more["grid"] = {"systems": ["bm25-flat"], "datasets": ["scifact"]}
        (tmp_path / "grid.yaml").write_text(yaml.safe_dump(more))
        grid = Grid(merged(more=more))
        pinned = grid.config.corpora["SciFactDecontaminated"]
        assert (pinned.id, pinned.revision[:8]) == ("iamfortytwo/scifact-decontaminated", "ad05bded")
        paths_of = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
        contents = {str(path.relative_to(tmp_path / "data")): path.read_bytes() for path in paths_of}
        loopback.commits[f"datasets/{pinned.id}", pinned.revision] = contents
        [end] = [end for end in artifacts.ends(grid) if end.job.rule == "fetch_slice"]
        place = ["--configfile", "grid.yaml", "--directory", ".", "--snakefile", ROOT / "Snakefile"]
        done = snakemake(*place, "--cores", "1", end.path, cwd=tmp_path)  # jobs whose hub client is not offline yet
        assert done.returncode == 0, done.stdout
    assert _kept(end.path) == ["q1", "q2"]
    assert grid.datasets == ["scifact"]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"q99": "word"}, "others.parquet: it has the query 'q99', which is not judged here"),
        ({"q0": "another"}, "others.parquet: its query 'q0' has another text than here: 'another'"),
    ],
)
def test_a_set_of_other_queries_chooses_none(others, message):
    with pytest.raises(DataError, match=message):
        slices.in_both("others.parquet", WORDS, others)


# Seen in training

LONG = [f"w{number}" for number in range(27)]  # 20 runs of 8 words


@pytest.mark.parametrize(
    ("tested", "training", "is_seen"),
    [
        ("who wrote it", "Who wrote  it?", True),
        ("who wrote it", "who wrote it and when", False),  # a short text counts as a whole
        (" ".join(LONG), " ".join(["before", *LONG, "after"]).upper(), True),
        (" ".join(LONG), " ".join(LONG[:21]), True),  # 14 of its 20 runs: 70 %
        (" ".join(LONG), " ".join(LONG[:20]), False),
        (" ".join(LONG), " ".join(reversed(LONG)), False),
        ("", "", False),
    ],
)
def test_a_text_is_seen_if_most_runs_of_its_words_are_in_training(tested, training, is_seen):
    assert overlaps.seen([("q", tested)], [("t", training)]) == ({"q"} if is_seen else set())


def test_a_query_is_seen_by_its_text_or_by_a_relevant_document(tmp_path, monkeypatch):
    """A training set has planted copies: the text of q0, and the document that is relevant to q1, but not to q2."""
    monkeypatch.chdir(tmp_path)
    texts = {name: " ".join(f"{name}{number}" for number in range(30)) for name in ("d0", "d1", "d2")}
    words = {f"q{number}": f"question of number {number}" for number in range(4)}
    judged = {"q0": {"d0": 1}, "q1": {"d1": 2}, "q2": {"d1": 0, "d2": 1}, "q3": {"d2": 1}}
    finished.collection(Path(), "x", texts, words, judged)
    copies = {"t0": texts["d1"], "t1": "another text", "t2": texts["d2"]}
    asked = {"a": words["q0"], "b": "another question", "c": "a third"}
    finished.collection(Path(), "train", copies, asked, {"a": {"t1": 1}, "b": {"t0": 1}, "c": {"t1": 1, "t2": 0}})
    given = ["--queries", paths.QUERIES.format(dataset="x")]
    given += ["--tested", paths.CORPUS.format(corpus="x"), paths.QRELS.format(dataset="x")]
    given += ["--training", paths.CORPUS.format(corpus="train"), paths.QRELS.format(dataset="train")]
    given += [paths.QUERIES.format(dataset="train")]
    entry = json.dumps({"seen_in": "train"})
    finished.command("fetch", "slice", "--name", "seen", "--entry", entry, *given, "--record", "seen.json")
    assert _kept("seen.json") == ["q0", "q1"]


def test_a_slice_over_the_corpus_of_its_training_set_is_made_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = {"datasets": {"demo": {"slices": {"seen": {"seen_in": "demo-train"}}}}}
    grid = Grid(merged(more={"grid": {"systems": ["bm25-flat"], "datasets": ["demo"]}, **more}))
    rules = Rules(grid, own_python=True)
    [end] = artifacts.slices(grid)
    for job in jobs_behind(grid, end):
        rules.run(job)
    assert rules.reason_of(end.job) == ""
    assert len(_kept(end.path)) == 49
