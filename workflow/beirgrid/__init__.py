"""beirgrid: the stages of a Snakemake workflow that reproduces the BEIR retrieval benchmark."""

__version__ = "0.1.0"
