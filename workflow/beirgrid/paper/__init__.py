"""Analyses of the BEIR paper from the runs of a grid: the target ``analyses``."""
