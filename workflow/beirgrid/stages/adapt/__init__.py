"""Adapt a dense model to a corpus."""
