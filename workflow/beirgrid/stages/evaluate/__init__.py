"""Compute the metrics of a run."""
