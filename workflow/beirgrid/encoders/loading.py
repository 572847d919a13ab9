"""Open checkpoints with sentence-transformers or transformers, and refuse those that lack weights or have others."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import DataError
from ..models import saved
from . import weight_checks

# Weights that a checkpoint may hold and a model leave unused. Any other one is a part of the model that would be left
# out without a word, such as the head of ANCE.
_SPARE = re.compile(
    r"(^|\.)("
    r"pooler\."  # BERT's, which stands beside the token vectors that are pooled here
    r"|position_ids$|inv_freq$|(attn|attention)\.(masked_)?bias$"  # constants that older releases stored
    # The heads that these are pre-trained with: BERT, ALBERT, DeBERTa, DistilBERT, ELECTRA; then ModernBERT.
    r"|lm_head\.|cls\.|(lm_|mask_|discriminator_|generator_)?predictions\.|sop_classifier\.|generator_lm_head\."
    r"|vocab_(transform|layer_norm|projector)\.)"
    r"|^head\.(dense|norm)\.|^decoder\.(weight|bias)$"
)


def load_checkpoint(loader: Any, folder: Path, unused: str = "", spare: str = "", **options: Any) -> Any:
    """Open a checkpoint with a class of sentence-transformers or transformers; what it raises becomes one DataError.

    Weights that the checkpoint lacks are an error too: transformers makes them up at random and says so
    in its log alone. ``unused`` is a part of the names of those that the model does not use and may lack.
    So are weights that the checkpoint has and the model does not use, but for those that no model of this use reads
    and for ``spare``, the name of one that is read by other means.
    The model is returned in float32.
    """
    saved.refuse_outside(folder)
    with _load_reports() as reports:
        try:
            load = loader.from_pretrained if loader.__module__.startswith("transformers.") else loader
            model = load(str(folder), local_files_only=True, **options)
        except Exception as error:  # transformers raises nearly every type for a broken folder
            reason = f"{type(error).__name__}: {error}"
            raise DataError(f"{folder} cannot be loaded as a {loader.__name__}: {reason}") from error
    missing = sorted(name for report in reports for name in report.missing_keys)
    if lacking := [name for name in missing if not unused or unused not in name]:
        whole = f"{folder} is not a complete {type(model).__name__}"
        raise DataError(f"{whole}: it lacks {len(lacking)} weights, {lacking[0]} first")
    unexpected = sorted(name for report in reports for name in report.unexpected_keys)
    if left_out := [name for name in unexpected if name != spare and not _SPARE.search(name)]:
        raise DataError(
            f"{folder} holds {len(left_out)} weights that a {type(model).__name__} of this architecture does not use, "
            f"{left_out[0]} first: it is another model, or has a head that must become a module of its own "
            "(docs/models.md, Converting pickled weights). Weights that are not needed must be removed from the file."
        )
    weight_checks.check_weights(folder, model)
    adapt_forward(model)
    # transformers opens weights in the type in which they are stored. (A tokenizer has none.)
    return model.float() if hasattr(model, "float") else model


def encoder_of(transformer: Any) -> Any:
    """Return what reads texts in a model of transformers, without its heads."""
    return transformer.get_encoder() if transformer.config.is_encoder_decoder else transformer.base_model


def adapt_forward(model: Any) -> None:
    """Make a model return named outputs, and compute feed-forward networks at once.

    The parts of a network that saves memory (``chunk_size_feed_forward``) must have one length.
    """
    for module in model.modules() if hasattr(model, "modules") else ():
        if hasattr(getattr(module, "config", None), "return_dict"):
            module.config.return_dict = True
        if hasattr(module, "chunk_size_feed_forward"):
            module.chunk_size_feed_forward = 0


@contextmanager
def _load_reports() -> Iterator[list[Any]]:
    """Collect what transformers finds out about weights while it loads models: its LoadStateDictInfo of each.

    It hands them to nobody but its log, whose table merges names and has colours on a terminal.
    """
    modeling: Any = importlib.import_module("transformers.modeling_utils")
    reports: list[Any] = []
    log = modeling.log_state_dict_report

    def collect(**options: Any) -> None:
        reports.append(options["loading_info"])
        log(**options)

    modeling.log_state_dict_report = collect
    try:
        yield reports
    finally:
        modeling.log_state_dict_report = log
