rule fuse:
    message:
        "Fusing {wildcards.system} on {wildcards.dataset}"
    input:
        runs=lambda w: inputs.part_runs(w.system, w.dataset),
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **settings(
            "fuse",
            runs=lambda w: in_file(*inputs.part_runs(w.system, w.dataset)),
            fusion=lambda w: entries.fusion(w.system),
            depth=DEPTH,
        ),
    log:
        "logs/fuse/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/fuse/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("fusion"),
    conda:
        EVALUATE
    threads: 2
    resources:
        **needs("fuse"),
    group:
        nodes.group("fuse")
    shell:
        "{params.beirgrid} fuse --system {wildcards.system:q} --runs {params.runs:q}"
        " {params.fusion:q} --depth {params.depth:q}"
        " --output {output.run:q} --record {output.record:q} > {log:q} 2>&1"
