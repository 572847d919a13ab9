rule expand:
    message:
        "Expanding shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        checkpoint=paths.CHECKPOINT,
        corpus=paths.CORPUS,
    output:
        expansions=paths.EXPANSIONS,
        made=paths.EXPANSIONS_MADE,
    params:
        version=STAGE_VERSIONS["expand"],
        entry=lambda w: in_file(grid.model_entry(w.model)),
        size=grid.shard_size(),
        last=lambda w: "--last" if int(w.shard) == grid.shards(w.corpus)[-1] else "",
        precision=grid.config.encode["precision"],
        key=settings_key("expand"),
    log:
        "logs/expand/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/expand/{model}/{corpus}/{shard}.tsv"
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("expand", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("expand", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("expand", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid expand --model {params.entry:q} --checkpoint {input.checkpoint:q}"
        " --corpus {input.corpus:q} --shard {wildcards.shard:q} --shard-size {params.size:q} {params.last:q}"
        " --precision {params.precision:q}"
        " --output {output.expansions:q} --made {output.made:q} > {log:q} 2>&1"
