"""SLURM jobs that count as jobs of an earlier run; tests/slurm uses a real cluster."""

from __future__ import annotations

from pathlib import Path

from beirgrid.tools.cluster import refuse_beside_orphans, runs_in

RUN = "4f0d8a52-0a2b-4f3e-9c1d-2b7f5f2f8a11"


def test_only_snakemakes_jobs_that_work_in_the_folder_count(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    rows = [
        (RUN, "ann", tmp_path),
        (RUN, "ann", tmp_path / "link"),  # as the jobs' node calls it
        (f"prefix_{RUN}", "bob", tmp_path),
        (RUN, "ann", tmp_path / "elsewhere"),
        ("beirgrid", "ann", tmp_path),  # the job in which someone runs Snakemake itself
    ]
    listing = "".join(f"{name}|{user}|{place}\n" for name, user, place in rows)
    assert runs_in(tmp_path, listing) == {(RUN, "ann"): 2, (f"prefix_{RUN}", "bob"): 1}


def test_without_slurm_there_is_nothing_to_ask(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    refuse_beside_orphans(tmp_path, "slurm")
    refuse_beside_orphans(Path("/nowhere"), "local")
