"""BM25 with the newest pyserini that pyproject.toml allows, which pip takes on Python 3.12, beside the locked one."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from helpers import ROOT

pytestmark = pytest.mark.environments

PINNED = (
    "pyserini==2.4.0 --hash=sha256:45979fa5fc8d54a35dce15cfd59d4d3dc4b4b29d8f0442e1e1f3a9ab0a303541"  # Anserini 2.3.0
)

# A program that indexes the demo and prints the run of all its queries, with every digit.
SEARCH = """
import json, sys
from pathlib import Path
from beirgrid.search import lucene
demo, folder, fields = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
print(lucene.jar().name, file=sys.stderr)
(folder / "source").mkdir(parents=True)
(folder / "source/corpus.jsonl").symlink_to(demo / "corpus.jsonl")
lucene.build_index(folder / "source", folder / "index", fields, "en", threads=1, memory_mb=500)
queries = {row["_id"]: row["text"] for row in map(json.loads, (demo / "queries.jsonl").open(encoding="utf-8"))}
searcher = lucene.Searcher(folder / "index", fields=fields, language="en", k1=0.9, b=0.4, memory_mb=500)
(folder / "run.json").write_text(json.dumps(searcher.search_all(queries, 1000, threads=2)), encoding="utf-8")
"""


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the Python path with the jar of the newest pyserini, whose archive has no wheel."""
    folder = tmp_path_factory.mktemp("pyserini")
    (folder / "pin.txt").write_text(PINNED)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
    subprocess.run([*command, "--require-hashes", "-r", folder / "pin.txt", "-d", folder], check=True)
    package = folder / "beside/pyserini"
    (package / "resources/jars").mkdir(parents=True)
    (package / "__init__.py").touch()
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        for member in archive:
            if member.name.endswith("fatjar.jar"):
                stream = archive.extractfile(member)
                assert stream
                (package / "resources/jars" / Path(member.name).name).write_bytes(stream.read())
    return package.parent


def _run(*command: str | Path, first: Path | None = None) -> subprocess.CompletedProcess[str]:
    places = [str(place) for place in (first, ROOT / "workflow") if place]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    words = [sys.executable, *map(str, command)]
    done = subprocess.run(words, env=environment, cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


@pytest.mark.parametrize("fields", ["flat", "multifield"])
def test_both_lucenes_give_one_run_of_the_demo(newest, tmp_path, fields):
    demo = ROOT / "workflow/resources/demo"
    runs = []
    for name, first in (("anserini-1.7.1", None), ("anserini-2.3.0", newest)):
        assert name in _run("-c", SEARCH, demo, tmp_path / name, fields, first=first).stderr
        runs.append((tmp_path / name / "run.json").read_bytes())
    assert runs[0] == runs[1]
    assert runs[0].count(b'": [[') == 722


def test_the_newest_lucene_passes_the_tests_of_the_locked_one(newest):
    """All but the comparisons with other searches: pyserini's own is the locked version's, and the command of Anserini
    2.3.0 asks the network for its list of indexes.
    """
    options = ["-q", "-p", "no:cacheprovider", "-k", "not equals_pyserini and not anserinis_command"]
    said = _run("-m", "pytest", "tests/parity/test_lucene.py", *options, first=newest).stdout
    assert " passed" in said
