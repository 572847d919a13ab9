rule fuse:
    message:
        "Fusing {wildcards.dataset} as {wildcards.system}"
    input:
        runs=lambda w: grid.part_runs(w.system, w.dataset),
    output:
        run=paths.RUN,
        made=paths.RUN_MADE,
    params:
        version=STAGE_VERSIONS["fuse"],
        runs=lambda w: in_file(*grid.part_runs(w.system, w.dataset)),
        fusion=lambda w: grid.fusion(w.system),
        depth=grid.config.depth,
        key=settings_key("fuse"),
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
        mem_mb=lambda w, attempt: grid.needs.mem_mb("fuse", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("fuse", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("fuse", w),
    group:
        grid.cell_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid fuse --system {wildcards.system:q} --runs {params.runs:q} {params.fusion:q}"
        " --depth {params.depth:q} --output {output.run:q} --made {output.made:q} > {log:q} 2>&1"
