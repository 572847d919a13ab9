"""A workflow that uses this one as a module, beside rules of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from helpers import ROOT, snakemake

# Names that end like this workflow's rules, with other outputs.
pytestmark = pytest.mark.slow  # whole processes
PAGE = (ROOT / "docs/extending.md").read_text()
SNAKEFILE = re.search(r"```python\n(from beirgrid.core.checkout .*?)```", PAGE, re.DOTALL)[1]
OWN_HANDLER = """
onstart:
    Path("own").mkdir(exist_ok=True)
    Path("own/started.txt").touch()

"""
OWN_RULES = """
rule my_train:
    output: "own/model.txt"
    shell: "echo model > {output}"

rule x_report:
    input: rules.my_train.output, "results/datasets/demo/dataset.json"
    output: page="own/page.txt"
    shell: "cat {input} > {output}"
"""
FETCHED = "results/datasets/demo/dataset.json"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of foreign rules and of two rules of the module."""
    folder = tmp_path_factory.mktemp("module")
    (folder / "Snakefile").write_text(OWN_HANDLER + SNAKEFILE + OWN_RULES)
    (folder / "grid.yaml").write_text(yaml.safe_dump({"grid": {"systems": ["bm25-flat"], "datasets": ["demo"]}}))
    done = _run(folder)
    assert done.returncode == 0, done.stdout
    return folder


def _run(folder: Path, *options: str):
    return snakemake(
        "--snakefile", folder / "Snakefile", "--directory", folder, "--cores", "1", *options, "own/page.txt"
    )


def test_the_example_of_a_module_has_nine_lines():
    assert len([line for line in SNAKEFILE.splitlines() if line]) <= 9


def test_the_handlers_of_a_module_run(used):
    assert "demo" in (used / "results/grids/grid/grid.json").read_text()
    assert (used / "results/status.jsonl").is_file()
    assert (used / "own/started.txt").is_file()


def test_foreign_rules_named_as_rules_of_the_module_run_beside_it(used):
    again = _run(used)
    assert again.returncode == 0, again.stdout
    assert "Nothing to be done" in again.stdout


def test_the_module_still_watches_the_records_of_its_own_rules(used):
    record = used / FETCHED
    content = record.read_text()
    try:
        record.write_text(content[: len(content) // 2])
        again = _run(used, "--dry-run")
    finally:
        record.write_text(content)
    assert again.returncode == 0, again.stdout
    assert f"replacing what is there: {FETCHED} ({FETCHED} is damaged (" in again.stdout
    assert "beir_fetch_dataset" in again.stdout
