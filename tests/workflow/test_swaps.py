"""Every input of every kind of job, exchanged with its siblings: the job refuses, or its output is the right one."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
import torch
from helpers import main
from safetensors.torch import load_file, save_file
from small import collection

from beirgrid import config
from beirgrid.core import paths
from beirgrid.core.errors import BeirgridError
from beirgrid.encoders import query_generator
from beirgrid.graph import artifacts, job
from beirgrid.graph.dag import Job, jobs_behind, output, stages
from beirgrid.graph.grid import Grid
from beirgrid.graph.rules import Rules
from beirgrid.graph.stage import Output, Stage

# Two corpora of as many documents with the same ids, in shards of the same size, and datasets over each.
CORPORA = ("one", "two")
SHARDS, SIZE = 3, 8
DATASETS = {"one": "one", "again": "one", "two": "two"}
SLICES = {"one": {"seen": {"seen_in": "again"}, "both": {"dataset": "again"}}}
# Entries of models by family. Of each, there is a second model of the same shape.
FAMILIES: dict[str, dict[str, Any]] = {
    "dense": {"family": "dense", "similarity": "cosine"},
    "splade": {"family": "sparse"},
    "late-interaction": {"family": "late-interaction", "max_length": 60, "query_length": 16},
    "cross-encoder": {"family": "cross-encoder", "max_length": 64},
    "query-generator": {"family": "query-generator", "queries_per_document": 1},
}
MODELS = {
    f"{name}{number}": {**entry, "path": f"models/{name}{number}"}
    for name, entry in FAMILIES.items()
    for number in (1, 2)
}
TOWERS = {"towers": {**MODELS["dense1"], "query_model": "dense2"}}
LEARNING = {"base": "dense1", "negative_depth": 4, "batch": 4, "seed": 1}
GPL = {"recipe": "gpl", "teacher": "cross-encoder1", "derive": ["sentences"], "retrievers": ["bm25", "dense1"]}
GPL |= {"documents": 20, "queries_per_document": 2, "steps": 4, "warmup": 0}
TRAINED = {"corpus": "one", "dataset": "one", "queries": 4, "hard_negatives": 1, "random_negatives": 1}
TRAINING = {
    "gpl": {**FAMILIES["dense"], "train": {**LEARNING, **GPL}},
    "trained": {**FAMILIES["cross-encoder"], "train": {**LEARNING, **TRAINED}},
}
PROGRAM = """
import json, shutil, sys
given = sys.argv[1:]
if len(given) == 2:
    shutil.copy(given[0], given[1] + "/corpus.jsonl")
else:
    documents = [json.loads(line) for line in open(given[0] + "/corpus.jsonl")]
    with open(given[2], "w") as run:
        for query in map(json.loads, open(given[1])):
            words = set(query["text"].split())
            score = {each["_id"]: len(words & set(each["text"].split())) for each in documents}
            for rank, name in enumerate(sorted(score, key=score.get, reverse=True)[:9]):
                print(query["_id"], "Q0", name, rank, score[name] - rank / 100, "p", file=run)
