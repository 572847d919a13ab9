"""Models that answer messages for an evaluation set: a served model, or a decoder on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import starmap
from pathlib import Path

from ..core import files
from ..core.compute import Compute
from ..models.endpoints import Client, kept_answers
from .model_judge import Chat, Question, read_endpoint


@contextmanager
def opened(model: Path, folder: Path, purpose: str) -> Iterator[Chat]:
    """Open a model that answers messages.

    Args:
        model: checkpoint of a decoder, or a YAML file with an ``endpoint``.
        folder: folder of the evaluation set; ``spent.tsv`` in it lists what a server's answers took.
        purpose: name under which a server's answers are kept until all are there.
    """
    if model.is_dir():
        from ..encoders.chat import DecoderChat

        weights = {path.name: files.sha256(path) for path in sorted(model.glob("*.safetensors"))}
        name = model.resolve().name
        with Compute().start() as runtime:
            decoder = DecoderChat(model, runtime)
            yield Chat(name, {"checkpoint": name, "sha256": weights}, partial(starmap, decoder.answer))
        return
    endpoint = read_endpoint(model)
    with kept_answers(folder / purpose) as answers:
        client = Client(endpoint, folder / "spent.tsv", answers)

        def ask(question: Question) -> str:
            message = question.message(question.passage[: endpoint.max_characters])
            return client.chat([{"role": "user", "content": message}])

        yield Chat(endpoint.model, {"endpoint": endpoint.identity()}, partial(client.each, ask))
