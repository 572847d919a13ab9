rule train:
    message:
        "Training {wildcards.model}"
    input:
        base=inputs.trained_with("base"),
        corpus=inputs.training_corpus,
        index=inputs.bm25_index,
        teacher=inputs.trained_with("teacher"),
        queries=inputs.training_queries,
        qrels=inputs.training_qrels,
    output:
        checkpoint=directory(paths.CHECKPOINT),
        record=paths.MODEL_RECORD,
    params:
        # encode.precision applies only to models that are not trained here.
        **commands.neural("train", recipe=params.recipe("train"), precision="auto"),
        labels=given("teacher", "queries", "qrels"),
    log:
        "logs/train/{model}.log",
    benchmark:
        "results/benchmarks/train/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of_recipe("cross-encoder"),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("train"),
    shell:
        "{params.beirgrid} train @- {params.compute:q} --threads {threads}"
        " --base {input.base:q} --corpus {input.corpus:q} --index {input.index:q} {params.labels:q}"
        " --output {output.checkpoint:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule generate:
    message:
        "Writing training queries for {wildcards.model}"
    input:
        corpus=inputs.training_corpus,
        generator=inputs.trained_with("generator"),
    output:
        queries=paths.TRAINING_QUERIES,
        record=paths.TRAINING_QUERIES_RECORD,
    params:
        **commands.neural("generate", recipe=params.recipe("generate")),
        generator=given("generator"),
    log:
        "logs/generate/{model}.log",
    benchmark:
        "results/benchmarks/generate/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of_recipe("genq", "gpl"),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("generate"),
    shell:
        "{params.beirgrid} generate @- {params.compute:q} --corpus {input.corpus:q} {params.generator:q}"
        " --output {output.queries:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule mine:
    message:
        "Mining negatives for {wildcards.model}"
    input:
        queries=paths.TRAINING_QUERIES,
        corpus=inputs.training_corpus,
        index=inputs.bm25_index,
        checkpoints=inputs.miners,
        indexes=inputs.miner_indexes,
    output:
        negatives=paths.NEGATIVES,
        record=paths.NEGATIVES_RECORD,
    params:
        **commands.neural("mine", recipe=params.recipe("mine")),
        retrievers=given("index", "checkpoints", "indexes"),
    log:
        "logs/mine/{model}.log",
    benchmark:
        "results/benchmarks/mine/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of_recipe("gpl"),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("mine"),
    shell:
        "{params.beirgrid} mine @- {params.compute:q} --threads {threads}"
        " --queries {input.queries:q} --corpus {input.corpus:q} {params.retrievers:q}"
        " --output {output.negatives:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule label:
    message:
        "Labelling training pairs for {wildcards.model}"
    input:
        queries=paths.TRAINING_QUERIES,
        negatives=paths.NEGATIVES,
        teacher=inputs.trained_with("teacher"),
        corpus=inputs.training_corpus,
    output:
        margins=paths.MARGINS,
        record=paths.MARGINS_RECORD,
    params:
        **commands.neural("label", recipe=params.recipe("label")),
    log:
        "logs/label/{model}.log",
    benchmark:
        "results/benchmarks/label/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of_recipe("gpl"),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("label"),
    shell:
        "{params.beirgrid} label @- {params.compute:q} --queries {input.queries:q}"
        " --negatives {input.negatives:q} --teacher {input.teacher:q} --corpus {input.corpus:q}"
        " --output {output.margins:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule adapt:
    message:
        "Adapting {wildcards.model}"
    input:
        base=inputs.trained_with("base"),
        examples=inputs.examples,
    output:
        checkpoint=directory(paths.CHECKPOINT),
        record=paths.MODEL_RECORD,
    params:
        **commands.neural("adapt", recipe=params.recipe("adapt")),
    log:
        "logs/adapt/{model}.log",
    benchmark:
        "results/benchmarks/adapt/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of_recipe(*ADAPTATIONS),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("adapt"),
    shell:
        "{params.beirgrid} adapt @- {params.compute:q} --base {input.base:q} --examples {input.examples:q}"
        " --output {output.checkpoint:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"