"""
SYSTEMS: dict[str, dict[str, Any]] = {
    "dense1": {"retriever": "dense1"},
    "dense2": {"retriever": "dense2"},
    "bm25": {"retriever": "bm25", "fields": "flat"},
    "multifield": {"retriever": "bm25", "fields": "multifield"},
    "rm3": {"retriever": "bm25", "fields": "flat", "rm3": {"documents": 2, "terms": 3}},
    "expanded1": {"retriever": "bm25", "fields": "flat", "expansion": "query-generator1"},
    "expanded2": {"retriever": "bm25", "fields": "flat", "expansion": "query-generator2"},
    "published": {
        "retriever": "bm25",
        "fields": "flat",
        "expansion": {"source": "local", "path": "data/{corpus}.expansions.jsonl"},
    },
    "towers": {"retriever": "towers"},
    "int8": {"retriever": "dense1", "index": {"kind": "int8"}},
    "cut": {"retriever": "dense1", "dimensions": 16},
    "moved": {"first_stage": "dense1", "feedback": {"documents": 2, "negatives": 1}},
    "moved-towers": {"first_stage": "towers", "feedback": {"documents": 2}},
    "splade1": {"retriever": "splade1"},
    "splade2": {"retriever": "splade2"},
    "late1": {"retriever": "late-interaction1", "candidates": 4},
    "late2": {"retriever": "late-interaction2", "candidates": 4},
    "exhaustive": {"retriever": "late-interaction1", "exhaustive": True},
    "reranked1": {"first_stage": "dense1", "reranker": "cross-encoder1", "depth": 5},
    "reranked2": {"first_stage": "dense1", "reranker": "cross-encoder2", "depth": 5},
    "reranked3": {"first_stage": "bm25", "reranker": "cross-encoder1", "depth": 5},
    "bm25-q2d1": {"first_stage": "bm25", "query": {"method": "query2doc", "generator": "query-generator1"}},
    "bm25-q2d2": {"first_stage": "bm25", "query": {"method": "query2doc", "generator": "query-generator2"}},
    "dense1-hyde1": {"first_stage": "dense1", "query": {"method": "hyde", "generator": "query-generator1", "texts": 2}},
    "bm25-file": {"first_stage": "bm25", "query": {"method": "own", "file": "data/{dataset}.rewrites.jsonl"}},
    "rrf": {"fusion": "rrf", "of": ["bm25", "dense1"]},
    "wsum": {"fusion": "wsum", "of": ["dense1", "splade1"], "weights": [0.3, 0.7]},
    "theirs": {"run": "data/{dataset}.run", "allow": ["missing-queries"]},
    "program": {
        "command": "python data/program.py {index} {queries} {run}",
        "index_command": "python data/program.py {corpus} {index}",
    },
}
# Versions of the site. What each later one fetched anew.
VERSIONS = {"site": (), "retrained": ("fetch_model",), "recrawled": ("fetch_corpus", "fetch_dataset")}


def _grid() -> Grid:
    raw = {
        "corpora": {name: {"source": "local", "path": f"data/{name}", "documents": SIZE * SHARDS} for name in CORPORA},
        "datasets": {
            name: {
                "corpus": corpus,
                "split": "dev" if name == "again" else "test",
                "slices": SLICES.get(name, {}),
            }
            for name, corpus in DATASETS.items()
        },
        "models": {**MODELS, **TOWERS, **TRAINING},
        "systems": SYSTEMS,
        "grid": {"systems": [*SYSTEMS], "datasets": [*DATASETS]},
        "encode": {"shard": SIZE, "precision": "float32"},
        "retrieve": {"depth": 20},
        "metrics": ["ndcg@10"],
        "device": "cpu",
    }
    return Grid(config.load(copy.deepcopy(raw)))


# The site


def _write_collections(seed: int) -> None:
    for number, corpus in enumerate(CORPORA):
        folder = collection(Path("data", corpus), SIZE * SHARDS, seed + number)
        judged = (folder / "qrels/test.tsv").read_text().splitlines(keepends=True)
        (folder / "qrels/dev.tsv").write_text("".join(judged[:10]))
        predicted = [{"id": f"d{i}", "queries": [f"query{i} of {corpus}"]} for i in range(SIZE * SHARDS)]
        Path(f"data/{corpus}.expansions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in predicted))
    for dataset in DATASETS:
        Path(f"data/{dataset}.run").write_text("q0 Q0 d1 1 1.0 theirs\n")
        queries = map(json.loads, Path("data", DATASETS[dataset], "queries.jsonl").read_text().splitlines())
        texts = [{"id": row["_id"], "text": f"{row['text']} of {dataset} {seed}"} for row in queries]
        Path(f"data/{dataset}.rewrites.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    Path("data/program.py").write_text(PROGRAM)


def _disturb(folder: Path, seed: int) -> None:
    """Give a checkpoint other weights, as another training does."""
    torch.manual_seed(seed)
    for path in folder.rglob("*.safetensors"):
        weights = {
            name: of + 0.3 * torch.randn_like(of) if of.is_floating_point() else of
            for name, of in load_file(path).items()
        }
        path.unlink()
        save_file(weights, path, {"format": "pt"})


def _linked(source: Path, target: Path) -> None:
    """Put a file or folder at a place by hard links. No stage writes into a file that is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=os.link)
    else:
        os.link(source, target)


