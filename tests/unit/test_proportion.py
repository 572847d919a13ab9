"""The package does not grow by itself: make lint compares its lines with ceilings."""

import ast
import re
from pathlib import Path

import lines
import pytest
from lines import ROOT, branches, excesses, lines_by_folder, tangles


def test_a_line_too_many_is_an_excess(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core/files.py").write_text("one\ntwo\n")
    found = lines_by_folder(tmp_path)
    assert excesses(found, {"core": 2}) == []
    assert excesses(found, {"core": 1}) == ["core has 2 lines, its ceiling in pyproject.toml is 1"]
    assert excesses(found, {"models": 9}) == ["core has 2 lines, its ceiling in pyproject.toml is 0"]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("return x", 0),
        ("if x: return 1\n elif y: return 2", 2),
        ("return x and y or z", 2),
        ("return [a if a else 0 for a in x for b in a if b if a]", 5),
        ("def inner():\n  if x: pass\n return inner", 0),
        ("try: x\n except ValueError: y", 1),
    ],
)
def test_branches_of_a_function_are_counted(body: str, count: int) -> None:
    assert branches(ast.parse(f"def function():\n {body}").body[0]) == count


def test_a_function_with_too_many_branches_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.py").write_text("def first():\n return x and y\n\n\ndef second():\n return x\n")
    assert tangles(tmp_path, some=0, most=1) == []
    assert tangles(tmp_path, some=0, most=0) == ["runs.py:1 first has 1 branches, more than 0: make it several"]
    (line,) = tangles(tmp_path, some=0, few=0)
    assert line == "runs.py:1 first has 1 branches, and 1 functions have more than 0: make it several"


def test_tokens_of_a_line_are_counted_without_comments_and_docstrings(tmp_path, monkeypatch):
    (tmp_path / "runs.py").write_text(
        '"""Runs.\n\nOf systems.\n"""\n\n# All.\nx = [\n    1,\n]\n\n\ndef f():\n    """No one."""\n'
    )
    assert lines.density(tmp_path / "runs.py") == (11, 4)  # x = [ 1 , ] and def f ( ) :
    assert lines.crowded(tmp_path) == []
    monkeypatch.setattr(lines, "_TOKENS_PER_LINE", 2)
    assert lines.crowded(tmp_path) == ["a line of code has 2.75 tokens, more than 2: unpack runs.py"]


def test_the_tour_shows_one_stage_whole_in_550_lines() -> None:
    table = (ROOT / "docs/tour.md").read_text().partition("## From a grid to a job")[0]
    shown = [ROOT / path for path in re.findall(r"^\| `(\S+)`", table, re.MULTILINE)]
    assert len(shown) == 5
    assert sum(path.read_text().count("\n") for path in shown) <= 550
