rule train:
    message:
        "Training {wildcards.model}"
    input:
        unpack(lambda w: grid.training_inputs(w.model)),
    output:
        checkpoint=directory(paths.CHECKPOINT),
        made=paths.MODEL_MADE,
    params:
        version=STAGE_VERSIONS["train"],
        entry=lambda w: in_file(grid.train_entry(w.model)),
        options=lambda w: grid.training_options(w.model),
        key=settings_key("train"),
    log:
        "logs/train/{model}.log",
    benchmark:
        "results/benchmarks/train/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of("cross-encoder"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("train", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("train", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("train", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid train --train {params.entry:q} --base {input.base:q}"
        " --corpus {input.corpus:q} --index {input.index:q} {params.options:q}"
        " --threads {threads}"
        " --output {output.checkpoint:q} --made {output.made:q} > {log:q} 2>&1"
