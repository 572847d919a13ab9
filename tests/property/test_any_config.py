"""Any configuration is loaded, or refused in one message that names the key."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from graph import everything
from helpers import tracked_configuration
from hypothesis import example, given
from hypothesis import strategies as st

from beirgrid import config
from beirgrid.core.errors import ConfigError
from beirgrid.graph.grid import Grid
from beirgrid.graph.summaries import Summary

KEPT = {
    "corpora": ["demo", "scifact", "miracl-sw", "bright-leetcode", "nano-scifact", "cqadupstack-gis", "robust04"],
    "models": [
        *("minilm", "dpr", "dpr-question", "colbertv2", "splade-v3", "doct5query", "ms-marco-minilm", "demo-reranker"),
        *("genq-queries", "minilm-genq", "minilm-gpl", "minilm-tsdae"),
    ],
    "systems": [
        *("bm25", "bm25-flat", "minilm", "dpr", "splade-v3", "colbertv2", "doct5query", "bm25+minilm"),
        *("bm25+minilm-wsum", "bm25+ce", "bm25+demo-ce", "minilm-genq", "minilm-gpl"),
    ],
}


def _small_configuration() -> dict[str, Any]:
    """Return a part of the tracked configuration that has systems, models and sources of every kind."""
    raw = tracked_configuration()
    for section, names in KEPT.items():
        raw[section] = {name: raw[section][name] for name in names}
    datasets = {name: entry for name, entry in raw["datasets"].items() if entry.get("corpus") in KEPT["corpora"]}
    raw["datasets"] = {**datasets, "mean": {"mean_of": ["scifact", "demo"]}}
    for model in raw["models"].values():
        model.pop("trained_on", None)  # most name collections that are left out
        for of_datasets in (model.get("prompts", {}).get("datasets", {}), model.get("query_lengths", {})):
            for name in set(of_datasets) - set(datasets):
                del of_datasets[name]
    raw["grid"] = {
        "systems": [name for name in KEPT["systems"] if name != "bm25+demo-ce"],
        "datasets": ["demo", "mean", "miracl-sw"],
    }
    return raw


SMALL = _small_configuration()
KEYS = st.text(max_size=4) | st.sampled_from(
    [
        *("bm25", "minilm", "demo", "mean", "train", "retriever", "path", "mean_of", "fusion", "of", "first_stage"),
        *("x\n", "a b", "{x}", "<x>", "..", "a/b", "$(id)", "", "x" * 300, 1, True, None, 1.5),
    ]
)
VALUES = st.one_of(
    st.sampled_from([None, True, False, 0, -1, 1, 10**30, 2**31 - 1, 0.5, 1000.0, math.nan, math.inf, -math.inf]),
    st.sampled_from(
        ["", "\n", "minilm", "bm25", "demo", "~nobody/x", "x" * 5000, "\x00", "a" * 40, "ndcg@10\n", "p@01"]
    ),
    st.text(max_size=4),
    st.lists(KEYS, max_size=2),
    st.dictionaries(KEYS, st.none() | st.integers() | KEYS, max_size=2),
)


def _walk(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the paths of all values of a configuration."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, child in children for found in [(*path, key), *_walk(child, (*path, key))]]


PATHS = _walk(SMALL)
MUTATIONS = st.tuples(
    st.sampled_from(PATHS), st.sampled_from(["delete", "replace", "rename", "add", "move"]), VALUES, KEYS
)


def _mutate(raw: dict[str, Any], path: tuple[Any, ...], how: str, value: Any, key: Any) -> None:
    """Change the value at a path, if earlier mutations left one."""
    *parents, last = path
    place: Any = raw
    try:
        for parent in parents:
            place = place[parent]
        old = place[last]
    except (KeyError, IndexError, TypeError):
        return
    if how == "replace":
        place[last] = value
    elif how == "add" and isinstance(old, dict):
        old[key] = value
    elif how == "add" and isinstance(old, list):
        old.append(value)
    elif isinstance(place, dict):
        del place[last]
        if how == "rename":
            place[key] = old
        elif how == "move":
            raw[key] = old
    elif isinstance(place, list):
        place.pop(last)


def _load(raw: dict[str, Any]) -> str | None:
    """Load a configuration and plan its grid; return the message if it is refused."""
    try:
        grid = Grid(config.load(raw))
        Summary(grid).notice()
        assert everything(grid)
    except ConfigError as error:
        return str(error)
    return None


def test_the_small_configuration_is_loaded():
    assert _load(copy.deepcopy(SMALL)) is None


@given(st.lists(MUTATIONS, min_size=1, max_size=3))
@example([(("retrieve", "depth"), "replace", 1000.0, "")])
@example([(("retrieve", "depth"), "replace", math.nan, "")])
@example([(("models",), "add", {}, None)])
@example([(("grid", "systems"), "replace", [], "")])
@example([(("tolerances",), "add", {1: 2}, "x\n")])
@example([(("corpora", "demo", "path"), "replace", "x" * 5000, "")])
@example([(("corpora", "demo", "path"), "replace", "\x00", "")])
@example([(("models", "minilm-gpl", "train", "teacher"), "rename", None, "")])
def test_any_mutation_is_loaded_or_refused_by_name(mutations):
    raw = copy.deepcopy(SMALL)
    for mutation in mutations:
        _mutate(raw, *mutation)
    message = _load(raw)
    if message is None:
        for path, how, value, _ in mutations:
            assert not (how == "replace" and path == ("retrieve", "depth") and isinstance(value, str | float))
    else:
        first, *problems = message.split("\n")
        assert first == "the configuration cannot be run:"
        assert problems
        assert all(problem.startswith("  - ") for problem in problems), message
        assert len(max(problems, key=len)) < 1000, message


@given(
    st.recursive(
        VALUES, lambda inner: st.dictionaries(st.sampled_from(list(SMALL)) | KEYS, inner, max_size=8), max_leaves=20
    )
)
def test_anything_else_is_refused(raw):
    if isinstance(raw, dict):
        with pytest.raises(ConfigError, match="the configuration cannot be run:"):
            config.load(raw)