def _jobs(grid: Grid) -> list[Job]:
    ends = [*artifacts.ends(grid), *(output(paths.MARGINS, model=f"gpl@{corpus}") for corpus in CORPORA)]
    return jobs_behind(
        grid, *ends, artifacts.checkpoint(grid, "gpl", "one"), artifacts.checkpoint(grid, "trained", "one")
    )


def _write_sources(folder: Path, tiny_models: dict[str, Path]) -> None:
    """Write models and collections of the site and of its later versions, each in a folder."""
    for version, anew in VERSIONS.items():
        (folder / version).mkdir()
        with contextlib.chdir(folder / version):
            _write_collections(10 if "fetch_corpus" in anew else 0)
            for seed, model in enumerate(MODELS):
                shutil.copytree(tiny_models[model[:-1]], f"models/{model}")
                if model.endswith("2"):
                    _disturb(Path("models", model), 2)
                if "fetch_model" in anew:
                    _disturb(Path("models", model), 10 + seed)


def _is_training(each: Job) -> bool:
    return each.rule in ("train", "generate", "mine", "label", "adapt")


def _is_of_one(each: Job) -> bool:
    """Tell whether a job is not of another corpus or dataset than the first."""
    values = each.values
    return {values.get("corpus", "one"), values.get("dataset", "one")} == {"one"} and "@two" not in values.get(
        "model", ""
    )


class Made(NamedTuple):
    """An artifact of a version of the site."""

    version: str
    output: Output


