"""Compare lines of code with their ceilings in pyproject.toml: ``python tests/lines.py``, in ``make lint``.

The folders of the package have ceilings, and so have the rules, the page's script, the plugin, the bench and the
requirements. Ceilings are 1 % above the lines, so that a sentence can be mended. Who adds a feature shows what went in
exchange, or raises a ceiling in a commit that says why.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


# Code beside the package, by the patterns of its files.
BESIDE = {
    "bench": "bench/*.py",
    "page.js": "workflow/report/page.js",
    "plugin": "workflow/snakemake_logger_plugin_beirgrid/*.py",
    "requirements": "requirements/*.py",
    "rules": "workflow/rules/*.smk",
}


def lines_beside(root: Path) -> Counter[str]:
    """Return the lines of the code beside the package."""
    return Counter({name: sum(map(_lines, root.glob(pattern))) for name, pattern in BESIDE.items()})


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def lines_by_folder(package: Path) -> Counter[str]:
    """Return the lines of Python of each folder of the package, and of its own modules as ``beirgrid``."""
    lines: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        folders = path.relative_to(package).parts[:-1]
        lines[folders[0] if folders else package.name] += _lines(path)
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
    lines = lines_by_folder(ROOT / "workflow" / "beirgrid") + lines_beside(ROOT)
    sys.exit("\n".join(excesses(lines, ceilings)) or 0)
