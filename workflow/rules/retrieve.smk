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
        heap=lambda w, resources: int(resources.mem_mb * 0.75),
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
        mem_mb=lambda w, attempt: 4000 * attempt,
        runtime=lambda w, attempt: 60 * attempt,
    group:
        grid.cell_job
    shell:
        "python -m beirgrid retrieve lucene --system {wildcards.system} --index {input.index}"
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
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("dense"),
    conda:
        "../../envs/neural.yaml"
    threads: 8
    resources:
        mem_mb=lambda w, attempt: 8000 * attempt,
        runtime=lambda w, attempt: 120 * attempt,
        gpu=0 if grid.config.device == "cpu" else 1,
    group:
        grid.cell_job
    shell:
        "python -m beirgrid retrieve faiss --system {wildcards.system} --model {params.entry:q}"
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
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("sparse"),
    conda:
        "../../envs/neural.yaml"
    threads: 8
    resources:
        mem_mb=lambda w, attempt: 8000 * attempt,
        runtime=lambda w, attempt: 120 * attempt,
        gpu=0 if grid.config.device == "cpu" else 1,
    group:
        grid.cell_job
    shell:
        "python -m beirgrid retrieve impact --system {wildcards.system} --model {params.entry:q}"
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
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("late-interaction"),
    conda:
        "../../envs/neural.yaml"
    threads: 8
    resources:
        mem_mb=lambda w, attempt: 8000 * attempt,
        runtime=lambda w, attempt: 240 * attempt,
        gpu=0 if grid.config.device == "cpu" else 1,
    group:
        grid.cell_job
    shell:
        "python -m beirgrid retrieve late --system {wildcards.system} --model {params.entry:q}"
        " --checkpoint {input.checkpoint} --corpus {input.corpus} --shards {input.shards}"
        " {params.search} --queries {input.queries} --depth {params.depth}"
        " --precision {params.precision} --output {output.run} --made {output.made} > {log} 2>&1"
