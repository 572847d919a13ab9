rule report:
    message:
        "Writing the report"
    input:
        scores=rules.aggregate.output.scores,
        verdicts=rules.aggregate.output.verdicts,
        costs=rules.aggregate.output.costs,
        statistics=rules.aggregate.output.statistics,
    output:
        report=report(grid.own(paths.REPORT), caption="../report/report.rst", category="Report"),
        record=grid.own(paths.REPORT_RECORD),
    params:
        **commands("report", files=summary_digest),
        grid=GRID_SUMMARY,
        folder=tables_folder,
    log:
        grid.own("logs/report/{grid}.log"),
    benchmark:
        grid.own("results/benchmarks/report/{grid}.tsv")
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("report"),
    shell:
        "{params.beirgrid} page --grid @{params.grid:q} --tables {params.folder:q}"
        " --output {output.report:q} --record {output.record:q} > {log:q} 2>&1"
