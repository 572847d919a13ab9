# Not part of the default target. Run: snakemake analyses
rule analyses:
    message:
        "Making the paper's analyses from the runs of the grid"
    input:
        [job.record for job in stage.jobs],
        tables=rules.aggregate.output,
    output:
        figures=report(
            directory(grid.own(paths.FIGURES)),
            patterns=["{figure}.svg"],
            caption="../report/figure.rst",
            category="Figures",
        ),
        record=grid.own(paths.ANALYSES_RECORD),
    params:
        **stage.analyses.params,
    log:
        grid.own("logs/analyses/{grid}.log"),
    benchmark:
        grid.own("results/benchmarks/analyses/{grid}.tsv")
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.analyses.resources,
    shell:
        "{params.command} > {log:q} 2>&1"