class Site:
    """The site of which jobs run, with what is known of its graph. ``folder`` holds its versions, which have what was
    asked for and what is behind it. Temporary files stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The configuration holds the folder's own paths.
        self.rules_of = cache(lambda version: Rules(_grid(), own_python=True))
        self.rules = self.rules_of("site")
        self.grid = self.rules.grid
        self.jobs = _jobs(self.grid)
        self.made = [Output(each, path) for each in self.jobs for path in _outputs(each).values()]
        self.text = cache(self._text)
        self.bases = cache(self._bases)
        self.kind = cache(_kind)
        self.make = cache(self._make)

    def _make(self, version: str, each: Job) -> None:
        """Run a job in a version of the site, after those behind it."""
        for one in self.behind(each)[:-1]:
            self.make(version, one)
        with contextlib.chdir(self.folder / version):
            self.rules_of(version).run(each)

    def _text(self, each: Job) -> dict[str, Any]:
        """Return a job as its rule passes it to its stage."""
        found: dict[str, Any] = json.loads(
            self.rules.as_json(each, self.rules.inputs(each), _outputs(each), threads=1, mem_mb=0)
        )
        return found

    def _bases(self, made: Made) -> dict[str, set[tuple[Job, str]]]:
        """Return what an artifact stems from, by rule: the jobs that read sources, with the version that made them."""
        found: dict[str, set[tuple[Job, str]]] = {}
        for one in self.behind(made.output.job):
            if not one.stage.reads_files:
                continue
            found.setdefault(one.rule, set()).add((one, made.version if one.rule in VERSIONS[made.version] else "site"))
        return found

    def siblings(self, given: Output) -> Iterator[Made]:
        """Yield what a job could be given instead: the first of the same kind for each wildcard, and later versions."""
        mine = given.job.values
        seen = set()
        for one in self.made:
            theirs = one.job.values
            if one.path == given.path or self.kind(one) != self.kind(given):
                continue
            differing = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
            if len(differing) == 1 and seen.isdisjoint(differing) and self.differs(given, Made("site", one)):
                seen |= {*differing}
                yield Made("site", one)
        for version, anew in VERSIONS.items():
            made = Made(version, given)
            altered = [one for one in self.behind(given.job) if one.rule in anew]
            if altered and not _is_training(given.job) and self.differs(given, made):
                yield made

    def differs(self, given: Output, sibling: Made) -> bool:
        """Tell whether a sibling has another content."""

        def content(made: Made) -> list[str]:
            self.make(made.version, made.output.job)
            record = json.loads((self.folder / made.version / made.output.job.record).read_text())
            name = Path(made.output.path).name
            hashes = [of["sha256"] for path, of in record["outputs"].items() if Path(path).parts[0] == name]
            return hashes or [json.dumps(record["pairs"])]

        return content(Made("site", given)) != content(sibling)

    def inputs(self, each: Job) -> dict[str, list[Output]]:
        """Return the inputs of a job by option, as lists."""
        given = each.inputs(self.grid)
        return {option: [of] if isinstance(of, Output) else [*of] for option, of in given.items()}

    def behind(self, each: Job) -> list[Job]:
        """Return the jobs behind a job, and itself."""
        return jobs_behind(self.grid, Output(each, ""))

    def after(self, each: Job) -> list[Job]:
        """Return the jobs that read from a job, from those that do, and so on, in order."""
        found = [each]
        for one in self.jobs:
            if one not in found and any(given.job in found for of in self.inputs(one).values() for given in of):
                found.append(one)
        return found[1:]

    def shared(self, each: Job, option: str, number: int, sibling: Made) -> bool:
        """Tell whether a job can see from its other inputs that one was exchanged: both stem from the same source."""
        inputs = self.inputs(each)
        given = inputs[option][number]
        if given.job.values.get("first") != sibling.output.job.values.get("first"):
            return True  # scores of pairs name their run
        before, after = self.bases(Made("site", given)), self.bases(sibling)
        changed = [rule for rule in {**before, **after} if before.get(rule) != after.get(rule)]
        if not changed:  # another form of the same: of the index, or a run of another system
            return sum(map(len, inputs.values())) > 1 and given.job.stage.main != "run"
        others = [
            one for name, of in inputs.items() for place, one in enumerate(of) if (name, place) != (option, number)
        ]
        # A model binds what is searched with it. Training data may stem from another model.
        bound = [rule for rule in changed if rule != "fetch_model" or any("shard" in one.job.values for one in others)]
        lost = {rule: before.get(rule, set()) - after.get(rule, set()) for rule in bound}
        return any(lost[rule] & self.bases(Made("site", one)).get(rule, set()) for rule in bound for one in others)


def _outputs(each: Job) -> dict[str, str]:
    """Return the outputs of a job by name, with the record."""
    found = {}
    for name, pattern in each.stage.outputs.items():
        for wildcard, value in each.wildcards:
            pattern = pattern.replace(f"{{{wildcard}}}", value)
        found[name] = pattern
    return found


def _kind(made: Output) -> tuple[str, str]:
    """Return the folder of results and the file name of an artifact, with wildcards. Runs have several rules."""
    _, folder, *_, name = _pattern(made).split("/")
    return folder, name


def _pattern(made: Output) -> str:
    """Return the pattern of a job's output."""
    [name] = [name for name, path in _outputs(made.job).items() if path == made.path]
    return made.job.stage.outputs[name]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Iterator[Site]:
    """A site of this process alone, whose generators write short queries. A test leaves it as it was."""
    folder = tmp_path_factory.mktemp("swaps")
    _write_sources(folder, tiny_models)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_generator, "QUERY_LENGTH", 8)
        with contextlib.chdir(folder / "site"):
            made = Site(folder)
        yield made


# One exchange


# What is left of temporary files.
GONE = ("", ", vectors deleted", ", vectors and their records deleted")


