rule fuse:
    message:
        "Fusing {wildcards.system} on {wildcards.dataset}"
    input:
        runs=inputs.component_runs,
        dev_runs=inputs.dev_runs,
        dev_qrels=inputs.dev_qrels,
        queries=inputs.queries_apart,
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **commands("fuse", params.fusion, depth=DEPTH),
        tuning=given("dev_runs", "dev_qrels", "queries"),
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
        "{params.beirgrid} fuse --system {wildcards.system:q} @- --runs {input.runs:q} {params.tuning:q}"
        " --output {output.run:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"
