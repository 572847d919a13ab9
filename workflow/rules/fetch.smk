rule fetch_corpus:
    message:
        "Fetching corpus {wildcards.corpus}"
    input:
        unpack(stage.fetch_corpus.inputs),
    output:
        corpus="results/corpora/{corpus}/corpus.parquet",
        record="results/corpora/{corpus}/corpus.json",
    params:
        **stage.fetch_corpus.params,
    log:
        "logs/fetch/corpus/{corpus}.log",
    benchmark:
        "results/benchmarks/fetch/corpus/{corpus}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.fetch_corpus.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule fetch_dataset:
    message:
        "Fetching queries and qrels of {wildcards.dataset}"
    input:
        unpack(stage.fetch_dataset.inputs),
    output:
        queries="results/datasets/{dataset}/queries.parquet",
        qrels="results/datasets/{dataset}/qrels.tsv",
        record="results/datasets/{dataset}/dataset.json",
    params:
        **stage.fetch_dataset.params,
    log:
        "logs/fetch/dataset/{dataset}.log",
    benchmark:
        "results/benchmarks/fetch/dataset/{dataset}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.fetch_dataset.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule fetch_slice:
    message:
        "Choosing the queries of {wildcards.dataset}:{wildcards.slice}"
    input:
        unpack(stage.fetch_slice.inputs),
    output:
        record="results/datasets/{dataset}/slices/{slice}.json",
    params:
        **stage.fetch_slice.params,
    log:
        "logs/fetch/slice/{dataset}/{slice}.log",
    benchmark:
        "results/benchmarks/fetch/slice/{dataset}/{slice}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.fetch_slice.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule fetch_expansion:
    message:
        "Fetching the queries that {wildcards.system} adds to {wildcards.corpus}"
    input:
        unpack(stage.fetch_expansion.inputs),
    output:
        result="results/published/{system}/{corpus}.parquet",
        record="results/published/{system}/{corpus}.json",
    params:
        **stage.fetch_expansion.params,
    log:
        "logs/fetch/expansion/{system}/{corpus}.log",
    benchmark:
        "results/benchmarks/fetch/expansion/{system}/{corpus}.tsv"
    wildcard_constraints:
        **stage.fetch_expansion.constraints,
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.fetch_expansion.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule fetch_model:
    message:
        "Fetching the checkpoint of {wildcards.model}"
    input:
        unpack(stage.fetch_model.inputs),
    output:
        checkpoint=directory("results/models/{model}/checkpoint"),
        record="results/models/{model}/model.json",
    params:
        **stage.fetch_model.params,
    log:
        "logs/fetch/model/{model}.log",
    benchmark:
        "results/benchmarks/fetch/model/{model}.tsv"
    wildcard_constraints:
        **stage.fetch_model.constraints,
    conda:
        NEURAL
    threads: 1
    resources:
        **stage.fetch_model.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule fetch_run:
    message:
        "Fetching the run of {wildcards.system} on {wildcards.dataset}"
    input:
        unpack(stage.fetch_run.inputs),
    output:
        run="results/runs/{system}/{dataset}.run.gz",
        record="results/runs/{system}/{dataset}.json",
    params:
        **stage.fetch_run.params,
    log:
        "logs/fetch/run/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/fetch/run/{system}/{dataset}.tsv"
    wildcard_constraints:
        **stage.fetch_run.constraints,
    conda:
        EVALUATE
    threads: 1
    resources:
        **stage.fetch_run.resources,
    group:
        stage.fetch_run.group
    shell:
        "{params.command} > {log:q} 2>&1"
