rule index_lucene:
    message:
        "Indexing {wildcards.corpus} for BM25 ({wildcards.fields}{wildcards.expansion})"
    input:
        corpus=paths.CORPUS,
        expansions=lambda w: grid.expansions(w.expansion, w.corpus),
    output:
        index=directory(paths.LUCENE.replace("{index}", "bm25-{fields}{expansion}")),
        made=paths.LUCENE_MADE.replace("{index}", "bm25-{fields}{expansion}"),
    params:
        version=STAGE_VERSIONS["index"],
        expansions=lambda w: in_file(*grid.expansions(w.expansion, w.corpus)),
        language=lambda w: grid.language(w.corpus),
        heap=lambda w, resources: grid.needs.heap_mb(resources.mem_mb),
        key=settings_key("index_lucene"),
    log:
        "logs/index/bm25-{fields}{expansion}/{corpus}.log",
    benchmark:
        "results/benchmarks/index/bm25-{fields}{expansion}/{corpus}.tsv"
    wildcard_constraints:
        fields="flat|multifield",
        expansion="(@[^/]+)?",
    conda:
        LEXICAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("index_lucene", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("index_lucene", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("index_lucene", w),
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid index lucene --corpus {input.corpus:q} --expansions {params.expansions:q}"
        " --fields {wildcards.fields:q} --language {params.language:q} --threads {threads} --memory {params.heap:q}"
        " --output {output.index:q} --made {output.made:q} > {log:q} 2>&1"


rule index_faiss:
    message:
        "Indexing shard {wildcards.shard} of {wildcards.corpus} as {wildcards.model} encodes it"
    input:
        embeddings=paths.EMBEDDINGS,
    output:
        index=paths.FAISS,
        made=paths.SHARD_MADE,
    params:
        version=STAGE_VERSIONS["index"],
        key=settings_key("index_faiss"),
    log:
        "logs/index/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/index/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        model=grid.family("dense"),
    conda:
        NEURAL
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("index_faiss", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("index_faiss", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("index_faiss", w),
    group:
        grid.shard_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid index faiss --embeddings {input.embeddings:q}"
        " --output {output.index:q} --made {output.made:q} > {log:q} 2>&1"


rule index_impact:
    message:
        "Indexing shard {wildcards.shard} of {wildcards.corpus} as {wildcards.model} encodes it"
    input:
        embeddings=paths.SPARSE,
    output:
        index=directory(paths.IMPACT),
        made=paths.SHARD_MADE,
    params:
        version=STAGE_VERSIONS["index"],
        key=settings_key("index_impact"),
    log:
        "logs/index/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/index/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        model=grid.family("sparse"),
    conda:
        NEURAL
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("index_impact", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("index_impact", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("index_impact", w),
    group:
        grid.shard_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid index impact --embeddings {input.embeddings:q}"
        " --output {output.index:q} --made {output.made:q} > {log:q} 2>&1"


rule index_late:
    message:
        "Indexing the tokens of shard {wildcards.shard} of {wildcards.corpus} as {wildcards.model} encodes them"
    input:
        tokens=paths.TOKENS,
    output:
        index=paths.FAISS,
        made=paths.SHARD_MADE,
    params:
        version=STAGE_VERSIONS["index"],
        key=settings_key("index_late"),
    log:
        "logs/index/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/index/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        model=grid.family("late-interaction"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("index_late", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("index_late", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("index_late", w),
    group:
        grid.shard_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid index late --tokens {input.tokens:q}"
        " --output {output.index:q} --made {output.made:q} > {log:q} 2>&1"
