"""The JSON schema and the key tables of the documentation follow from the classes, and cover every key."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from helpers import ROOT, tracked_configuration
from pydantic import BaseModel

from beirgrid.config import entries, schema

GRIDS = sorted((ROOT / "config" / "grids").glob("*.yaml"))


@pytest.fixture(scope="module")
def tracked() -> dict[str, Any]:
    """The tracked configuration, merged as Snakemake merges it."""
    return tracked_configuration()


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    """The schema that ``make schema`` writes."""
    return schema.schema()


def test_the_page_of_keys_has_the_tables():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert hooks.on_page_markdown(page).count("| key | value |") > 20


@pytest.mark.parametrize("preset", [None, *GRIDS], ids=lambda path: path.stem if path else "tracked")
def test_the_tracked_configuration_and_every_grid_fit_the_schema(tracked, written, preset):
    from snakemake.utils import update_config

    merged = copy.deepcopy(tracked)
    if preset:
        update_config(merged, yaml.safe_load(preset.read_text()))
    jsonschema.Draft202012Validator.check_schema(written)
    jsonschema.validate(merged, written, cls=jsonschema.Draft202012Validator)


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
def test_the_schema_refuses_what_a_single_entry_may_not_have(tracked, written, section, change):
    merged = {**tracked, section: {**tracked.get(section, {}), **change}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged, written, cls=jsonschema.Draft202012Validator)


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


def _kinds(kind: type[BaseModel]) -> set[type[BaseModel]]:
    """Return the classes that a class and those of its keys are made of."""
    found, left = set(), [kind]
    while left:
        one = left.pop()
        if isinstance(one, type) and issubclass(one, BaseModel) and one not in found:
            found.add(one)
            left += [field.annotation for field in one.model_fields.values()]
        else:
            left += getattr(one, "__args__", ())
    return found


def test_every_class_has_its_table():
    tabled = {kind for kinds in schema._SECTIONS.values() for kind in kinds}
    assert _kinds(entries.Config) - {entries.Config, entries.Nodes} <= tabled
