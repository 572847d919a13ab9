"""The package does not grow by itself: make lint compares its lines with ceilings."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_line_too_many_fails(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "lines.py", tmp_path / "tests")
    package = tmp_path / "workflow" / "beirgrid"
    (package / "core").mkdir(parents=True)
    (package / "core" / "files.py").write_text("one\ntwo\n")
    pyproject = tmp_path / "pyproject.toml"

    def lint(ceiling: str) -> subprocess.CompletedProcess[str]:
        pyproject.write_text(f"[tool.beirgrid.lines]\n{ceiling}\n")
        command = [sys.executable, tmp_path / "tests" / "lines.py"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert lint("core = 2").returncode == 0
    assert "core has 2 lines, its ceiling in pyproject.toml is 1" in lint("core = 1").stderr
    assert lint("models = 9").returncode == 1  # a folder without a ceiling
