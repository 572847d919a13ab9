"""Configfiles, merged and checked as Snakemake and the workflow do it, without running Snakemake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .. import config as configuration
from ..config.load import read_yaml
from ..core.checkout import CHECKOUT
from ..core.errors import ConfigError


def with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration over the registry and the settings that come with beirgrid."""
    from snakemake.utils import update_config

    raw: dict[str, Any] = {}
    for name in ("datasets", "systems", "config"):
        update_config(raw, read_yaml(CHECKOUT / "config" / f"{name}.yaml"))
    update_config(raw, config)
    return raw


def merged(
    configfiles: Sequence[Path], settings: Iterable[str] = (), more: dict[str, Any] | None = None
) -> configuration.Config:
    """Return the configuration as Snakemake merges it, with ``more`` over the files."""
    from snakemake.cli import parse_config
    from snakemake.common.configfile import load_configfile
    from snakemake.utils import update_config
    from snakemake_interface_common.exceptions import WorkflowError

    raw = with_defaults({})
    for path in configfiles:
        try:
            update_config(raw, load_configfile(path))
        except (WorkflowError, UnicodeDecodeError) as error:
            read_yaml(path)  # which names the line; Snakemake does not
            raise ConfigError(f"{path}: {error}") from None
    try:
        update_config(raw, given := parse_config(list(settings)))
        update_config(raw, more or {})
    except ValueError as error:
        raise ConfigError(f"--config: {error}") from None
    configuration.refuse_misread(configfiles, given, raw)
    return configuration.load(raw)
