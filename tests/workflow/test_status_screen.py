"""The screen of a grid after its end, and before its begin."""

from __future__ import annotations

from helpers import beirgrid
from small import run


def _screen(folder) -> str:
    done = beirgrid("status", "--directory", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _row(screen: str, name: str) -> list[str]:
    return next(line for line in screen.splitlines() if line.startswith(f"{name} ")).split()


def test_a_finished_grid(finished):
    screen = _screen(finished)
    assert screen.startswith("finished after 0:")
    done, of = _row(screen, "total")[1:]
    assert done == of
    assert int(of) > 30
    assert "Failed" not in screen
    assert "Running" not in screen


def test_a_dry_run_is_no_run(small_grid, tmp_path):
    assert run(small_grid(tmp_path), tmp_path, "--dry-run").returncode == 0
    done = beirgrid("status", "--directory", tmp_path)
    assert done.returncode == 1
    assert "no grid was run in this folder" in done.stderr
