"""Models that a server runs: how it is asked, and what it charges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from ..core.errors import ConfigError
from .values import Entry, NotNegative, Positive, Size

# Keys that decide which numbers a server gives. The others say how it is reached, and change no result.
IDENTITY = ("model", "revision", "dimensions", "max_characters", "protocol", "body", "query_body")
# Keys of a request with its texts, in each protocol: another value would be scored in place of them.
_TEXTS = {"input", "messages", "query", "documents", "texts"}
ADDRESS = r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/[\w.~:/\[\]!$&()*+,;=%-]*)?"  # no user, no query
_URL = rf"^(\$[A-Za-z_][A-Za-z0-9_]*|{ADDRESS})$"


class Price(Entry):
    """What a server charges, in any currency."""

    input: NotNegative = Field(0.0, description="Price of a million tokens that the model reads.")
    output: NotNegative = Field(0.0, description="Price of a million tokens that the model writes.")
    request: NotNegative = Field(0.0, description="Price of a thousand requests.")


class Endpoint(Entry):
    """A model that a server runs: it embeds texts, scores documents for a query, or answers messages."""

    model: str = Field(min_length=1, description="Name under which the server knows the model.")
    revision: str = Field("", description="Version of the model that its publisher states, for the records.")
    dimensions: Size | None = Field(None, description="Dimensions to ask for. By default, the server's own.")
    max_characters: Size | None = Field(
        None, description="Characters of each text to send: servers refuse longer ones."
    )
    protocol: Literal["cohere", "tei"] = Field(
        "cohere", description="Form of rerank requests: Cohere's (also Jina, vLLM, infinity), or TEI's."
    )
    body: dict[str, JsonValue] = Field({}, description="Keys to add to each request. null takes a key out.")
    query_body: dict[str, JsonValue] = Field({}, description="Keys to add to requests with queries, over body.")
    url: Annotated[str, Field(pattern=_URL)] | None = Field(
        None,
        description="Address before /embeddings, /rerank or /chat/completions, without user and password, or $NAME "
        "for the environment variable that has it.",
    )
    key: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="Name of the environment variable with the key of the account, not the key itself."
    )
    batch: Size = Field(32, description="Texts per request.")
    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(4, description="Requests of a job at the same time.")
    timeout: Positive = Field(120.0, description="Seconds without a byte of an answer before a request is repeated.")
    price: Price = Field(Price(), description="What the server charges.")
    budget: Positive | None = Field(None, description="Price at which jobs stop, before it is exceeded.")

    def _problems(self) -> Iterator[str]:
        if self.url is None:
            yield "needs the key 'url'"
        if replaced := sorted(_TEXTS & {*self.body, *self.query_body}):
            yield f"body replaces the texts of a request by the key {replaced[0]!r}; leave it out"
        if self.budget and self.price == Price():
            yield "a budget needs a price"
        if self.budget and self.price.output and not self.longest_answer():
            yield "a budget needs body: {max_tokens: …} (or max_completion_tokens) if the output has a price"

    def longest_answer(self) -> int:
        """Return how many tokens the model may write; 0 unless ``body`` limits them."""
        most = self.body.get("max_tokens") or self.body.get("max_completion_tokens")
        return max(most, 0) if isinstance(most, int) else 0

    def identity(self) -> dict[str, JsonValue]:
        """Return the given keys that decide which numbers the server gives."""
        return self.own_keys(*IDENTITY)

    def connection(self) -> dict[str, JsonValue]:
        """Return the given keys that say how the server is reached."""
        return {key: value for key, value in self.own_keys().items() if key not in IDENTITY}

    def connected(self, connection: str) -> Endpoint:
        """Return the endpoint with the connection settings from JSON; raise ConfigError if it cannot be asked."""
        endpoint = Endpoint.model_validate_json(json.dumps({**json.loads(connection or "{}"), **self.identity()}))
        if problems := "; ".join(endpoint._problems()):
            raise ConfigError(f"endpoint {endpoint.model}: {problems}")
        return endpoint
