rule evaluate:
    message:
        "Evaluating {wildcards.system} on {wildcards.dataset}"
    input:
        run=paths.RUN,
        qrels=paths.QRELS,
    output:
        scores=paths.METRICS,
        per_query=paths.PER_QUERY,
    params:
        **commands("evaluate", metrics=list(grid.config.metrics), main=params.main),
    log:
        "logs/evaluate/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/evaluate/{system}/{dataset}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("evaluate"),
    group:
        nodes.group("evaluate")
    shell:
        "{params.beirgrid} evaluate --system {wildcards.system:q} --dataset {wildcards.dataset:q} @-"
        " --run {input.run:q} --qrels {input.qrels:q} --output {output.scores:q}"
        " --per-query {output.per_query:q} <<< {params.settings:q} > {log:q} 2>&1"
