"""Compare the lines of the package with their ceilings in pyproject.toml: ``python tests/lines.py``, in ``make lint``.

Who adds a feature shows what went in exchange, or raises a ceiling in a commit that says why.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lines_by_folder(package: Path) -> Counter[str]:
    """Return the lines of Python of each folder of the package, and of its own modules as ``beirgrid``."""
    lines: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        folders = path.relative_to(package).parts[:-1]
        lines[folders[0] if folders else package.name] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def excesses(lines: Counter[str], ceilings: dict[str, int]) -> list[str]:
    """Return a sentence for each folder above its ceiling, and for each folder without one."""
    return [
        f"{folder} has {count:,} lines, its ceiling in pyproject.toml is {ceilings.get(folder, 0):,}"
        for folder, count in sorted(lines.items())
        if count > ceilings.get(folder, 0)
    ]


if __name__ == "__main__":
    ceilings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["beirgrid"]["lines"]
    sys.exit("\n".join(excesses(lines_by_folder(ROOT / "workflow" / "beirgrid"), ceilings)) or 0)
