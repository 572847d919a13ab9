"""Commands of an evaluation set besides judging: check, export, samples of queries, and the findings of a status."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import finished
import pytest
import pytrec_eval
import yaml
from helpers import fetch_corpus, fetch_dataset, main, set_step

from beirgrid.core import files
from beirgrid.core.errors import BeirgridError, DataError
from beirgrid.runs import runs
from beirgrid.sets import documents, pools, queries
from beirgrid.sets.evaluation_set import EvaluationSet
from beirgrid.sets.store import Grading

# Relevant documents of query q{n} are n/a and n/b; each system has its own order.
RUNS = {
    "bm25": ["a", "c", "b"],
    "bm25-flat": ["c", "a", "b"],
    "minilm": ["x", "a", "c"],
    "bm25+minilm": ["a", "x", "c"],
}
QUERIES = 12
QRELS = "query-id\tcorpus-id\tscore\nq1\t1/a\t1\n"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A set of 12 queries with runs of four systems, pooled and judged: in documents a, b and x, all is relevant."""
    monkeypatch.chdir(tmp_path)
    texts = [
        documents.Document(f"{n}/{name}", "A: é", f"Text {name} of {n}.") for n in range(QUERIES) for name in "abcx"
    ]
    found = EvaluationSet.create(tmp_path / "notes", texts, "here", licence="CC: BY 4.0")
    found.write_queries([queries.SetQuery(f"q{n}", f"query {n}", 3, "head") for n in range(QUERIES)])
    for system, order in RUNS.items():
        ids = {f"q{n}": [f"{n}/{name}" for name in order] for n in range(QUERIES)}
        ranked = {query: runs.canonical(query, of_query, [3.0, 2.0, 1.0]) for query, of_query in ids.items()}
        runs.write(tmp_path / f"results/runs/{system}/notes.run.gz", ranked, system)
    return found


def judge(made: EvaluationSet) -> None:
    for query, document in made.store.pool():
        made.store.judge(Grading("ann", query, document, 2 if document[-1] in "abx" else 0))


def accept(made: EvaluationSet, depth: int) -> None:
    """Pool, judge and accept a version."""
    set_step("pool", "notes", "--depth", depth)
    judge(made)
    set_step("accept", "notes")


