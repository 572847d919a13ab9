"""Models that answer messages for an evaluation set: a served model, or a decoder on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ..config.load import read_yaml
from ..config.models import Endpoint
from ..config.values import explain
from ..core import files
from ..core.compute import Compute
from ..core.errors import ConfigError
from ..models.endpoints import Client, kept_answers


class Question(NamedTuple):
    """A request to a model: the function that makes a message from a passage, and the passage, which may be cut."""

    message: Callable[[str], str]
    passage: str


class Chat(NamedTuple):
    """A model that answers messages.

    Attributes:
        name: name of the model.
        identity: what decides its answers, for the records.
        answers: returns the answer to each question, in order.
    """

    name: str
    identity: dict[str, Any]
    answers: Callable[[Iterable[Question]], Iterator[str]]


@contextmanager
def open_chat(model: Path, folder: Path, purpose: str) -> Iterator[Chat]:
    """Open a model that answers messages.

    Args:
        model: checkpoint of a decoder, or a YAML file with an ``endpoint``.
        folder: folder of the evaluation set; ``spent.tsv`` in it lists what a server's answers took.
        purpose: name under which a server's answers are kept until all are there.
    """
    if model.is_dir():
        from ..encoders.chat import DecoderChat

        decoder = DecoderChat(model, Compute().start())
        yield Chat(model.resolve().name, checkpoint_identity(model), partial(starmap, decoder.answer))
        return
    endpoint = read_endpoint(model)
    with kept_answers(folder / purpose) as answers:
        client = Client(endpoint, folder / "spent.tsv", answers)

        def ask(question: Question) -> str:
            message = question.message(question.passage[: endpoint.max_characters])
            return client.chat([{"role": "user", "content": message}])

        yield Chat(endpoint.model, {"endpoint": endpoint.identity()}, partial(client.each, ask))


def checkpoint_identity(checkpoint: Path) -> dict[str, Any]:
    """Return the name of a checkpoint and the hashes of its weights."""
    weights = {path.name: files.sha256(path) for path in sorted(checkpoint.glob("*.safetensors"))}
    return {"checkpoint": checkpoint.resolve().name, "sha256": weights}


def read_endpoint(path: Path) -> Endpoint:
    """Read a YAML file with the key ``endpoint``, in the form of model entries.

    Raises:
        ConfigError: the file is not valid; names the wrong key.
    """
    content = read_yaml(path)
    if not isinstance(content, dict) or list(content) != ["endpoint"]:
        raise ConfigError(f"{path} should have one key, endpoint, with the model and the address of its server")
    try:
        return Endpoint.model_validate(content["endpoint"], context=content)
    except ValidationError as error:
        raise ConfigError("\n".join(explain(error, f"{path}: endpoint", content["endpoint"]))) from None
