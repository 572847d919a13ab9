rule aggregate:
    message:
        "Making the tables of the grid"
    input:
        scores=metric_files(grid),
        records=records.everything(),
    output:
        **{
            name: report(
                grid.own(paths.ANSWER, answer=name),
                caption=f"../report/{name}.rst",
                category="Tables",
            )
            for name in ("scores", "verdicts", "costs")
        },
        statistics=[
            grid.own(paths.ANSWER, answer=name)
            for name in ("seeds", "significance", "pairs", "groups", "across", "zero_shot", "published")
        ],
        wide=report(
            [
                grid.own(paths.GRID_TABLE, metric=metric, format="csv")
                for metric in grid.config.metrics
            ],
            caption="../report/table.rst",
            category="Tables",
        ),
        printed=[
            grid.own(paths.GRID_TABLE, metric=metric, format=suffix)
            for metric in grid.config.metrics
            for suffix in ("md", "tex")
        ],
        record=grid.own(paths.TABLES_RECORD),
    params:
        **settings(
            "aggregate",
            grid=lambda w: in_file(summary_json()),
            # No inputs, and a function: Snakemake fills in {x}, which the checkout's path may hold, in both.
            published=lambda w: list(map(str, PUBLISHED)),
            contents=list(map(files.sha256, PUBLISHED)),
        ),
        folder=lambda w, output: Path(output.scores).parent,
    log:
        grid.own("logs/aggregate/{grid}.log"),
    benchmark:
        grid.own("results/benchmarks/aggregate/{grid}.tsv")
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("aggregate"),
    shell:
        "{params.beirgrid} aggregate --grid {params.grid:q} --published {params.published:q}"
        " --output {params.folder:q} --record {output.record:q} > {log:q} 2>&1"
