"""Checkpoints of models: fetched, verified and converted; and registry entries as commands receive them."""
