"""The JSON schema and the key tables of the documentation follow from the classes, and cover every key."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from helpers import ROOT

from beirgrid import config

sys.path.insert(0, str(ROOT / "docs"))
import hooks

GRIDS = sorted((ROOT / "config" / "grids").glob("*.yaml"))


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    """The schema that ``make schema`` writes."""
    return hooks.schema()


@pytest.fixture(scope="module")
def validator(written) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(written)
    return jsonschema.Draft202012Validator(written)


def test_the_page_of_keys_has_every_key_of_every_class(written):
    page = hooks.on_page_markdown((ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"))
    headings = [line for line in page.splitlines() if line.startswith("## `")]
    for _, kind in _objects(written):
        for key in kind.get("properties", {}):
            assert f"| `{key}` |" in page
    assert {"## `models.{name}.prompts`", "## `nodes.cpu`, `nodes.gpu`", "## `systems.{name}.index`"} <= {*headings}
    assert page.count("| `trust_remote_code` |") == 1  # what all families have stands once


@pytest.mark.parametrize("preset", [None, *GRIDS], ids=lambda path: path.stem if path else "tracked")
def test_the_tracked_configuration_and_every_grid_fit_the_schema(validator, preset):
    validator.validate(config.with_defaults(yaml.safe_load(preset.read_text()) if preset else {}))


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("retrieve", {"depht": 3}),
        ("retrieve", {"depth": 0}),
        ("retrieve", {"depth": "deep"}),
        ("nodes", {"tpu": {"mem_mb": 64_000}}),
        ("corpora", {"x": {"source": "local"}}),
        ("models", {"x": {"family": "sparse", "path": "/x", "similarity": "cosine"}}),
        ("systems", {"x": {"retriever": "bm25", "b": 1.5}}),
    ],
)
def test_the_schema_refuses_what_a_single_entry_may_not_have(validator, section, change):
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(config.with_defaults({section: change}))


def _objects(node: Any, path: str = "top") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield path, node
        for key, value in node.items():
            yield from _objects(value, f"{path}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from _objects(value, path)


def test_every_object_of_the_schema_says_what_else_it_may_hold(written):
    found = list(_objects(written))
    assert len(found) > 30
    assert [path for path, node in found if node.get("additionalProperties") is None] == []


def test_every_key_has_a_description(written):
    for path, node in _objects(written):
        for key, value in node.get("properties", {}).items():
            value = value if "$ref" not in value else written["$defs"][value["$ref"].rpartition("/")[2]] | value
            assert value.get("description", "").endswith("."), f"{path}: {key}"
