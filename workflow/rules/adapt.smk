rule generate:
    message:
        "Writing training queries for {wildcards.model}"
    input:
        unpack(lambda w: grid.generation_inputs(w.model)),
    output:
        queries=paths.TRAINING_QUERIES,
        made=paths.TRAINING_QUERIES_MADE,
    params:
        version=STAGE_VERSIONS["generate"],
        recipe=lambda w: in_file(grid.recipe_entry(w.model, "generate")),
        generator=lambda w, input: (
            ["--generator", input.generator] if "generator" in input.keys() else []
        ),
        precision=grid.config.encode["precision"],
        key=settings_key("generate"),
    log:
        "logs/generate/{model}.log",
    benchmark:
        "results/benchmarks/generate/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of("genq", "gpl"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("generate", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("generate", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("generate", w),
        gpu=lambda w: grid.gpus("generator" in grid.generation_inputs(w.model)),
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid generate --recipe {params.recipe:q} --corpus {input.corpus:q} {params.generator:q}"
        " --precision {params.precision:q}"
        " --output {output.queries:q} --made {output.made:q} > {log:q} 2>&1"


rule mine:
    message:
        "Mining negatives for {wildcards.model}"
    input:
        unpack(lambda w: grid.mining_inputs(w.model)),
        queries=paths.TRAINING_QUERIES,
    output:
        negatives=paths.NEGATIVES,
        made=paths.NEGATIVES_MADE,
    params:
        version=STAGE_VERSIONS["mine"],
        recipe=lambda w: in_file(grid.recipe_entry(w.model, "mine")),
        retrievers=lambda w: in_file(*grid.mining_options(w.model)),
        precision=grid.config.encode["precision"],
        key=settings_key("mine"),
    log:
        "logs/mine/{model}.log",
    benchmark:
        "results/benchmarks/mine/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of("gpl"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("mine", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("mine", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("mine", w),
        gpu=lambda w: grid.gpus(grid.mining_inputs(w.model)["checkpoints"]),
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid mine --recipe {params.recipe:q} --queries {input.queries:q}"
        " --corpus {input.corpus:q} {params.retrievers:q}"
        " --precision {params.precision:q} --threads {threads}"
        " --output {output.negatives:q} --made {output.made:q} > {log:q} 2>&1"


rule label:
    message:
        "Labelling training pairs for {wildcards.model}"
    input:
        unpack(lambda w: grid.labelling_inputs(w.model)),
        queries=paths.TRAINING_QUERIES,
        negatives=paths.NEGATIVES,
    output:
        margins=paths.MARGINS,
        made=paths.MARGINS_MADE,
    params:
        version=STAGE_VERSIONS["label"],
        recipe=lambda w: in_file(grid.recipe_entry(w.model, "label")),
        precision=grid.config.encode["precision"],
        key=settings_key("label"),
    log:
        "logs/label/{model}.log",
    benchmark:
        "results/benchmarks/label/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of("gpl"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("label", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("label", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("label", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid label --recipe {params.recipe:q} --teacher {input.teacher:q}"
        " --corpus {input.corpus:q} --queries {input.queries:q} --negatives {input.negatives:q}"
        " --precision {params.precision:q}"
        " --output {output.margins:q} --made {output.made:q} > {log:q} 2>&1"


rule adapt:
    message:
        "Training {wildcards.model}"
    input:
        unpack(lambda w: grid.adaptation_inputs(w.model)),
    output:
        checkpoint=directory(paths.CHECKPOINT),
        made=paths.MODEL_MADE,
    params:
        version=STAGE_VERSIONS["adapt"],
        recipe=lambda w: in_file(grid.recipe_entry(w.model, "adapt")),
        key=settings_key("adapt"),
    log:
        "logs/adapt/{model}.log",
    benchmark:
        "results/benchmarks/adapt/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of(*configuration.RECIPES),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("adapt", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("adapt", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("adapt", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid adapt --recipe {params.recipe:q} --base {input.base:q} --examples {input.examples:q}"
        " --output {output.checkpoint:q} --made {output.made:q} > {log:q} 2>&1"
