"""The configuration: typed entries, and the checks that need several of them."""

from ..core.checkout import CHECKOUT
from .checks import absent_folder, layers, models_behind, with_parts
from .datasets import is_unjudged
from .entries import Config
from .load import load
from .places import both_forms, find_local, is_folder, local_forms, resolve_path, run_file
from .values import BM25_LANGUAGES
from .yaml_files import refuse_misread

__all__ = [
    "BM25_LANGUAGES",
    "CHECKOUT",
    "Config",
    "absent_folder",
    "both_forms",
    "find_local",
    "is_folder",
    "is_unjudged",
    "layers",
    "load",
    "local_forms",
    "models_behind",
    "refuse_misread",
    "resolve_path",
    "run_file",
    "with_parts",
]
