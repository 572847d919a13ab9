"""The table of stages, and what follows from it."""

from __future__ import annotations

import importlib

import pytest
from helpers import rules

from beirgrid.core import stages
from beirgrid.tools import forks


def test_every_rule_has_a_stage_and_every_stage_a_rule():
    assert set(stages.STAGES) == set(rules())


@pytest.mark.parametrize("stage", stages.COMMANDS.values(), ids=lambda stage: stage.command)
def test_stages_with_one_name_in_records_have_one_version_and_the_same_packages(stage):
    assert stage.version == stages.VERSIONS[stage.record]
    assert stage.packages == stages.PACKAGES[stage.record]


@pytest.mark.parametrize("stage", stages.STAGES.values(), ids=lambda stage: stage.rule)
def test_rules_have_the_version_and_the_download_slot_of_their_stage(stage):
    rule = rules()[stage.rule]
    assert rule.params.version == stage.version
    assert rule.resources.get("network") == (1 if stage.downloads else None)


@pytest.mark.parametrize("stage", stages.COMMANDS.values(), ids=lambda stage: stage.command)
def test_the_function_of_a_stage_is_there(stage):
    module, _, name = stage.function.partition(":")
    assert callable(getattr(importlib.import_module(f"beirgrid.{module}"), name))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("encode --model", "models"),
        ("mine --recipe", "models"),
        ("retrieve dense --system", "models"),
        ("retrieve lexical --system", "light"),
        ("index dense --vectors", "light"),
        ("fetch model --name", "light"),
        ("aggregate --grid", "light"),
    ],
)
def test_a_job_is_forked_from_the_server_with_its_libraries(words, kind):
    assert forks._kind(["--settings", "0" * 16, *words.split()]) == kind
