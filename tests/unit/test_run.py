"""``beirgrid run``: the grid that its words describe, and the arguments of Snakemake."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import checkpoints
import numpy as np
import pages
import pytest
import yaml
from helpers import ROOT, beirgrid
from sentence_transformers import SentenceTransformer

from beirgrid.__main__ import main
from beirgrid.config.load import merged
from beirgrid.config.models import DenseModel
from beirgrid.core import checkout
from beirgrid.core.errors import ConfigError, DataError
from beirgrid.graph.grid import Grid
from beirgrid.graph.summaries import Summary
from beirgrid.models import saved
from beirgrid.tools.run import configuration, entries_of_collection, entries_of_model, find_grid, keep_grid, profile


def written(folder: Path) -> dict:
    (path,) = folder.glob("results/grids/*/grid.yaml")
    return yaml.safe_load(path.read_text())


@pytest.mark.slow
def test_systems_and_datasets_need_no_file(tmp_path):
    """A profile of the working directory is used only if it is named."""
    foreign = tmp_path / "profiles/default/config.yaml"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("config: ['device=nonsense']\n")
    words = ("run", "--systems", "bm25,minilm", "--datasets", "demo", "-n")
    done = beirgrid(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    jobs = re.match(r"Dry run \(-v lists each job\): 12 new: (.*)", " ".join(done.stdout.split()))[1]
    assert {"fetch_corpus", "encode_dense", "2×evaluate", "aggregate"} <= {*jobs.split(", ")}
    grid = {"name": "bm25-minilm-demo", "systems": ["bm25", "minilm"], "datasets": ["demo"]}
    assert written(tmp_path)["grid"] == grid
    named = beirgrid(*words, "--workflow-profile", foreign.parent, cwd=tmp_path)
    assert named.returncode == 1
    assert "nonsense" in named.stdout + named.stderr


@pytest.mark.parametrize(("typed", "meant"), [("--systms", "--systems"), ("--keep-giong", "--keep-going")])
def test_an_unknown_option_is_one_line_with_the_nearest_one(tmp_path, typed, meant):
    done = beirgrid("run", "demo", typed, "-n", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"beirgrid: error: unrecognized arguments: {typed}; did you mean '{meant}'?\n"


@pytest.mark.parametrize("more", [[], ["--config", "seed=3"]])
def test_a_device_is_an_option(tmp_path, monkeypatch, more):
    started = []
    monkeypatch.setattr("os.execv", lambda program, words: started.append(words))
    main(["run", "demo", "all", "--device", "cpu", *more])
    (words,) = started
    assert words[words.index("all") :] == ["all", "--config", "device=cpu", *more[1:]]


@pytest.mark.slow
def test_options_and_targets_of_snakemake_are_passed_on(tmp_path):
    """A file after --configfile is merged over the grid."""
    (tmp_path / "grid.yaml").write_text("grid: {name: mine, systems: [bm25-flat], datasets: [scifact]}\n")
    (tmp_path / "more.yaml").write_text("grid: {datasets: [demo]}\n")
    options = ("-n", "--cores", "1", "--directory", "there", "--configfile", "more.yaml")
    done = beirgrid("run", "grid.yaml", "all", "analyses", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "scifact" not in done.stdout
    jobs = re.match(r"Dry run \(-v lists each job\): 8 new: (.*)", " ".join(done.stdout.split()))[1]
    assert "analyses" in jobs.split(", ")
    assert (tmp_path / "there").is_dir()
    assert not (tmp_path / ".snakemake").exists()


def test_a_folder_is_a_dataset_or_a_model(tiny_models, tmp_path, monkeypatch):
    """A collection in BEIR layout, and a checkpoint."""
    folder = pages.folder(tmp_path / "notes")
    monkeypatch.chdir(tmp_path)
    keep_grid(
        configuration([], ["./notes", "demo"], model=str(tiny_models["dense"]), against=["bm25-flat", "bm25"]), Path()
    )
    content = written(tmp_path)
    assert content["grid"]["datasets"] == ["notes", "demo"]
    assert content["corpora"] == {"notes": {"source": "local", "path": str(folder)}}
    name = content["grid"]["systems"][-1]
    assert merged(more=content).models[name].family == "dense"
    assert content["grid"]["systems"] == ["bm25-flat", "bm25", name]
    assert content["grid"]["compare"] == [name, "bm25-flat", "bm25"]
    assert content["models"][name]["path"] == str(tiny_models["dense"].resolve())


@pytest.mark.parametrize("name", ["", "qrels.tsv", "qrels/test.csv", "Qrels/test.tsv", "qrels/test.TSV"])
def test_a_folder_without_judgements_is_no_dataset(tmp_path, monkeypatch, capsys, name):
    """A name like that of qrels is told, also where a grid names the folder, which runs without scores."""
    folder = pages.folder(tmp_path / "notes")
    shutil.rmtree(folder / "qrels")
    if name:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--systems", "bm25-flat", "--datasets", "notes", "-n"]) == 1
    shown = f" ({name.removesuffix('/test.tsv')}: such names are not read)" if name else ""
    lacking = f"has no qrels/test.tsv{shown}\n"
    assert f"{folder} needs relevance judgements in qrels/test.tsv: it {lacking}" in capsys.readouterr().err
    own = {"corpora": {"own": {"source": "local", "path": str(folder)}}, "datasets": {"own": {"corpus": "own"}}}
    grid = Grid(merged(more={**own, "grid": {"systems": ["bm25"], "datasets": ["own"]}}))
    assert f"{Summary(grid).notice()}\n" == f"own will have no scores: {folder} {lacking}"
    fiqa = {"corpora": {"fiqa": {"source": "local", "path": str(folder), "documents": None}}}
    grid = Grid(merged(more={**fiqa, "grid": {"systems": ["bm25"], "datasets": ["fiqa-dev"]}}))
    assert f"{folder} has no qrels/dev.tsv" in Summary(grid).notice()
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels/dev.tsv").touch()
    assert entries_of_collection("notes")[1]["datasets"]["notes"]["split"] == "dev"
    assert f"{lacking[:-1]}: its scores are those of qrels/dev.tsv\n" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["dense", "late-interaction", "cross-encoder", "splade"])
def test_the_files_of_a_checkpoint_say_its_family(tiny_models, family):
    _, entries = entries_of_model(str(tiny_models[family]), "sparse" if family == "splade" else "")
    (entry,) = entries["models"].values()
    (system,) = entries["systems"].values()
    assert entry["family"] == {"splade": "sparse"}.get(family, family)
    assert system.get("first_stage") == ("bm25" if family == "cross-encoder" else None)


@pytest.mark.parametrize(
    ("save", "family"),
    [
        (checkpoints.save_score_modules, "cross-encoder"),  # with a Pooling, as a dense model
        (checkpoints.save_inference_free, "sparse"),  # with a Router alone
        (checkpoints.save_static, "dense"),
    ],
)
def test_the_class_that_saved_a_checkpoint_says_its_family(tmp_path, save, family):
    save(tmp_path / "mine")
    _, entries = entries_of_model(str(tmp_path / "mine"))
    assert entries["models"]["mine"]["family"] == family


@pytest.mark.parametrize(
    ("prompts", "default", "taken"),
    [
        ({"query": "query: ", "document": "passage: "}, None, True),
        ({"query": "query: "}, None, True),
        ({"query": "", "document": ""}, None, False),
        ({"query": "query: ", "passage": "passage: "}, None, False),  # the fetch asks what is meant
        ({"query": "query: "}, "query", False),
        ({"s2p_query": "Instruct: "}, None, False),
    ],
)
def test_prompts_of_a_folder_are_put_before_texts_as_sentence_transformers_puts_them(
    tiny_models, tmp_path, prompts, default, taken
):
    folder = shutil.copytree(tiny_models["dense"], tmp_path / "m")
    settings = {"prompts": prompts, "default_prompt_name": default}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (entry,) = entries_of_model(str(folder))[1]["models"].values()
    assert entry.get("prompts") == ({"own": True} if taken else None)
    put = saved.prompts(folder, DenseModel(**entry))
    model = SentenceTransformer(str(folder), device="cpu")
    if taken:
        for side, encode in (("query", model.encode_query), ("document", model.encode_document)):
            assert np.array_equal(encode("wing flutter"), model.encode(put[side] + "wing flutter"))


@pytest.mark.parametrize("normalises", [True, False])
@pytest.mark.parametrize("stated", [{"similarity_fn_name": "dot"}, {"similarity_fn_name": "cosine"}, {}, None])
def test_a_folder_is_compared_as_sentence_transformers_compares_it(tiny_models, tmp_path, capsys, stated, normalises):
    folder = shutil.copytree(tiny_models["dense"], tmp_path / "m")
    if normalises:
        modules = json.loads((folder / "modules.json").read_text())
        last = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
        (folder / "modules.json").write_text(json.dumps([*modules, last]))
    settings = folder / "config_sentence_transformers.json"
    settings.unlink() if stated is None else settings.write_text(json.dumps(stated))
    ((entry,), said) = entries_of_model(str(folder))[1]["models"].values(), capsys.readouterr().err
    assert entry["similarity"] == SentenceTransformer(str(folder), device="cpu").similarity_fn_name
    taken = f"{folder} states no similarity: vectors are compared by cosine, as in sentence-transformers and mteb."
    assert (taken in said) == (not stated and not normalises)


def test_a_model_of_the_hub_is_pinned_when_it_is_fetched(capsys):
    assert entries_of_model("owner/some-model") == ("owner/some-model", {})  # which mteb knows, or nobody
    name, entries = entries_of_model("owner/some-model", "dense")
    assert name == "some-model"
    pinned = {"checkpoint": "owner/some-model", "revision": "resolve"}
    assert entries["models"][name] == {**pinned, "family": "dense", "similarity": "cosine"}
    assert "owner/some-model states no similarity: vectors are compared by cosine" in capsys.readouterr().err


def test_a_registered_system_needs_no_entry_and_a_registered_name_is_not_taken():
    assert entries_of_model("minilm") == ("minilm", {})
    assert entries_of_model("sentence-transformers/minilm", "dense")[0] == "my-minilm"


@pytest.mark.parametrize(
    ("model", "content", "said"),
    [
        ("minilmm", None, "did you mean 'minilm'?"),
        ("folder", None, "it is no checkpoint"),
        ("folder", '{"architectures": ["BertModel"]}', r"do not say its family \(BertModel\); add --family"),
        ("folder", '{"architectures": null}', "do not say its family"),
        ("folder", "{", "is damaged .*Expecting property name"),
    ],
)
def test_a_model_that_cannot_be_one_is_refused(model, content, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    if content:
        (tmp_path / "folder/config.json").write_text(content)
    with pytest.raises((ConfigError, DataError), match=said):
        entries_of_model(model)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which grid? Name a configfile"),
        (["--systms", "bm25"], " with --datasets; did you mean '--systems'?\n"),
        (["papr"], "no ready-made grid of that name; did you mean 'paper'?"),
        (["--systems", "bm26", "--datasets", "demo"], "bm26"),
        (["--systems", "bm25", "--configfile", "a.yaml"], "which grid? Name a configfile"),
        (["--datasets", "demo", "--configfile", "a.yaml"], "which grid? Name a configfile"),
        (["paper", "--datasets", "demo"], "which grid? Name a configfile"),
        (["--datasets", "demo"], "grid.systems"),
        (["--configfile", "gone.yaml"], "there is no configfile gone.yaml\n"),
        (["--systems", "bm25", "--datasets", "./nosuch"], "there is no folder ./nosuch\n"),
        (["--model", "./nosuch"], "there is no folder ./nosuch\n"),
    ],
    ids=" ".join,
)
def test_a_grid_that_cannot_run_is_refused_in_one_message(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("beirgrid run: error: ")
    assert said in error
    assert not (tmp_path / "results").exists()


def test_ready_made_grids_and_profiles_are_found_from_any_folder(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_grid("paper") == root / "config/grids/paper.yaml"
    assert profile("slurm") == profile("profiles/slurm") == str(root / "profiles/slurm")
    assert profile("of-my-group") == "of-my-group"
    (tmp_path / "slurm").mkdir()  # one's own
    assert profile("slurm") == "slurm"


def test_a_changed_checkout_says_so(tmp_path):
    file = tmp_path / "file"
    file.write_text("one")
    for command in ("init -q", "add -A", "-c user.name=x -c user.email=x commit -qm all"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    name = checkout.commit(tmp_path)
    assert len(name) == 9
    file.write_text("two")
    changed = checkout.commit(tmp_path)
    assert re.fullmatch(rf"{name}\.dirty\.[0-9a-f]{{9}}", changed)
    file.touch()
    assert checkout.commit(tmp_path) == changed
    file.write_text("three")
    assert checkout.commit(tmp_path) not in (name, changed)
    file.write_text("one")
    assert checkout.commit(tmp_path) == name


def test_a_folder_without_git_has_no_commit(tmp_path, monkeypatch):
    assert checkout.commit(tmp_path) == ""
    (tmp_path / ".git").mkdir()  # and no git to read it
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checkout.commit(tmp_path) == ""


def test_slurm_without_its_plugin_ends_in_the_command_that_installs_it(tmp_path):
    """An environment with links to all libraries but the plugin."""
    venv.create(tmp_path / "venv")
    library = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")}))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith("snakemake_executor_plugin_slurm"):
            (library / path.name).symlink_to(path)
    python = tmp_path / "venv/bin/python"
    install = f"{python} -m pip install snakemake-executor-plugin-slurm"
    said = f"beirgrid: error: SLURM needs a package that is not installed: {install}\n"
    for command, folder in [("beirgrid run demo", tmp_path), ("snakemake", ROOT)]:
        asked = [python, "-m", *command.split(), "--profile", "slurm"]
        done = subprocess.run(asked, cwd=folder, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (1, said)
