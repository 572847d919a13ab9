"""The configuration: typed entries, and the checks that need several of them."""

from .entries import Config
from .load import load, refuse_misread, with_defaults

__all__ = ["Config", "load", "refuse_misread", "with_defaults"]