class Scene:
    """Changes of files that end with the scene."""

    def __init__(self, aside: Path) -> None:
        self.aside = aside
        self.moved: list[tuple[Path, Path | None]] = []

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        for place, kept in reversed(self.moved):
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            place.unlink(missing_ok=True)
            if kept:
                kept.rename(place)

    def remove(self, place: str | Path) -> None:
        """Put a file or folder aside."""
        place = Path(place)
        kept = self.aside / str(len(self.moved)) if place.exists() else None
        if kept:
            self.aside.mkdir(parents=True, exist_ok=True)
            place.rename(kept)
        self.moved.append((place, kept))

    def put(self, source: Path, place: str | Path) -> None:
        """Put another file or folder in the place of one."""
        self.remove(place)
        _linked(source, Path(place))

    def exchange(self, one: str, other: str) -> None:
        """Exchange two files or folders."""
        self.remove(one)
        first = self.moved[-1][1]
        assert first
        self.put(Path(other), one)
        self.put(first, other)


class Exchange(NamedTuple):
    """One exchange: a job, what it is given or finds, whether it must refuse, and the words that name the exchange."""

    job: Job
    words: str
    must: bool
    inputs: Mapping[str, Any] = MappingProxyType({})
    placed: tuple[tuple[Path, str], ...] = ()
    exchanged: tuple[tuple[str, str], ...] = ()


ORDERS = {
    "reversed": lambda of: of[::-1],
    "rotated": lambda of: [*of[1:], of[0]],
    "without the first": lambda of: of[1:],
    "without the last": lambda of: of[:-1],
    "the first twice": lambda of: [of[0], of[0], *of[2:]],
    "one more": lambda of: [*of, of[0]],
}


def _exchanges(site: Site, each: Job) -> Iterator[Exchange]:
    yield Exchange(each, "nothing", must=False)
    text = site.text(each)["inputs"]
    for option, given in site.inputs(each).items():
        listed = isinstance(text.get(option), list)
        for number, one in enumerate(given):
            if number < len(given) - 1:
                continue
            for sibling in site.siblings(one):
                must = site.shared(each, option, number, sibling)
                name = f"{option}[{number}] {sibling.version} {sibling.output.path}"
                source = site.folder / sibling.version / sibling.output.path
                path = sibling.output.path if sibling.version == "site" else str(source)
                other = [path if place == number else of.path for place, of in enumerate(given)] if listed else path
                yield Exchange(each, f"{name} by path", must, {option: other})
                yield Exchange(each, f"{name} without its record", True, placed=((source, one.path),))
                if one.job.record != one.path:
                    record = source.parent / Path(sibling.output.job.record).name
                    both = ((source, one.path), (record, one.job.record))
                    yield Exchange(each, f"{name} with its record", must, placed=both)
        if listed and len(given) > 1:
            shards = "shard" in given[0].job.values
            files = [of.path for of in given]
            for order, change in ORDERS.items():
                if change(files) != files:
                    yield Exchange(each, f"{option} {order}", shards, {option: change(files)})
            pair = ((files[0], files[1]),)
            yield Exchange(each, f"{option} two exchanged without records", True, exchanged=pair)
            records = (given[0].job.record, given[1].job.record)
            yield Exchange(each, f"{option} two exchanged with records", shards, exchanged=(*pair, records))


def _temporary(site: Site, each: Job, gone: str) -> list[str]:
    """Return the temporary files behind a job, beyond its own inputs, without or with their records."""
    own = {one.path for of in site.inputs(each).values() for one in of}
    made = [
        _outputs(one) for one in site.behind(each) if one.stage.temporary and own.isdisjoint(_outputs(one).values())
    ]
    return [path for of in made for name, path in of.items() if gone and (name != "record" or gone == GONE[2])]


