rule report:
    message:
        "Writing the report"
    input:
        scores=paths.SCORES,
        verdicts=paths.VERDICTS,
        costs=paths.COSTS,
    output:
        report=report(paths.REPORT, caption="../report/report.rst", category="Report"),
        made=paths.REPORT_MADE,
    params:
        version=STAGE_VERSIONS["report"],
        grid=lambda w: grid.summary(),
    log:
        "logs/report.log",
    benchmark:
        "results/benchmarks/report.tsv"
    conda:
        "../../envs/evaluate.yaml"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("report", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("report", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("report", w),
    shell:
        "python -m beirgrid report --grid {params.grid:q} --output {output.report}"
        " --made {output.made} > {log} 2>&1"
