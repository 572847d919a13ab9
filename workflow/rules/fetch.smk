rule fetch_corpus:
    message:
        "Fetching corpus {wildcards.corpus}"
    input:
        lambda w: grid.local_files(w.corpus, "corpus.jsonl"),
    output:
        corpus=paths.CORPUS,
        made=paths.CORPUS_MADE,
    params:
        version=STAGE_VERSIONS["fetch"],
        entry=lambda w: in_file(grid.corpus_entry(w.corpus)),
        files=lambda w: grid.state(grid.local_files(w.corpus, "corpus.jsonl")),
        key=settings_key("fetch_corpus"),
    log:
        "logs/fetch/corpus/{corpus}.log",
    benchmark:
        "results/benchmarks/fetch/corpus/{corpus}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("fetch_corpus", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("fetch_corpus", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("fetch_corpus", w),
        network=1,
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid fetch corpus --name {wildcards.corpus:q} --corpus {params.entry:q}"
        " --output {output.corpus:q} --made {output.made:q} > {log:q} 2>&1"


rule fetch_dataset:
    message:
        "Fetching queries and qrels of {wildcards.dataset}"
    input:
        lambda w: grid.dataset_files(w.dataset),
        corpus=lambda w: grid.corpus_of(w.dataset),
    output:
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        made=paths.DATASET_MADE,
    params:
        version=STAGE_VERSIONS["fetch_dataset"],
        entry=lambda w: in_file(grid.dataset_entry(w.dataset)),
        corpus=lambda w: in_file(grid.corpus_entry(grid.config.datasets[w.dataset].corpus)),
        files=lambda w: grid.state(grid.dataset_files(w.dataset)),
        key=settings_key("fetch_dataset"),
    log:
        "logs/fetch/dataset/{dataset}.log",
    benchmark:
        "results/benchmarks/fetch/dataset/{dataset}.tsv"
    conda:
        EVALUATE
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("fetch_dataset", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("fetch_dataset", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("fetch_dataset", w),
        network=1,
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid fetch dataset --name {wildcards.dataset:q} --dataset {params.entry:q}"
        " --corpus {params.corpus:q} --documents {input.corpus:q} --queries {output.queries:q}"
        " --qrels {output.qrels:q} --made {output.made:q} > {log:q} 2>&1"


rule fetch_model:
    message:
        "Fetching the checkpoint of {wildcards.model}"
    input:
        lambda w: grid.model_files(w.model),
    output:
        checkpoint=directory(paths.CHECKPOINT),
        made=paths.MODEL_MADE,
    params:
        version=STAGE_VERSIONS["fetch"],
        entry=lambda w: in_file(grid.fetch_entry(w.model)),
        files=lambda w: grid.state(grid.model_files(w.model)),
        key=settings_key("fetch_model"),
    log:
        "logs/fetch/model/{model}.log",
    benchmark:
        "results/benchmarks/fetch/model/{model}.tsv"
    wildcard_constraints:
        model=grid.models_of(None),
    conda:
        NEURAL
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("fetch_model", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("fetch_model", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("fetch_model", w),
        network=1,
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid fetch model --name {wildcards.model:q} --model {params.entry:q}"
        " --output {output.checkpoint:q} --made {output.made:q} > {log:q} 2>&1"