def _content(each: Job) -> Any:
    """Return what a job has written, without times."""
    found: dict[str, Any] = {}
    for name, path in _outputs(each).items():
        if name == "record":
            if each.rule == "score":
                manifest = json.loads(Path(path).read_text())["pairs"]
                parts = [pq.read_table(Path(path).parent / manifest["store"] / part) for part in manifest["parts"]]
                found["pairs"] = sorted(tuple(row.values()) for part in parts for row in part.to_pylist())
        elif path.endswith(".json"):
            found[name] = json.loads(Path(path).read_text())["scores"]
        elif each.rule == "index_lexical":
            found[name] = None  # Lucene's files hold times
        else:
            files = (
                sorted(one for one in Path(path).rglob("*") if one.is_file()) if Path(path).is_dir() else [Path(path)]
            )
            found[name] = [(one.name, one.read_bytes()) for one in files]
    return found


def _run(scene: Scene, site: Site, each: Job, inputs: Mapping[str, Any]) -> str:
    """Run a job, after its outputs were put aside; return the message of its refusal, or an empty string."""
    text = site.text(each)
    text = {**text, "inputs": {**text["inputs"], **inputs}}
    for path in _outputs(each).values():
        scene.remove(path)
    if "pairs" in text["options"]:
        scene.remove(text["options"]["pairs"])
    try:
        contextvars.copy_context().run(job.run, each.stage.function, json.dumps(text).encode())
    except BeirgridError as error:
        names = "results/" in str(error) or str(site.folder) in str(error)
        return f"{error}" if names else f"NAMES NO FILE: {error}"
    except Exception as error:
        return f"TRACEBACK: {error!r}"
    return ""


_right: dict[Job, Any] = {}


def _finding(site: Site, scene: Scene, exchange: Exchange, gone: str) -> str:
    """Make an exchange and run its job and those after it; return what went wrong, or an empty string."""
    each = exchange.job
    if each not in _right:
        _right[each] = _content(each)
    for path in _temporary(site, each, gone):
        scene.remove(path)
    for source, place in exchange.placed:
        scene.put(source, place)
    for one, other in exchange.exchanged:
        scene.exchange(one, other)
    refusal = _run(scene, site, each, exchange.inputs)
    if refusal:
        if exchange.words == "nothing":
            return f"REFUSED: {refusal}"
        return refusal if refusal.startswith(("NAMES NO FILE", "TRACEBACK")) else ""
    if each.rule != "index_lexical" and _content(each) == _right[each]:
        return ""
    if exchange.words == "nothing":
        return "" if each.rule == "index_lexical" else "OTHER OUTPUT"
    if exchange.must:
        return "SILENT"
    return _later(site, scene, each)


def _later(site: Site, scene: Scene, each: Job) -> str:
    """Run the jobs after one whose output is another one. The numbers at the end must be refused or right, or else the
    grid must see that a job behind them must run again."""
    missing: set[str] = set()
    after = site.after(each)
    for one in after:
        if one not in _right:
            _right[one] = _content(one)
    unnoticed = []
    for one in [each, *after]:
        gone = missing & {given.path for of in site.inputs(one).values() for given in of}
        if one is not each and (gone or _run(scene, site, one, {})):
            missing |= {*_outputs(one).values()}
            continue
        last = not any(given.job == one for other in after for of in site.inputs(other).values() for given in of)
        if last and one.rule != "index_lexical" and _content(one) != _right[one]:
            reasons = [reason for job in site.behind(one) if (reason := site.rules.reason_of(job))]
            if not reasons:
                unnoticed.append(one.record)
    return f"UNNOTICED at {', '.join(unnoticed[:3])}" if unnoticed else ""


def _of_each_kind(site: Site, rule: str) -> list[Job]:
    """Return jobs of a rule over the first corpus: one for each combination of kinds of inputs and of settings."""
    chosen: dict[Any, Job] = {}
    for one in site.jobs:
        values = one.values
        if one.rule != rule or not _is_of_one(one) or values.get("shard", "1") != "1":
            continue
        text = site.text(one)
        patterns = tuple((option, tuple(_pattern(given) for given in of)) for option, of in site.inputs(one).items())
        chosen.setdefault((patterns, tuple(sorted(name for name, value in text["settings"].items() if value))), one)
    return [*chosen.values()]


