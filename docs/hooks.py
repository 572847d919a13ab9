"""Put pages that are made from the code into the site: tables of keys, and mteb's models and tasks."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File

from beirgrid.config import listing, schema

_TABLES = "<!-- make docs puts the tables of all keys here -->"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made from mteb."""
    for name, page in (("models-table.md", listing.page), ("tasks-table.md", listing.tasks_page)):
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables of keys into the page that has their place."""
    return markdown.replace(_TABLES, schema.tables()) if _TABLES in markdown else markdown
