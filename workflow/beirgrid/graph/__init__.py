"""The job graph: one module per stage, which says what its jobs read, what decides them and what they take.

All else follows from that: Snakemake's inputs, params and resources, the records behind a cell, and the plan of a grid.
No module here imports torch, pandas or pyarrow, because every job of Snakemake imports them all.
"""
