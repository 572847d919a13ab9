rule evaluate:
    message:
        "Evaluating {wildcards.system} on {wildcards.dataset}"
    input:
        unpack(stage.evaluate.inputs),
    output:
        scores="results/metrics/{system}/{dataset}.json",
        per_query="results/metrics/{system}/{dataset}.per-query.parquet",
    params:
        **stage.evaluate.params,
    log:
        "logs/evaluate/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/evaluate/{system}/{dataset}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.evaluate.resources,
    group:
        stage.evaluate.group
    shell:
        "{params.command} > {log:q} 2>&1"
