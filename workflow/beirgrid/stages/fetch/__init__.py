"""Bring corpora, datasets, checkpoints and runs of other software into one form."""