READING = [rule for rule, stage in stages().items() if type(stage).inputs is not Stage.inputs]


@pytest.mark.parametrize("rule", READING)
def test_an_exchanged_input_is_refused(site, monkeypatch, tmp_path, rule):
    _check(site, rule, monkeypatch, tmp_path, must=True)


@pytest.mark.slow
@pytest.mark.parametrize("rule", READING)
def test_an_exchange_that_a_job_cannot_see_changes_nothing_or_is_seen_later(site, monkeypatch, tmp_path, rule):
    _check(site, rule, monkeypatch, tmp_path, must=False)


def _check(site: Site, rule: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, must: bool) -> None:
    """Make each exchange of a rule's inputs that must, or need not, be refused."""
    monkeypatch.chdir(site.folder / "site")
    wrong = []
    count = 0
    jobs = _of_each_kind(site, rule)
    assert jobs, f"the site has no job of {rule}"
    for each in jobs:
        for one in [each, *([] if must else site.after(each))]:
            site.make("site", one)
        for exchange in _exchanges(site, each):
            if exchange.must != must:
                continue
            has_temporary = bool(_temporary(site, each, GONE[1]))
            for gone in GONE[: 1 + has_temporary + (has_temporary and bool(exchange.placed))]:
                count += 1
                with Scene(tmp_path / str(count)) as scene:
                    if finding := _finding(site, scene, exchange, gone):
                        wrong.append(f"{each.record}: {exchange.words}{gone}: {finding}")
    assert not wrong, "\n".join([f"{len(wrong)} of {count}", *wrong])


# Scenes of people's folders


