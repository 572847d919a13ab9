rule encode:
    message:
        "Encoding shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        checkpoint=paths.CHECKPOINT,
        corpus=paths.CORPUS,
    output:
        embeddings=paths.EMBEDDINGS if grid.config.encode["keep"] else temp(paths.EMBEDDINGS),
        made=paths.EMBEDDINGS_MADE,
    params:
        version=STAGE_VERSIONS["encode"],
        entry=lambda w: in_file(grid.model_entry(w.model)),
        size=grid.shard_size(),
        last=lambda w: "--last" if int(w.shard) == grid.shards(w.corpus)[-1] else "",
        precision=grid.config.encode["precision"],
        key=settings_key("encode"),
    log:
        "logs/encode/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/encode/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        model=grid.family("dense"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("encode", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("encode", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("encode", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    group:
        grid.shard_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid encode --model {params.entry:q} --checkpoint {input.checkpoint:q}"
        " --corpus {input.corpus:q} --shard {wildcards.shard:q} --shard-size {params.size:q} {params.last:q}"
        " --precision {params.precision:q}"
        " --output {output.embeddings:q} --made {output.made:q} > {log:q} 2>&1"


# The other families differ in what is written.
use rule encode as encode_sparse with:
    output:
        embeddings=paths.SPARSE if grid.config.encode["keep"] else temp(paths.SPARSE),
        made=paths.EMBEDDINGS_MADE,
    wildcard_constraints:
        model=grid.family("sparse"),
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("encode_sparse", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("encode_sparse", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("encode_sparse", w),
        gpu=0 if grid.config.device == "cpu" else 1,


use rule encode as encode_late with:
    output:
        embeddings=directory(paths.TOKENS),
        made=paths.EMBEDDINGS_MADE,
    wildcard_constraints:
        model=grid.family("late-interaction"),
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("encode_late", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("encode_late", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("encode_late", w),
        gpu=0 if grid.config.device == "cpu" else 1,
