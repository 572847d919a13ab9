"""Derive or write training queries."""
