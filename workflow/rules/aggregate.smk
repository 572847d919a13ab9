rule aggregate:
    message:
        "Making the tables of the grid"
    input:
        unpack(stage.aggregate.inputs),
        [job.record for job in stage.jobs],
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
            for name in (
                "seeds",
                "significance",
                "pairs",
                "across",
                "zero_shot",
                "published",
                "agreement",
                "efficiency",
            )
        ],
        per_query=grid.own(paths.PER_QUERY_TABLE),
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
        **stage.aggregate.params,
    log:
        grid.own("logs/aggregate/{grid}.log"),
    benchmark:
        grid.own("results/benchmarks/aggregate/{grid}.tsv")
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.aggregate.resources,
    shell:
        "{params.command} > {log:q} 2>&1"
