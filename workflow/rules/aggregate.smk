PUBLISHED = sorted((ROOT / "config" / "published").glob("*.csv"))


rule aggregate:
    message:
        "Making the tables of the grid"
    input:
        scores=metric_files(grid),
        records=records.everything(),
    output:
        scores=report(paths.SCORES, caption="../report/scores.rst", category="Tables"),
        verdicts=report(paths.VERDICTS, caption="../report/verdicts.rst", category="Tables"),
        costs=report(paths.COSTS, caption="../report/costs.rst", category="Tables"),
        tables=expand(paths.GRID_TABLE, metric=grid.config.metrics, format=["csv", "md", "tex"]),
        record=paths.TABLES_RECORD,
    params:
        **settings(
            "aggregate",
            grid=lambda w: in_file(summary.as_json(cell_settings())),
            # No inputs, and a function: Snakemake fills in {x}, which the checkout's path may hold, in both.
            published=lambda w: list(map(str, PUBLISHED)),
            contents=list(map(files.sha256, PUBLISHED)),
        ),
        folder=lambda w, output: Path(output.scores).parent,
    log:
        "logs/aggregate.log",
    benchmark:
        "results/benchmarks/aggregate.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("aggregate"),
    shell:
        "{params.beirgrid} aggregate --grid {params.grid:q} --published {params.published:q}"
        " --output {params.folder:q} --record {output.record:q} > {log:q} 2>&1"
