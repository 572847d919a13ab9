"""The job graph: what a plan says of its jobs, and what follows from the plans of all stages.

These are Snakemake's inputs, params and resources, the records behind a cell, the estimates of a grid, and the runner
of a job. No module here imports torch, pandas or pyarrow, because every job of Snakemake imports them all.
"""
