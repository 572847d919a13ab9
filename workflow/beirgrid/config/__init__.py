"""The configuration: registries, checked and typed."""

from .load import *  # noqa: F403
