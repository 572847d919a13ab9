"""Train a cross-encoder on pairs of a corpus."""
