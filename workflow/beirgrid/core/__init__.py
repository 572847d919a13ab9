"""Shared by all layers: errors, files, provenance, progress."""
