# The entry point for people: `snakemake` in this folder runs workflow/Snakefile.
include: "workflow/Snakefile"


# A target that an included file marks as the default is not taken as such: without this line,
# Snakemake says that there is nothing to be done.
workflow.default_target = "all"
