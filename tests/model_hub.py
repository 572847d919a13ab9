"""A model hub on the loopback interface: the part of the Hugging Face hub's API that its client uses."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import loopback


@dataclass
class ModelHub:
    """Repositories by name and commit, and the requests for them. Names of datasets begin with ``datasets/``."""

    url: str = ""
    commits: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    main: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def commit(self, repository: str, contents: dict[str, bytes]) -> str:
        """Add a commit to the branch main; return its name."""
        digest = hashlib.sha1(repr((repository, sorted(contents.items()))).encode()).hexdigest()
        self.commits[repository, digest] = contents
        self.main[repository] = digest
        return digest

    def push(self, repository: str, folder: Path) -> str:
        """Add a folder as a commit to the branch main; return its name."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return self.commit(repository, {str(path.relative_to(folder)): path.read_bytes() for path in paths})

    def downloaded(self) -> set[str]:
        """List the files whose content was requested."""
        return {path.split("/", 5)[5] for path in self.asked if path.startswith("GET /") and "/resolve/" in path}

    def environment(self, home: Path) -> dict[str, str]:
        """Return the environment in which the hub's client uses this hub."""
        return {
            **os.environ,
            **{"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1", "HF_HOME": str(home)},
        }


def _handler(hub: ModelHub) -> type[loopback.Handler]:
    class Handler(loopback.Handler):
        def _json(self, value: Any) -> None:
            self.answer(json.dumps(value).encode(), Content_Type="application/json")

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            api = path.startswith("/api/")
            kind = "datasets/" if path.startswith(("/api/datasets/", "/datasets/")) else ""
            place = path.removeprefix("/api").removeprefix("/models").removeprefix("/datasets")
            owner, name, what, revision, *rest = [*place.strip("/").split("/"), "", ""]
            repository, file = f"{kind}{owner}/{name}", "/".join(rest).strip("/")
            commit = hub.main.get(repository, "") if revision == "main" else revision
            contents = hub.commits.get((repository, commit))
            if contents is None:
                self.answer(b"", 404, X_Error_Code="RevisionNotFound")
            elif api and what == "revision":
                listed = [{"rfilename": each} for each in contents]
                self._json({"id": repository, "modelId": repository, "sha": commit, "siblings": listed})
            elif api and what == "tree":
                sizes = {each: len(data) for each, data in contents.items()}
                self._json(
                    [{"type": "file", "path": each, "size": size, "oid": "0" * 40} for each, size in sizes.items()]
                )
            elif what == "resolve" and file in contents:
                tag = f'"{hashlib.sha1(contents[file]).hexdigest()}"'
                self.answer(contents[file], X_Repo_Commit=commit, ETag=tag)
            else:
                self.answer(b"", 404, X_Error_Code="EntryNotFound")

        do_HEAD = do_GET

    return Handler


@contextmanager
def serve() -> Iterator[ModelHub]:
    """Serve an empty hub until the block ends."""
    hub = ModelHub()
    with loopback.serving(_handler(hub)) as hub.url:
        yield hub
