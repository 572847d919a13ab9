rule aggregate:
    message:
        "Making the tables of the grid"
    input:
        metrics=grid.metric_files(),
        made=grid.made_files(),
        published=sorted(map(str, (ROOT / "config" / "published").glob("*.csv"))),
    output:
        scores=report(paths.SCORES, caption="../report/scores.rst", category="Tables"),
        verdicts=report(paths.VERDICTS, caption="../report/verdicts.rst", category="Tables"),
        costs=report(paths.COSTS, caption="../report/costs.rst", category="Tables"),
        made=paths.TABLES_MADE,
        tables=expand(paths.GRID_TABLE, metric=grid.config.metrics, format=["csv", "md", "tex"]),
    params:
        version=STAGE_VERSIONS["aggregate"],
        grid=lambda w: grid.summary(),
    log:
        "logs/aggregate.log",
    benchmark:
        "results/benchmarks/aggregate.tsv"
    conda:
        "../../envs/evaluate.yaml"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("aggregate", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("aggregate", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("aggregate", w),
    shell:
        "python -m beirgrid aggregate --grid {params.grid:q} --published {input.published}"
        " --made {output.made} > {log} 2>&1"
