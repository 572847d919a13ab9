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
        entry=lambda w: grid.model_entry(w.model),
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
        " python -m beirgrid expand --model {params.entry:q} --checkpoint {input.checkpoint}"
        " --corpus {input.corpus} --shard {wildcards.shard} --shard-size {params.size} {params.last}"
        " --precision {params.precision}"
        " --output {output.expansions} --made {output.made} > {log} 2>&1"
