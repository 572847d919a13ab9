"""One folder per stage of the workflow: its plan, and its work.

Plans import no torch, pandas or pyarrow, because every job of Snakemake imports them all. Only the jobs of a stage
import its work.
"""
