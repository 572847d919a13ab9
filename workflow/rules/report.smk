rule report:
    message:
        "Writing the report"
    input:
        scores=paths.SCORES,
        verdicts=paths.VERDICTS,
        costs=paths.COSTS,
    output:
        report=report(paths.REPORT, caption="../report/report.rst", category="Report"),
        record=paths.REPORT_RECORD,
    params:
        **settings("report", grid=lambda w: in_file(summary.as_json(cell_settings()))),
    log:
        "logs/report.log",
    benchmark:
        "results/benchmarks/report.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("report"),
    shell:
        "{params.beirgrid} report --grid {params.grid:q} --scores {input.scores:q}"
        " --verdicts {input.verdicts:q} --costs {input.costs:q}"
        " --output {output.report:q} --record {output.record:q} > {log:q} 2>&1"
