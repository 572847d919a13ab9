rule fetch_corpus:
    message:
        "Fetching corpus {wildcards.corpus}"
    input:
        lambda w: inputs.local_files(w.corpus, "corpus.jsonl"),
    output:
        corpus=paths.CORPUS,
        record=paths.CORPUS_RECORD,
    params:
        **settings.fetch(
            "fetch_corpus",
            entry=lambda w: in_file(entries.corpus(w.corpus)),
            files=lambda w: reruns.state(inputs.local_files(w.corpus, "corpus.jsonl")),
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
        "{params.beirgrid} fetch corpus --name {wildcards.corpus:q} --entry {params.entry:q}"
        " {params.mirror:q} --output {output.corpus:q} --record {output.record:q} > {log:q} 2>&1"


rule fetch_dataset:
    message:
        "Fetching queries and qrels of {wildcards.dataset}"
    input:
        lambda w: inputs.dataset_files(w.dataset),
        corpus=lambda w: inputs.corpus(w.dataset),
    output:
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        record=paths.DATASET_RECORD,
    params:
        **settings.fetch(
            "fetch_dataset",
            entry=lambda w: in_file(entries.dataset(w.dataset)),
            corpus=lambda w: in_file(entries.corpus(grid.corpus(w.dataset))),
            files=lambda w: reruns.state(inputs.dataset_files(w.dataset)),
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
        "{params.beirgrid} fetch dataset --name {wildcards.dataset:q} --entry {params.entry:q}"
        " --corpus-entry {params.corpus:q} --corpus {input.corpus:q} {params.mirror:q} --queries {output.queries:q}"
        " --qrels {output.qrels:q} --record {output.record:q} > {log:q} 2>&1"


rule fetch_expansion:
    message:
        "Fetching the queries that {wildcards.system} adds to {wildcards.corpus}"
    input:
        lambda w: inputs.expansion_files(w.system, w.corpus),
        corpus=paths.CORPUS,
    output:
        result=paths.PUBLISHED,
        record=paths.PUBLISHED_RECORD,
    params:
        **settings(
            "fetch_expansion",
            entry=lambda w: in_file(entries.expansion(w.system, w.corpus)),
            files=lambda w: reruns.state(inputs.expansion_files(w.system, w.corpus)),
        ),
    log:
        "logs/fetch/expansion/{system}/{corpus}.log",
    benchmark:
        "results/benchmarks/fetch/expansion/{system}/{corpus}.tsv"
    wildcard_constraints:
        system=grid.systems_with_published_expansions(),
    conda:
        EVALUATE
    threads: 1
    resources:
        **needs("fetch_expansion"),
    shell:
        "{params.beirgrid} fetch expansion --name {wildcards.system:q} --entry {params.entry:q}"
        " --corpus {input.corpus:q} --output {output.result:q} --record {output.record:q} > {log:q} 2>&1"


rule fetch_model:
    message:
        "Fetching the checkpoint of {wildcards.model}"
    input:
        lambda w: inputs.model_files(w.model),
    output:
        checkpoint=directory(paths.CHECKPOINT),
        record=paths.MODEL_RECORD,
    params:
        **settings(
            "fetch_model",
            entry=lambda w: in_file(entries.checkpoint(w.model)),
            files=lambda w: reruns.state(inputs.model_files(w.model)),
        ),
        prompts=lambda w, output: entries.prompted(w.model),
        source=lambda w, output: entries.source(w.model),
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
        "{params.beirgrid} fetch model --name {wildcards.model:q} --entry {params.entry:q}"
        " {params.prompts:q} {params.source:q} --output {output.checkpoint:q} --record {output.record:q} > {log:q} 2>&1"


rule fetch_run:
    message:
        "Fetching the run of {wildcards.system} on {wildcards.dataset}"
    input:
        lambda w: inputs.run_files(w.system, w.dataset),
        corpus=lambda w: inputs.corpus(w.dataset),
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **settings(
            "fetch_run",
            files=lambda w: reruns.state([inputs.run_file(w.system, w.dataset)]),
            depth=DEPTH,
            allow=lambda w: entries.accepted(w.system),
        ),
        file=lambda w, output: inputs.run_file(w.system, w.dataset),
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
        "{params.beirgrid} fetch run --system {wildcards.system:q} --run {params.file:q}"
        " --queries {input.queries:q} --corpus {input.corpus:q} --depth {params.depth:q} {params.allow:q}"
        " --output {output.run:q} --record {output.record:q} > {log:q} 2>&1"