def take_back(folder: str, row: dict[str, str]) -> None:
    """Give a decided row of a table of disagreements back as eve."""
    with Path("decided.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, row)
        writer.writeheader()
        writer.writerow(row)
    set_step("judge", folder, "--take-back", "eve", "decided.csv")


def test_what_is_left_out_repeated_or_cut_is_named(tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs/.git").mkdir(parents=True)
    texts = {"a.md": "# Rye\n\nBread", "b.md": "# rye\n\nbread", "c.md": "# Wheat\n\nBread", "d.html": "Rye<script>"}
    for name, text in {**texts, "e.txt": "", "f.odt": "x", "g.ODT": "x", "Makefile": "x", ".git/config": "x"}.items():
        (tmp_path / "docs" / name).write_text(text)
    said = told("init", "notes", "--documents", "docs")
    assert EvaluationSet(tmp_path / "notes").description.documents["flaws"] == {
        "Makefile": "left out: files without an ending are not read",
        "d.html": "its text may be cut: an element, a comment or a quote does not close",
        "e.txt": "it has no text",
        "f.odt": "left out: files ending in .odt are not read",
        "g.ODT": "left out: files ending in .odt are not read",
        "b.md": "it has the same words as a.md",
    }
    assert "warning: left out: files ending in .odt are not read: f.odt and 1 more\n" in said
    assert "warning: 6 files and documents are left out, without text, cut or repeated: set.json names them\n" in said


def test_a_second_budget_is_for_other_pairs_and_counts_all_that_is_pooled(made, told):
    with pytest.raises(BeirgridError, match="none of the 0 judged documents is relevant"):
        set_step("accept", "notes")
    assert "Next: beirgrid run notes/grid.yaml, then beirgrid set pool notes" in told("status", "notes")
    for pairs in (20, 40):
        set_step("pool", "notes", "--depth", 3, "--judgements", 20)
        assert len(made.store.pool()) == pairs
    set_step("pool", "notes", "--depth", 3)
    said = told("pool", "notes", "--depth", 1)
    assert "0 new pairs to judge, of 36 in the top 1" in said
    assert all(line.endswith(" 0.0%") for line in said.splitlines() if line.startswith(tuple(RUNS)))


def test_a_version_closes_holes(made, told):
    """The first pool has each system's first document, the second all three: a, c and x, then b."""
    accept(made, depth=1)
    accept(made, depth=3)
    rows = {line.split()[0]: line.split() for line in told("compare", "notes", 1, 2).splitlines()}
    assert rows["system"][1:] == ["nDCG@10", "v1", "nDCG@10", "v2", "change", "hole@10", "v1", "hole@10", "v2", "ranks"]
    # Three documents were retrieved, of which b was a hole: one of ten places.
    assert rows["bm25"][4:6] == ["10.0%", "0.0%"]
    assert rows["minilm"][4:6] == ["0.0%", "0.0%"]
    assert float(rows["bm25"][3]) == pytest.approx(float(rows["bm25"][2]) - float(rows["bm25"][1]), abs=1e-4)


def test_grades_of_an_earlier_scale_make_no_version(made):
    set_step("pool", "notes", "--depth", 1)
    judge(made)
    about = json.loads((made.folder / "set.json").read_text())
    (made.folder / "set.json").write_text(json.dumps(about | {"grades": {"0": "no", "1": "yes"}}))
    with pytest.raises(BeirgridError, match=r"has the grades 0, 1, but \d+ judgements have others, first 2 by ann"):
        set_step("accept", "notes")
    assert not (made.folder / "qrels/test.tsv").exists()


def test_disagreements_are_adjudicated_in_a_table(made, told, tmp_path):
    set_step("pool", "notes", "--depth", 1)
    judge(made)
    for query, document in made.store.pool():
        made.store.judge(Grading("ben", query, document, 3 if document == "0/a" else 2 if document[-1] in "abx" else 0))
    with pytest.raises(BeirgridError, match="disagree on 1 pair that 'eve' has not judged"):
        set_step("accept", "notes", "--resolution", "adjudicated", "--adjudicator", "eve")
    said = told("status", "notes", "--disagreements", "open.csv")
    assert "open.csv: 1 pair with several grades" in said
    assert "Cohen's kappa of ann, ben: " in said
    (row,) = csv.DictReader((tmp_path / "open.csv").open())
    assert row == {
        **{"query": "q0", "document": "0/a", "query_text": "query 0", "title": "A: é", "text": "Text a of 0."},
        **{"by ann": "2", "by ben": "3", "grade": ""},
    }
    take_back("notes", {**row, "grade": "1"})
    set_step("accept", "notes", "--resolution", "adjudicated", "--adjudicator", "eve")
    again = EvaluationSet(made.folder)
    (version,) = again.description.versions
    assert again.qrels(1)["q0"]["0/a"] == 1
    assert {tuple(found["judges"]) for found in version.agreement} == {("ann", "ben")}, "eve saw disagreements alone"


@pytest.mark.parametrize("saved", [str, lambda text: text.replace("\r", "\n")])  # as it is, or as spreadsheets save it
def test_a_table_of_odd_texts_and_ids_comes_back(tmp_path, monkeypatch, saved):
    monkeypatch.chdir(tmp_path)
    odd = EvaluationSet.create(tmp_path / "odd", [documents.Document("=1+1", "@a", "one\rtwo")], "here")
    odd.write_queries([queries.SetQuery("-1", "=2+2")])
    odd.store.add_pool([("-1", "=1+1")], overlap=1.0)
    for name, grade in (("ann", 1), ("ben", 3)):
        odd.store.judge(Grading(name, "-1", "=1+1", grade))
    set_step("status", "odd", "--disagreements", "open.csv")  # which needs no runs
    with (tmp_path / "open.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert not [value for value in row.values() if value[:1] in ("=", "+", "-", "@")], "a spreadsheet runs no cell"
    take_back("odd", {**row, "text": saved(row["text"]), "grade": "2"})
    assert odd.grades()["eve"] == {("-1", "=1+1"): 2}


def test_a_pool_of_some_queries_is_a_random_sample_that_grows(made):
    set_step("pool", "notes", "--depth", 3, "--queries", 5)
    first = {query for query, _ in made.store.pool()}
    assert len(first) == 5
    assert len(made.store.pool()) == 5 * 4  # all that the four systems found for these queries
    assert EvaluationSet(made.folder).description.pools[0]["queries"] == 5
    set_step("pool", "notes", "--depth", 3, "--queries", 8)
    assert first < (second := {query for query, _ in made.store.pool()})
    assert len(second) == 8
    set_step("pool", "notes", "--depth", 3)
    assert {query for query, _ in made.store.pool()} == set(made.queries())
    early = sum(int(name[1:]) < 500 for name in pools.sample_queries((f"q{n}" for n in range(1000)), 100))
    assert 30 < early < 70, "the sample does not follow the order of the queries"


@pytest.mark.parametrize("between", [",", " "])
def test_systems_of_a_pool_have_commas_or_spaces_between_them(made, between):
    some = sorted(RUNS)[:2]
    set_step("pool", "notes", "--systems", *between.join(some).split())
    assert EvaluationSet(made.folder).description.pools[-1]["systems"] == some


def test_status_says_what_is_open_and_what_was_planned(made, told):
    accept(made, depth=3)
    summary = {
        "name": "notes",
        "systems": list(RUNS),
        "rows": ["notes"],
        "datasets": {"notes": {"not_judged": True}},
        "metrics": ["ndcg@10"],
        "compare": ["minilm", "bm25"],
    }
    files.write_text(made.folder.parent / "results/grids/notes/grid.json", json.dumps(summary))
    files.write_text(made.folder.parent / "results/grids/damaged/grid.json", "{")
    said = told("status", "notes")
    warned, best, state, step, *_ = said.splitlines()
    assert "the grid damaged is left out: " in warned
    assert best.startswith("bm25+minilm has the highest nDCG@10, ")
    assert state.startswith("Open against ")
    assert step == "Next: judge more queries, since of each system's top 10 at least 100% are judged."
    assert (
        "Paired t tests, with Bonferroni's correction for the differences of the plan, or for the pairs without" in said
    )
    (planned,) = [line for line in said.splitlines() if " (planned): " in line]
    assert {*planned.partition(" (planned)")[0].split(" − ")} == {"minilm", "bm25"}


@pytest.mark.parametrize(
    ("file", "text"),
    [("corpus.jsonl", "Text a of 1."), ("corpus.jsonl", '"title": "A: é"'), ("queries.jsonl", '"query 1"')],
)
def test_a_judged_text_that_was_changed_by_hand_is_named(made, told, file, text):
    def change(old: str, new: str) -> None:
        path = made.folder / file
        path.write_text(path.read_text().replace(old, new))

    set_step("pool", "notes", "--depth", 1)
    change(text, text.replace("1", "one").replace("A", "B"))  # before it is judged, so that judges see it
    assert "had another text" not in told("judge", "notes", "--offline", "ann")
    judge(made)
    assert "had another text" not in told("accept", "notes")
    change(text.replace("1", "one").replace("A", "B"), text)
    named = "warning: query 'q1' or document '1/a' had another text when they were judged: put it back\n"
    for command in ("accept", "check", "pool"):
        assert named in told(command, "notes")
    change(text, text.replace("1", "one").replace("A", "B"))
    assert "had another text" not in told("check", "notes")


def test_check_finds_what_fetch_would_find(made, told):
    said = told("check", "notes")
    assert "48 documents, 12 queries, 0 judgements: a run can read them" in said
    assert "has no qrels: its runs will have no scores" in said
    accept(made, depth=10)
    assert told("check", "notes").endswith("version 1 of its qrels, judged by people\n")
    (made.folder / "qrels/test.tsv").write_text(QRELS)
    assert "its qrels are not an accepted version" in told("check", "notes")
    (made.folder / "qrels/test.tsv").write_text(QRELS.replace("q1", "q77"))
    with pytest.raises(DataError, match="judge 1 unknown query"):
        set_step("check", "notes")
    with (made.folder / "corpus.jsonl").open("a") as stream:
        stream.write('{"_id": "1/a", "text": "again"}\n')
    with pytest.raises(DataError, match="duplicate"):
        set_step("check", "notes")


@pytest.mark.slow
def test_other_software_reads_an_export(made, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(BeirgridError, match="has no version of its qrels yet"):
        set_step("export", "notes", "--output", "out")
    accept(made, depth=2)
    set_step("export", "notes", "--output", "out")
    with pytest.raises(BeirgridError, match="out exists already"):
        set_step("export", "notes", "--output", "out")
    expected = EvaluationSet(made.folder).qrels(1)
    wanted = (f"{n}/{name}" for n in range(QUERIES) for name in "abcx")
    corpus = {name: (found.title, found.text) for name, found in made.documents(wanted).items()}

    import ir_datasets
    from beir.datasets.data_loader import GenericDataLoader
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader

    texts, asked, grades = GenericDataLoader("out").load(split="test")
    assert {name: (row["title"], row["text"]) for name, row in texts.items()} == corpus
    assert (asked, grades) == (made.queries(), expected)

    read = ir_datasets.create_dataset(qrels_trec="out/qrels/test.trec")
    assert read.qrels_dict() == expected

    data = RetrievalDatasetLoader(hf_repo="out", revision=None, split="test").load()
    assert data["relevant_docs"] == expected
    assert {row["id"]: (row["title"], row["text"]) for row in data["corpus"]} == corpus
    assert {row["id"]: row["text"] for row in data["queries"]} == made.queries()

    header, card = (tmp_path / "out/README.md").read_text().split("---\n")[1:3]
    assert yaml.safe_load(header)["pretty_name"] == "notes"
    assert "CC: BY 4.0" in card
    assert made.description.guideline in card
    assert "ann" not in card.split()


@pytest.mark.parametrize("place", ["null", "123", "no", "a, b/notes", "{x}/notes", "a # b/notes", "a: b/notes"])
def test_the_grid_of_a_set_has_its_name_and_place_whatever_yaml_makes_of_them(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("a document")
    set_step("init", place, "--documents", "one.txt")
    name = place.rpartition("/")[2]
    grid = yaml.safe_load((tmp_path / place / "grid.yaml").read_text())
    assert (grid["grid"]["name"], grid["grid"]["datasets"]) == (name, [name])
    assert grid["corpora"] == {name: {"source": "local", "path": place}}
    assert grid["datasets"][name]["corpus"] == name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["init", "other", "--documents", ".", "--chunk", "5"], "chunk: Input should be greater than or equal to 20"),
        (["pool", "notes", "--queries", "1"], "queries: Input should be greater than or equal to 2"),
        (["pool", "notes", "--overlap", "2"], "overlap: Input should be less than or equal to 1"),
        (["queries", "notes", "--generate", "0", "--with", "x.yaml"], "generate: Input should be greater than or eq"),
    ],
)
def test_numbers_that_choose_nothing_are_refused(made, words, message):
    with pytest.raises(BeirgridError, match=message):
        set_step(*words)


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("queries.jsonl", '"query 1"', '"other words"', r"are of other queries than .*notes has, 'q1' first"),
        ("corpus.jsonl", "Text a of 3.", "other words", "are of another text of '3/a' than .*notes has"),
        ("corpus.jsonl", '"3/a"', '"3/other"', "found document '3/a', which .*notes lacks"),
    ],
)
def test_runs_of_other_queries_or_documents_make_no_pool(made, tmp_path, file, before, after, message):
    """A pool is for good: pairs that nobody can judge would stay in it."""
    (made.folder / "qrels").mkdir()
    (made.folder / "qrels/test.tsv").write_text(QRELS)
    source, fetched = {"source": "local", "path": str(made.folder)}, tmp_path / "results/datasets/notes"
    assert main(fetch_corpus(source, fetched, "notes")) == main(fetch_dataset(source, fetched, "notes")) == 0
    (tmp_path / "results/corpora").symlink_to("datasets")
    path = made.folder / file
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(DataError, match=message):
        set_step("pool", made.folder)
    assert not made.store.pool()


