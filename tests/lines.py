"""Compare lines of code with their ceilings in pyproject.toml: ``python tests/lines.py``, in ``make lint``.

The folders of the package have ceilings, and so have the rules, the page's script, the plugin, the bench and the
requirements. Ceilings are 1 % above the lines, so that a sentence can be mended. Who adds a feature shows what went in
exchange, or raises a ceiling in a commit that says why.

Functions have ceilings, too: none has more than 20 branches, and few have more than 15. So has density: lines are saved
by ideas, and not by more tokens in a line.
"""

from __future__ import annotations

import ast
import sys
import tokenize
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


# Nodes that are a branch each.
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case, ast.Assert)


# Tokens that a line of code has on average, comments and docstrings left out.
_TOKENS_PER_LINE = 11.2
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


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


def branches(function: ast.AST) -> int:
    """Return the branches, boolean operators, conditional expressions and comprehensions of a function.

    Those of functions within it are their own.
    """
    count = 0
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        count += isinstance(node, _BRANCHES)
        count += len(node.ifs) if isinstance(node, ast.comprehension) else 0
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        count += branches(node)
    return count


def tangles(package: Path, some: int = 15, most: int = 20, few: int = 10) -> list[str]:
    """Return a sentence for each function with more than ``most`` branches, and for all above ``some`` if they are
    more than ``few``.
    """
    counts: dict[str, int] = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                counts[f"{path.relative_to(package)}:{node.lineno} {node.name}"] = branches(node)
    above = {name: count for name, count in counts.items() if count > some}
    if len(above) > few:
        return [
            f"{name} has {count} branches, and {len(above)} functions have more than {some}: make it several"
            for name, count in above.items()
        ]
    return [
        f"{name} has {count} branches, more than {most}: make it several"
        for name, count in above.items()
        if count > most
    ]


def density(path: Path) -> tuple[int, int]:
    """Return the tokens of a file and its lines of code, without comments and docstrings."""
    told: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            told.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    with path.open("rb") as stream:
        found = [token for token in tokenize.tokenize(stream.readline) if token.string and token.type not in _LAYOUT]
    tokens = [token for token in found if token.start[0] not in told]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return len(tokens), len(lines)


def crowded(package: Path) -> list[str]:
    """Return a sentence that names the densest files, if the package has too many tokens per line."""
    found = {path: density(path) for path in package.rglob("*.py")}
    average = sum(tokens for tokens, _ in found.values()) / sum(lines for _, lines in found.values())
    if average <= _TOKENS_PER_LINE:
        return []
    densest = sorted(found, key=lambda path: found[path][0] - _TOKENS_PER_LINE * found[path][1])[-5:]
    names = ", ".join(str(path.relative_to(package)) for path in reversed(densest))
    return [f"a line of code has {average:.2f} tokens, more than {_TOKENS_PER_LINE}: unpack {names}"]


if __name__ == "__main__":
    ceilings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["beirgrid"]["lines"]
    package = ROOT / "workflow" / "beirgrid"
    lines = lines_by_folder(package) + lines_beside(ROOT)
    sys.exit("\n".join([*excesses(lines, ceilings), *tangles(package), *crowded(package)]) or 0)
