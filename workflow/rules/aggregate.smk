PUBLISHED = sorted((ROOT / "config" / "published").glob("*.csv"))


rule aggregate:
    message:
        "Making the tables of the grid"
    input:
        metrics=grid.metric_files(),
        made=grid.made_files(),
    output:
        scores=report(paths.SCORES, caption="../report/scores.rst", category="Tables"),
        verdicts=report(paths.VERDICTS, caption="../report/verdicts.rst", category="Tables"),
        costs=report(paths.COSTS, caption="../report/costs.rst", category="Tables"),
        made=paths.TABLES_MADE,
        tables=expand(paths.GRID_TABLE, metric=grid.config.metrics, format=["csv", "md", "tex"]),
    params:
        version=STAGE_VERSIONS["aggregate"],
        grid=lambda w: in_file(grid.summary(settings_keys=settings_keys())),
        # Not among the inputs, in whose paths Snakemake fills in {x} and <x>: the checkout may be in such a folder.
        published=lambda w: list(map(str, PUBLISHED)),
        contents=list(map(files.sha256, PUBLISHED)),
        key=settings_key("aggregate"),
    log:
        "logs/aggregate.log",
    benchmark:
        "results/benchmarks/aggregate.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("aggregate", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("aggregate", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("aggregate", w),
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid aggregate --grid {params.grid:q} --published {params.published:q}"
        " --made {output.made:q} > {log:q} 2>&1"
