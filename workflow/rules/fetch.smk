rule fetch_corpus:
    message:
        "Fetching corpus {wildcards.corpus}"
    input:
        inputs.corpus_files,
    output:
        corpus=paths.CORPUS,
        record=paths.CORPUS_RECORD,
    params:
        **commands(
            "fetch_corpus",
            entry=params.corpus,
            files=reruns.state_of(inputs.corpus_files),
        ),
    log:
        "logs/fetch/corpus/{corpus}.log",
    benchmark:
        "results/benchmarks/fetch/corpus/{corpus}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("fetch_corpus"),
    shell:
        "{params.beirgrid} fetch corpus --name {wildcards.corpus:q} @-"
        " --output {output.corpus:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule fetch_dataset:
    message:
        "Fetching queries and qrels of {wildcards.dataset}"
    input:
        inputs.dataset_files,
        corpus=inputs.corpus,
    output:
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        record=paths.DATASET_RECORD,
    params:
        **commands(
            "fetch_dataset",
            entry=params.dataset,
            corpus_entry=params.searched_corpus,
            files=reruns.state_of(inputs.dataset_files),
        ),
    log:
        "logs/fetch/dataset/{dataset}.log",
    benchmark:
        "results/benchmarks/fetch/dataset/{dataset}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("fetch_dataset"),
    shell:
        "{params.beirgrid} fetch dataset --name {wildcards.dataset:q} @-"
        " --corpus {input.corpus:q} --queries {output.queries:q} --qrels {output.qrels:q}"
        " --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule fetch_expansion:
    message:
        "Fetching the queries that {wildcards.system} adds to {wildcards.corpus}"
    input:
        inputs.expansion_files,
        corpus=paths.CORPUS,
    output:
        result=paths.PUBLISHED,
        record=paths.PUBLISHED_RECORD,
    params:
        **commands(
            "fetch_expansion",
            entry=params.expansion,
            files=reruns.state_of(inputs.expansion_files),
        ),
    log:
        "logs/fetch/expansion/{system}/{corpus}.log",
    benchmark:
        "results/benchmarks/fetch/expansion/{system}/{corpus}.tsv"
    wildcard_constraints:
        system=grid.one_of(grid.with_published),
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("fetch_expansion"),
    shell:
        "{params.beirgrid} fetch expansion --name {wildcards.system:q} @- --corpus {input.corpus:q}"
        " --output {output.result:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule fetch_model:
    message:
        "Fetching the checkpoint of {wildcards.model}"
    input:
        inputs.model_files,
    output:
        checkpoint=directory(paths.CHECKPOINT),
        record=paths.MODEL_RECORD,
    params:
        **commands(
            "fetch_model",
            entry=params.checkpoint,
            files=reruns.state_of(inputs.model_files),
        ),
        described=params.described,
    log:
        "logs/fetch/model/{model}.log",
    benchmark:
        "results/benchmarks/fetch/model/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of_recipe(None),
    conda:
        NEURAL
    threads: 1
    resources:
        **needs("fetch_model"),
    shell:
        "{params.beirgrid} fetch model --name {wildcards.model:q} @- {params.described:q}"
        " --output {output.checkpoint:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule fetch_run:
    message:
        "Fetching the run of {wildcards.system} on {wildcards.dataset}"
    input:
        inputs.run_files,
        corpus=inputs.corpus,
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **commands(
            "fetch_run",
            run=inputs.run_file,
            depth=DEPTH,
            allow=params.accepted_flaws,
            files=reruns.state_of(inputs.run_file),
        ),
    log:
        "logs/fetch/run/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/fetch/run/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("external"),
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("fetch_run"),
    group:
        nodes.group("fetch_run")
    shell:
        "{params.beirgrid} fetch run --system {wildcards.system:q} @-"
        " --queries {input.queries:q} --corpus {input.corpus:q}"
        " --output {output.run:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"
