"""The JSON schema and the key tables of the documentation, made from the typed entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from ..core.checkout import CHECKOUT
from ..core.errors import say
from . import entries
from .endpoint_entries import Endpoint, Price
from .entries import Config, Entry
from .indexes import AnyIndex
from .models import Adapter, Chunks

# Editors check and complete configfiles by this file, which ``make schema`` writes.
SCHEMA = CHECKOUT / "config.schema.json"
# The classes of each section of the page.
_SECTIONS: dict[str, tuple[type[Entry], ...]] = {
    "Settings": (entries.Settings,),
    "`grid`": (entries.GridSettings, entries.ShowSettings),
    "`encode`": (entries.EncodeSettings, entries.BatchTokens),
    "`retrieve`": (entries.RetrieveSettings,),
    "`nodes.cpu`, `nodes.gpu`": (entries.NodeLimits,),
    "`corpora.{name}`": (entries.CorpusEntry, *get_args(get_args(entries.Corpus)[0])),
    "`datasets.{name}`": (entries.Dataset, entries.Statistics),
    "`models.{name}`": (entries.ModelEntry, *get_args(get_args(entries.Model)[0])),
    "`models.{name}.train`": (entries.CrossEncoderTraining, *get_args(get_args(entries.Adaptation)[0])),
    "`models.{name}.prompts`": (entries.Prompts, entries.DatasetPrompts),
    "`models.{name}.brackets`": (entries.Brackets,),
    "`models.{name}.adapter`": (Adapter,),
    "`models.{name}.size`": (entries.ModelSize,),
    "`models.{name}.endpoint`": (Endpoint, Price),
    "`models.{name}.trained_on`": (entries.TrainedOn,),
    "`systems.{name}`": (entries.SystemEntry, *get_args(entries.System)),
    "`systems.{name}.expansion`": (entries.PublishedExpansion, *get_args(get_args(entries.Published)[0])),
    "`systems.{name}.chunks`": (Chunks,),
    "`systems.{name}.index`": get_args(get_args(AnyIndex)[0]),
}


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles of keys, which repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema() -> dict[str, Any]:
    """Return the JSON schema of the merged configuration."""
    return Config.model_json_schema(by_alias=True, schema_generator=_WithoutTitles)


def tables() -> str:
    """Return the sections of the documentation that describe every key, as Markdown."""
    return "\n".join(line for name, kinds in _SECTIONS.items() for line in _section(name, kinds))


def _section(name: str, kinds: tuple[type[Entry], ...]) -> Iterator[str]:
    yield f"## {name}\n"
    shared: set[str] = set()
    for kind in kinds:
        fields = {key: field for key, field in kind.model_fields.items() if key not in shared}
        if heading := _heading(kind) if len(kinds) > 1 else "":
            yield f"### {heading}\n"
        yield f"{(kind.__doc__ or '').strip().splitlines()[0]}\n"
        if fields:
            yield "| key | value | default | meaning |\n|---|---|---|---|"
            yield from (_row(key, field) for key, field in fields.items())
            yield ""
        if kind in (entries.CorpusEntry, entries.ModelEntry, entries.SystemEntry, entries.PublishedExpansion):
            shared |= set(fields)


def _heading(kind: type[Entry]) -> str:
    for key in ("source", "family", "recipe", "fusion", "kind"):
        field = kind.model_fields.get(key)
        if field and get_origin(field.annotation) is Literal:
            return f"`{key}: {get_args(field.annotation)[0]}`"
    named = {
        entries.CorpusEntry: "Every source",
        entries.PublishedExpansion: "Every source",
        entries.ModelEntry: "Every family",
        entries.CrossEncoderTraining: "`family: cross-encoder`",
        entries.Statistics: "`statistics`",
        entries.BatchTokens: "`batch_tokens`",
        Price: "`price`",
        entries.DatasetPrompts: "`datasets.{dataset}`",
        entries.SystemEntry: "Every system",
        entries.Bm25: "`retriever: bm25`",
        entries.DenseRetriever: "`retriever` of a dense model",
        entries.Retriever: "`retriever` of a sparse model",
        entries.LateInteractionRetriever: "`retriever` of a late-interaction model",
        entries.External: "`run`",
        entries.Program: "`command`",
        entries.Reranked: "`first_stage` and `reranker`",
    }
    return named.get(kind, "")


def _row(key: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        shown = "required"
    elif isinstance(default, Entry) or default in (None, (), {}, ""):
        shown = ""
    else:
        shown = f"`{json.dumps(default)}`"
    meaning = (field.description or "").replace("|", "\\|")
    return f"| `{field.alias or key}` | {_type(field.annotation)} | {shown} | {meaning} |"


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments if value != "")
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(argument) for argument in arguments if argument is not NoneType))
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"mapping of names to {_type(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Entry):
        return "mapping"
    return {str: "text", int: "whole number", float: "number", bool: "`true`, `false`"}.get(annotation, "value")


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    say(f"wrote {SCHEMA}")
