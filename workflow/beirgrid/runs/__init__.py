"""Runs: ranked documents per query, their metrics and fusions."""
