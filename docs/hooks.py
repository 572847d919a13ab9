"""Put a table of every key of the configuration into the site, and write its JSON schema (``make schema``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from beirgrid.config.entries import Config
from beirgrid.config.keys import default_of, value_of
from beirgrid.core.checkout import CHECKOUT

SCHEMA = CHECKOUT / "config.schema.json"
_PLACE = "<!-- make docs puts the tables of all keys here -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables of keys into the page that has their place."""
    return markdown.replace(_PLACE, tables()) if _PLACE in markdown else markdown


def schema() -> dict[str, Any]:
    """Return the JSON schema of the merged configuration. The entry of a hub id may leave out its family."""
    top = Config.model_json_schema(by_alias=True)
    models = top["properties"]["models"]
    without_family = {"type": "object", "additionalProperties": True, "not": {"required": ["family"]}}
    models["patternProperties"] = {"/": {"anyOf": [models["additionalProperties"], without_family]}}
    return top


def tables() -> str:
    """Return a section for each place of the configuration, with its keys, as Markdown."""
    top = schema()
    places = {"Config": ["top level"]}
    _note_places(top, "", top["$defs"], places)
    sections: dict[str, list[dict[str, Any]]] = {}
    for name, paths in places.items():
        sections.setdefault(", ".join(f"`{path}`" for path in paths), []).append(top["$defs"].get(name, top))
    return "\n".join(line for heading, kinds in sections.items() for line in _section(heading, kinds))


def _note_places(kind: dict[str, Any], path: str, kinds: dict[str, Any], places: dict[str, list[str]]) -> None:
    """Note under which keys each class below a class stands."""
    for key, value in kind["properties"].items():
        below = f"{path}.{key}".strip(".") + ".{name}" * ("additionalProperties" in value)
        for name in dict.fromkeys(re.findall(r"#/\$defs/(\w+)", json.dumps(value))):
            if "properties" in kinds[name] and below not in places.setdefault(name, []):
                places[name].append(below)
                _note_places(kinds[name], below, kinds, places)


def _section(heading: str, kinds: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a place's table, and a table of each class that may stand there without the keys that all have."""
    keys = [kind["properties"] for kind in kinds]
    shared = {key: value for key, value in keys[0].items() if len(kinds) > 1 and all(k.get(key) == value for k in keys)}
    yield f"## {heading}\n"
    yield from _table(shared)
    for kind, own in zip(kinds, keys, strict=True):
        fixed = [f"`{key}: {value['const']}`" for key, value in own.items() if "const" in value]
        yield f"### {fixed[0] if fixed else kind['title']}\n" if len(kinds) > 1 else ""
        yield f"{kind['description'].splitlines()[0]}\n"
        yield from _table({key: value for key, value in own.items() if key not in shared})


def _table(keys: dict[str, Any]) -> Iterator[str]:
    if keys:
        yield "| key | value | default | meaning |\n|---|---|---|---|"
        yield from (_row(key, value) for key, value in keys.items())
        yield ""


def _row(key: str, value: dict[str, Any]) -> str:
    default = default_of(value)
    shown = f"`{default}`" if default not in ("", "required") else default
    meaning = value.get("description", "A mapping, described below.").replace("|", "\\|")
    return f"| `{key}` | {value_of(value)} | {shown} | {meaning} |"


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
