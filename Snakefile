# Makes `snakemake` in this folder run workflow/Snakefile.
include: "workflow/Snakefile"


# Snakemake ignores default_target in an included file. Without this line, it would find nothing to do.
workflow.default_target = "all"
