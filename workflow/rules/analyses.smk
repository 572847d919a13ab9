# Not part of the default target. Run: snakemake analyses
rule analyses:
    message:
        "Making the paper's analyses from the runs of the grid"
    input:
        scores=metric_files(grid),
        records=records.everything(),
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
        **commands("analyses", files=summary_digest),
        grid=GRID_SUMMARY,
        folder=grid_folder,
    log:
        grid.own("logs/analyses/{grid}.log"),
    benchmark:
        grid.own("results/benchmarks/analyses/{grid}.tsv")
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("analyses"),
    shell:
        "{params.beirgrid} analyse --grid {params.grid:q} --output {params.folder:q}"
        " --record {output.record:q} > {log:q} 2>&1"
