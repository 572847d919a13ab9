"""Pages of the documentation: mteb's models with who runs each, and its tasks with who reads each (``make docs``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from . import mteb_collections, registry
from .listed import ENGINES, Listed
from .mteb_collections import CLASSES, ListedTask


def page() -> str:
    """Return the page of the models as Markdown."""
    return "\n".join(_lines(registry.models())) + "\n"


def tasks_page() -> str:
    """Return the page of the tasks as Markdown."""
    return "\n".join(_task_lines(mteb_collections.listed())) + "\n"


def _task_lines(tasks: list[ListedTask]) -> Iterator[str]:
    yield (
        f"# Tasks by name\n\nMade from mteb {registry.mteb_version()}, which lists "
        f"{len(tasks)} tasks that rank documents for queries. "
        "[Datasets](datasets.md#name-a-collection-by-its-task) explains how to use one.\n"
    )
    counts, rows = Counter(task.reader for task in tasks), Counter[str]()
    for task in tasks:
        rows[task.reader] += task.rows
    yield "| class | tasks | datasets | meaning |\n|---|---|---|---|"
    yield from (f"| `{name}` | {counts[name]} | {rows[name]} | {meaning} |" for name, meaning in CLASSES.items())
    kinds = Counter(task.kind for task in tasks)
    yield f"\nBy type, mteb has {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}."
    for name, meaning in CLASSES.items():
        yield f"\n## {name}\n\n{meaning[0].upper()}{meaning[1:]}.\n"
        yield "| task | type | datasets | main metric | reason |\n|---|---|---|---|---|"
        for task in tasks:
            if task.reader == name:
                yield f"| `{task.name}` | {task.kind} | {task.rows} | {task.metric} | {task.reason} |"


def _lines(models: list[Listed]) -> Iterator[str]:
    yield (
        f"# Models by name\n\nMade from mteb {registry.mteb_version()}, which lists "
        f"{len(models)} models. [Models](models.md#name-a-model-by-its-id) explains how to use one.\n"
    )
    counts = Counter(model.engine for model in models)
    families = Counter(model.family for model in models if model.engine == "beirgrid")
    yield "| engine | models | meaning |\n|---|---|---|"
    yield from (f"| `{engine}` | {counts[engine]} | {meaning} |" for engine, meaning in ENGINES.items())
    listed = ", ".join(f"{count} {family}" for family, count in families.most_common())
    yield f"\nBy family, beirgrid's own engine runs {listed}."
    for engine, meaning in ENGINES.items():
        yield f"\n## {engine}\n\n{meaning[0].upper()}{meaning[1:]}.\n"
        yield "| model | family | reason |\n|---|---|---|"
        for model in models:
            if model.engine == engine:
                yield f"| `{model.name}` | {model.family} | {model.reason} |"
