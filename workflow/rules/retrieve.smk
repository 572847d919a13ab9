rule retrieve_lucene:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        index=lambda w: grid.lucene_index(w.system, w.dataset),
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        made=paths.RUN_MADE,
    params:
        version=STAGE_VERSIONS["retrieve"],
        fields=lambda w: grid.fields(w.system),
        language=lambda w: grid.language(grid.config.datasets[w.dataset].corpus),
        bm25=lambda w: grid.bm25(w.system),
        depth=grid.config.depth,
        heap=lambda w, resources: grid.needs.heap_mb(resources.mem_mb),
        key=settings_key("retrieve_lucene"),
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("lexical"),
    conda:
        LEXICAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("retrieve_lucene", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("retrieve_lucene", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("retrieve_lucene", w),
    group:
        grid.cell_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid retrieve lucene --system {wildcards.system:q} --index {input.index:q}"
        " --fields {params.fields:q} --language {params.language:q} {params.bm25:q}"
        " --queries {input.queries:q} --depth {params.depth:q} --threads {threads}"
        " --memory {params.heap:q} --output {output.run:q} --made {output.made:q} > {log:q} 2>&1"


rule retrieve_faiss:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        checkpoint=lambda w: grid.checkpoint(w.system, w.dataset),
        corpus=lambda w: grid.corpus_of(w.dataset),
        shards=lambda w: grid.index_shards(paths.FAISS, w.system, w.dataset),
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        made=paths.RUN_MADE,
    params:
        version=STAGE_VERSIONS["retrieve"],
        entry=lambda w: in_file(grid.query_entry(w.system, w.dataset)),
        shards=lambda w: in_file(*grid.index_shards(paths.FAISS, w.system, w.dataset)),
        depth=grid.config.depth,
        precision=grid.config.encode["precision"],
        key=settings_key("retrieve_faiss"),
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("dense"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("retrieve_faiss", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("retrieve_faiss", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("retrieve_faiss", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    group:
        grid.cell_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid retrieve faiss --system {wildcards.system:q} --model {params.entry:q}"
        " --checkpoint {input.checkpoint:q} --corpus {input.corpus:q} --shards {params.shards:q}"
        " --queries {input.queries:q} --depth {params.depth:q} --precision {params.precision:q}"
        " --output {output.run:q} --made {output.made:q} > {log:q} 2>&1"


rule retrieve_impact:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        checkpoint=lambda w: grid.checkpoint(w.system, w.dataset),
        corpus=lambda w: grid.corpus_of(w.dataset),
        shards=lambda w: grid.index_shards(paths.IMPACT, w.system, w.dataset),
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        made=paths.RUN_MADE,
    params:
        version=STAGE_VERSIONS["retrieve"],
        entry=lambda w: in_file(grid.query_entry(w.system, w.dataset)),
        shards=lambda w: in_file(*grid.index_shards(paths.IMPACT, w.system, w.dataset)),
        depth=grid.config.depth,
        precision=grid.config.encode["precision"],
        key=settings_key("retrieve_impact"),
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("sparse"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("retrieve_impact", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("retrieve_impact", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("retrieve_impact", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    group:
        grid.cell_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid retrieve impact --system {wildcards.system:q} --model {params.entry:q}"
        " --checkpoint {input.checkpoint:q} --corpus {input.corpus:q} --shards {params.shards:q}"
        " --queries {input.queries:q} --depth {params.depth:q} --precision {params.precision:q}"
        " --output {output.run:q} --made {output.made:q} > {log:q} 2>&1"


rule retrieve_late:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        checkpoint=lambda w: grid.checkpoint(w.system, w.dataset),
        corpus=lambda w: grid.corpus_of(w.dataset),
        shards=lambda w: grid.index_shards(paths.TOKENS, w.system, w.dataset),
        indexes=lambda w: grid.candidate_shards(w.system, w.dataset),
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        made=paths.RUN_MADE,
    params:
        version=STAGE_VERSIONS["retrieve"],
        entry=lambda w: in_file(grid.query_entry(w.system, w.dataset)),
        shards=lambda w: in_file(*grid.index_shards(paths.TOKENS, w.system, w.dataset)),
        search=lambda w: in_file(*grid.late_search(w.system, w.dataset)),
        depth=grid.config.depth,
        precision=grid.config.encode["precision"],
        key=settings_key("retrieve_late"),
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("late-interaction"),
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("retrieve_late", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("retrieve_late", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("retrieve_late", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    group:
        grid.cell_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid retrieve late --system {wildcards.system:q} --model {params.entry:q}"
        " --checkpoint {input.checkpoint:q} --corpus {input.corpus:q} --shards {params.shards:q}"
        " {params.search:q} --queries {input.queries:q} --depth {params.depth:q}"
        " --precision {params.precision:q} --output {output.run:q} --made {output.made:q} > {log:q} 2>&1"