@pytest.fixture
def copied(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The site, in a working directory that a test may change. Files are hard links: change none in place."""
    for each in site.jobs:
        site.make("site", each)
    _linked(site.folder / "site", tmp_path / "site")
    monkeypatch.chdir(tmp_path / "site")
    return site


def _rewrite(change: Callable[[dict[str, Any]], dict[str, Any]], pattern: str = "*.json") -> None:
    """Change the content of records."""
    for path in Path("results").rglob(pattern):
        content = json.loads(path.read_text())
        if "stage" in content:
            path.unlink()
            path.write_text(json.dumps(change(content)))


def _move(where: Path) -> None:
    for path in [*Path().iterdir()]:
        shutil.move(path, where)
    os.chdir(where)


def _link(where: Path, *places: str) -> None:
    for place in places:
        target = where / place.replace("/", "-")
        Path(place).rename(target)
        Path(place).symlink_to(target)


def _without_hashes(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record as version 0.2.0 wrote it: it has the hashes of small files only, and no job."""
    old = {key: value for key, value in record.items() if key not in ("job", "behind")}
    old |= {"settings": record["job"].get("settings", {}), "settings_key": record["job"].get("digest")}
    old["inputs"] = {
        option: [{key: value for key, value in one.items() if key != "sha256"} for one in of]
        for option, of in record.get("inputs", {}).items()
    }
    old["outputs"] = {name: {"bytes": one["bytes"]} for name, one in record["outputs"].items()}
    return old


def _fetch_again(site: Site) -> None:
    for each in site.jobs:
        if each.stage.reads_files and each.rule in ("fetch_corpus", "fetch_dataset", "fetch_model"):
            job.run(each.stage.function, json.dumps(site.text(each)).encode())


def _without_vectors(site: Site, *, records: bool) -> None:
    for each in site.jobs:
        if each.stage.temporary:
            for name, path in _outputs(each).items():
                if records or name != "record":
                    Path(path).unlink()


SHARD = "results/indexes/dense1/one/0.faiss"
# What people do to folders in which nothing is wrong.
HARMLESS: dict[str, Callable[[Site, Path], object]] = {
    "results moved": lambda site, where: _move(where),
    "results are a link": lambda site, where: _link(where, "results"),
    "folders are links": lambda site, where: _link(where, "results/corpora", "results/indexes", "results/models"),
    "a shard is a link": lambda site, where: _link(where, SHARD),
    "a shard with its record is a link": lambda site, where: _link(where, SHARD, "results/indexes/dense1/one/0.json"),
    "times changed": lambda site, where: [os.utime(path) for path in sorted(Path("results").rglob("*"))],
    "records without hashes": lambda site, where: _rewrite(_without_hashes),
    "records of indexes without hashes": lambda site, where: _rewrite(_without_hashes, "indexes/**/*.json"),
    "records of sources without hashes": lambda site, where: _rewrite(_without_hashes, "co*/**/*.json"),
    "records of checkpoints without hashes": lambda site, where: _rewrite(_without_hashes, "models/**/*.json"),
    "records of vectors without hashes": lambda site, where: _rewrite(_without_hashes, "embeddings/**/*.json"),
    "records without inputs": lambda site, where: _rewrite(lambda of: {**of, "inputs": {}}),
    "records without what stands behind": lambda site, where: _rewrite(lambda of: {**of, "behind": {}}),
    "records in another order": lambda site, where: _rewrite(lambda of: dict(sorted(of.items(), reverse=True))),
    "records with more keys": lambda site, where: _rewrite(lambda of: {**of, "mine": {"a": 1}}),
    "vectors deleted": lambda site, where: _without_vectors(site, records=False),
    "vectors and their records deleted": lambda site, where: _without_vectors(site, records=True),
    "fetched again": lambda site, where: _fetch_again(site),
    "JSON of one's own beside": lambda site, where: Path("results/indexes/dense1/one/notes.json").write_text("[1]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("scene", HARMLESS)
def test_a_folder_in_which_nothing_is_wrong_is_accepted(copied, tmp_path, scene):
    (tmp_path / "elsewhere").mkdir()
    rules = ("index_approximate", "retrieve_", "rerank", "fuse", "evaluate")
    jobs = [one for rule in READING if rule.startswith(rules) for one in _of_each_kind(copied, rule)]
    right = {one: _content(one) for one in jobs}
    HARMLESS[scene](copied, tmp_path / "elsewhere")
    refused = []
    for one in jobs:
        with Scene(tmp_path / "aside") as aside:
            if message := _run(aside, copied, one, {}) or ("" if _content(one) == right[one] else "OTHER OUTPUT"):
                refused.append(f"{one.record}: {message}")
    assert not refused, "\n".join(refused)


# Records that somebody or something damaged: the message names the record.
DAMAGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "an input without a path": lambda of: of["inputs"]["corpus"][0].pop("path"),
    "an input whose path is a number": lambda of: of["inputs"]["corpus"][0].update(path=1),
    "an input whose path is null": lambda of: of["inputs"]["corpus"][0].update(path=None),
    "an input that is no object": lambda of: of["inputs"].update(corpus=["corpus.parquet"]),
    "inputs that are a list": lambda of: of.update(inputs=[]),
    "an output without a size": lambda of: of["outputs"]["one.run.gz"].pop("bytes"),
    "a hash that is a number": lambda of: of["inputs"]["corpus"][0].update(sha256=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("scene", DAMAGED)
def test_a_damaged_record_is_named(copied, capsys, scene):
    path = Path("results/runs/dense1/one.json")
    content = json.loads(path.read_text())
    DAMAGED[scene](content)
    path.unlink()
    path.write_text(json.dumps(content))
    capsys.readouterr()
    for words in (["show", "dense1", "one"], ["why", "results/runs/dense1/one.run.gz"]):
        assert main(words) == 1
        assert str(path) in capsys.readouterr().err, words
    with pytest.raises(BeirgridError, match=str(path)):
        copied.rules.run(Job.of("evaluate", {"system": "dense1", "dataset": "one"}))
