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
        grid=lambda w: in_file(grid.summary()),
        key=settings_key("report"),
    log:
        "logs/report.log",
    benchmark:
        "results/benchmarks/report.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("report", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("report", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("report", w),
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid report --grid {params.grid:q} --output {output.report:q}"
        " --made {output.made:q} > {log:q} 2>&1"
