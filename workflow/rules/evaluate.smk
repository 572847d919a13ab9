rule evaluate:
    message:
        "Evaluating {wildcards.system} on {wildcards.dataset}"
    input:
        run=paths.RUN,
        qrels=paths.QRELS,
    output:
        metrics=paths.METRICS,
        per_query=paths.PER_QUERY,
    params:
        version=STAGE_VERSIONS["evaluate"],
        metrics=list(grid.config.metrics),
        key=settings_key("evaluate"),
    log:
        "logs/evaluate/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/evaluate/{system}/{dataset}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("evaluate", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("evaluate", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("evaluate", w),
    group:
        grid.cell_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid evaluate --system {wildcards.system:q} --dataset {wildcards.dataset:q}"
        " --run {input.run:q} --qrels {input.qrels:q} --metrics {params.metrics:q}"
        " --output {output.metrics:q} --per-query {output.per_query:q} > {log:q} 2>&1"
