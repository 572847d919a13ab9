"""The package does not grow by itself: make lint compares its lines with ceilings."""

from pathlib import Path

from lines import excesses, lines_by_folder


def test_a_line_too_many_is_an_excess(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core/files.py").write_text("one\ntwo\n")
    found = lines_by_folder(tmp_path)
    assert excesses(found, {"core": 2}) == []
    assert excesses(found, {"core": 1}) == ["core has 2 lines, its ceiling in pyproject.toml is 1"]
    assert excesses(found, {"models": 9}) == ["core has 2 lines, its ceiling in pyproject.toml is 0"]
