"""Analyse the scores of a grid: uncertainty, significance, means over datasets, reproducibility."""
