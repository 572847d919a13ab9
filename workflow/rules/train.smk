rule train:
    message:
        "Training {wildcards.model}"
    input:
        unpack(stage.train.inputs),
    output:
        checkpoint=directory("results/models/{model}/checkpoint"),
        record="results/models/{model}/model.json",
    params:
        **stage.train.params,
    log:
        "logs/train/{model}.log",
    benchmark:
        "results/benchmarks/train/{model}.tsv"
    wildcard_constraints:
        **stage.train.constraints,
    conda:
        NEURAL
    threads: stage.train.threads
    resources:
        **stage.train.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule generate:
    message:
        "Writing training queries for {wildcards.model}"
    input:
        unpack(stage.generate.inputs),
    output:
        queries="results/training/{model}/queries.parquet",
        record="results/training/{model}/queries.json",
    params:
        **stage.generate.params,
    log:
        "logs/generate/{model}.log",
    benchmark:
        "results/benchmarks/generate/{model}.tsv"
    wildcard_constraints:
        **stage.generate.constraints,
    conda:
        NEURAL
    threads: stage.generate.threads
    resources:
        **stage.generate.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule mine:
    message:
        "Mining negatives for {wildcards.model}"
    input:
        unpack(stage.mine.inputs),
    output:
        negatives="results/training/{model}/negatives.parquet",
        record="results/training/{model}/negatives.json",
    params:
        **stage.mine.params,
    log:
        "logs/mine/{model}.log",
    benchmark:
        "results/benchmarks/mine/{model}.tsv"
    wildcard_constraints:
        **stage.mine.constraints,
    conda:
        NEURAL
    threads: stage.mine.threads
    resources:
        **stage.mine.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule label:
    message:
        "Labelling training pairs for {wildcards.model}"
    input:
        unpack(stage.label.inputs),
    output:
        margins="results/training/{model}/margins.parquet",
        record="results/training/{model}/margins.json",
    params:
        **stage.label.params,
    log:
        "logs/label/{model}.log",
    benchmark:
        "results/benchmarks/label/{model}.tsv"
    wildcard_constraints:
        **stage.label.constraints,
    conda:
        NEURAL
    threads: stage.label.threads
    resources:
        **stage.label.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule adapt:
    message:
        "Adapting {wildcards.model}"
    input:
        unpack(stage.adapt.inputs),
    output:
        checkpoint=directory("results/models/{model}/checkpoint"),
        record="results/models/{model}/model.json",
    params:
        **stage.adapt.params,
    log:
        "logs/adapt/{model}.log",
    benchmark:
        "results/benchmarks/adapt/{model}.tsv"
    wildcard_constraints:
        **stage.adapt.constraints,
    conda:
        NEURAL
    threads: stage.adapt.threads
    resources:
        **stage.adapt.resources,
    shell:
        "{params.command} > {log:q} 2>&1"
