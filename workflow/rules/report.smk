rule report:
    message:
        "Writing the report"
    input:
        unpack(stage.report.inputs),
        scores=rules.aggregate.output.scores,
        verdicts=rules.aggregate.output.verdicts,
        costs=rules.aggregate.output.costs,
        statistics=rules.aggregate.output.statistics,
        per_query=rules.aggregate.output.per_query,
    output:
        report=report(grid.own(paths.REPORT), caption="../report/report.rst", category="Report"),
        record=grid.own(paths.REPORT_RECORD),
    params:
        **stage.report.params,
    log:
        grid.own("logs/report/{grid}.log"),
    benchmark:
        grid.own("results/benchmarks/report/{grid}.tsv")
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.report.resources,
    shell:
        "{params.command} > {log:q} 2>&1"
