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
        "../../envs/lexical.yaml"
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("retrieve_lucene", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("retrieve_lucene", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("retrieve_lucene", w),
    group:
        grid.cell_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid retrieve lucene --system {wildcards.system} --index {input.index}"
        " --fields {params.fields} --language {params.language} {params.bm25}"
        " --queries {input.queries} --depth {params.depth} --threads {threads}"
        " --memory {params.heap} --output {output.run} --made {output.made} > {log} 2>&1"


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
        entry=lambda w: grid.query_entry(w.system, w.dataset),
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
        " python -m beirgrid retrieve faiss --system {wildcards.system} --model {params.entry:q}"
        " --checkpoint {input.checkpoint} --corpus {input.corpus} --shards {input.shards}"
        " --queries {input.queries} --depth {params.depth} --precision {params.precision}"
        " --output {output.run} --made {output.made} > {log} 2>&1"


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
        entry=lambda w: grid.query_entry(w.system, w.dataset),
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
        " python -m beirgrid retrieve impact --system {wildcards.system} --model {params.entry:q}"
        " --checkpoint {input.checkpoint} --corpus {input.corpus} --shards {input.shards}"
        " --queries {input.queries} --depth {params.depth} --precision {params.precision}"
        " --output {output.run} --made {output.made} > {log} 2>&1"


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
        entry=lambda w: grid.query_entry(w.system, w.dataset),
        search=lambda w: grid.late_search(w.system, w.dataset),
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
        " python -m beirgrid retrieve late --system {wildcards.system} --model {params.entry:q}"
        " --checkpoint {input.checkpoint} --corpus {input.corpus} --shards {input.shards}"
        " {params.search} --queries {input.queries} --depth {params.depth}"
        " --precision {params.precision} --output {output.run} --made {output.made} > {log} 2>&1"
