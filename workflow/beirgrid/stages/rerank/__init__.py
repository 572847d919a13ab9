"""Reorder the top of a run by stored pair scores."""
