"""Results of earlier releases are kept if a stage would write them unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers import ROOT, unpack
from small import finish, job_counts, run

from beirgrid.graph.dag import stamps

KEPT = sorted((ROOT / "tests" / "data").glob("results-*.tar.gz"))


@pytest.fixture(params=KEPT, ids=[path.name for path in KEPT])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A results folder that a release left, with the times of its files, on another machine."""
    return unpack(request.param, tmp_path)


def _raised(folder: Path) -> set[str]:
    """Return the records whose stage has a new version."""
    records = {path: json.loads(path.read_text()) for path in (folder / "results").rglob("*.json")}
    assert len(records) >= 9
    return {
        str(path.relative_to(folder))
        for path, record in records.items()
        if record["stage_version"] != stamps()[record["stage"]].version
    }


def test_a_later_release_keeps_what_it_would_write_unchanged(folder):
    done = run(folder / "grid.yaml", folder, "-n")
    planned = job_counts(done)
    raised = _raised(folder)
    for path, reason in re.findall(r"^To be made again, .*: (\S+).* \((.*)\)$", done.stdout, re.MULTILINE):
        assert path in raised
        assert reason.startswith("stage version")
    if not raised:  # the tables and the page of a grid are made of all that is known of it
        assert planned == {"aggregate": 1, "report": 1}


def test_a_changed_setting_is_noticed_in_a_kept_folder(folder):
    text = (folder / "grid.yaml").read_text()
    (folder / "grid.yaml").write_text(text.replace("fields: flat", "fields: flat\n    k1: 1.2"))
    said = finish(folder / "grid.yaml", folder, "-n")
    assert "results/runs/flat/c.json (stage version 8 → 11, k1 0.9 → 1.2)" in said
