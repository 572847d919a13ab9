rule fuse:
    message:
        "Fusing {wildcards.system} on {wildcards.dataset}"
    input:
        unpack(stage.fuse.inputs),
    output:
        run="results/runs/{system}/{dataset}.run.gz",
        record="results/runs/{system}/{dataset}.json",
    params:
        **stage.fuse.params,
    log:
        "logs/fuse/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/fuse/{system}/{dataset}.tsv"
    wildcard_constraints:
        **stage.fuse.constraints,
    conda:
        EVALUATE
    threads: min(2, grid.config.nodes.cpu.cores)
    resources:
        **stage.fuse.resources,
    group:
        stage.fuse.group
    shell:
        "{params.command} > {log:q} 2>&1"