# The holes of a dataset -----------------------------------------------------------------------------------------------


@pytest.fixture
def holed(tmp_path, monkeypatch) -> Path:
    """Work in a folder in which a grid ran two systems over x: ``known`` finds what is judged, ``new`` the others."""
    monkeypatch.chdir(tmp_path)
    finished.collection(Path(), "x")
    judged, others = ["d0", "d1", "d2"], ["d3", "d4", "d5"]
    for system, first, then in (("known", judged, others), ("new", others, judged)):
        orders = {query: first[i % 3 :] + first[: i % 3] + then for i, query in enumerate(finished.QUERIES)}
        finished.searched(system, "x", orders, "float32")
    return tmp_path


def _ndcg(system: str, version: int) -> float:
    """Compute the mean nDCG@10 of a run under a version of the set's qrels with trec_eval."""
    grades: dict[str, dict[str, int]] = {}
    for line in Path(f"filled/versions/{version}.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        grades.setdefault(query, {})[document] = int(grade)
    ranked = runs.read(Path(f"results/runs/{system}/x.run.gz"))
    scores = {query: dict(zip(of.ids, of.scores.tolist(), strict=True)) for query, of in ranked.items()}
    found = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut.10"}).evaluate(scores)
    return sum(of["ndcg_cut_10"] for of in found.values()) / len(found)


@pytest.mark.usefixtures("holed")
def test_holes_of_a_dataset_are_judged_and_the_table_shows_both_versions(told):
    said = told("init", "filled", "--from", "x")
    assert "10 documents; version 0 has the 36 judgements of x" in said
    assert "36 new pairs to judge, of 72 in the top 10 of all runs" in said
    assert "(the qrels of x, 36 judgements)" in told("status", "filled")
    made = EvaluationSet(Path("filled"))
    assert made.description.grades == {
        0: "not relevant: the document has nothing to do with the query",
        **{grade: f"relevant, grade {grade} of 3" for grade in (1, 2, 3)},
    }
    assert {document for _, document in made.store.pool()} == {"d3", "d4", "d5"}
    while pair := made.store.next("ann"):
        made.store.judge(Grading("ann", *pair, 3 if pair != ("q0", "d5") else 0))
    assert "beirgrid set compare filled 0 1 shows the table" in told("accept", "filled")
    newest = EvaluationSet(Path("filled")).description.versions[-1]
    assert (newest.number, newest.judgements, newest.judges) == (1, 72, ["ann", "x"])
    said = told("compare", "filled", 0, 1)
    for system, ranks in (("known", "1 → 2"), ("new", "2 → 1")):
        before, after = (_ndcg(system, version) for version in (0, 1))
        row = next(line.split() for line in said.splitlines() if line.startswith(system))
        assert row[1:6] == [f"{before:.4f}", f"{after:.4f}", f"{after - before:+.4f}", "30.0%", "0.0%"]
        assert " ".join(row[6:]) == ranks
    assert "Verdicts that change: 1 of 1 pair of systems." in said
    assert "known and new: known is better than new → new is better than known" in said
    assert "new has the highest nDCG@10" in told("status", "filled")
    assert "0 new pairs to judge" in told("pool", "filled", "--depth", "10")
    assert "72 judgements: a run can read them" in told("check", "filled")


@pytest.mark.usefixtures("holed")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "nosuch"), r"results has no dataset 'nosuch': run a grid over it first"),
        (("--from", "x"), r"^x has no qrels to fill: make a set of its documents"),
        (("--from", "x", "--documents", "docs"), r"^say where the documents come from"),
        ((), r"^say where the documents come from"),
    ],
)
def test_a_set_from_no_dataset_with_qrels_is_refused_in_one_sentence(words, message):
    Path("results/datasets/x/qrels.tsv").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(BeirgridError, match=message):
        set_step("init", "filled", *words)
    assert not Path("filled").exists()
