"""Fetch, verify and convert checkpoints of models; parse registry entries in commands."""
