"""Validate a crate with roc-validator, without network: ``validate_crate.py CRATE CONTEXT.gz``.

The validator downloads the JSON-LD context of RO-Crate 1.1. It gets the file instead (CC0, from
https://w3id.org/ro/crate/1.1/context), and any other address is an error.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rocrate_validator.models import Severity
from rocrate_validator.services import ValidationSettings, validate
from rocrate_validator.utils.http import HttpRequester

crate, context = sys.argv[1:]
text = gzip.decompress(Path(context).read_bytes()).decode()


def _get(url: str, **_: Any) -> SimpleNamespace:
    assert url == "https://w3id.org/ro/crate/1.1/context", url
    headers = {"Content-Type": "application/ld+json"}
    return SimpleNamespace(status_code=200, ok=True, text=text, headers=headers, json=lambda: json.loads(text))


HttpRequester().get = _get
settings = {"rocrate_uri": crate, "profile_identifier": "workflow-run-crate-0.5"}
found = validate(ValidationSettings(**settings, requirement_severity=Severity.REQUIRED))
print(*(f"{issue.check.identifier}: {issue.message}" for issue in found.get_issues()), sep="\n")
sys.exit(not found.passed())
