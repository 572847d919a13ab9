rule score:
    message:
        "Scoring pairs of {wildcards.dataset} from {wildcards.first} with {wildcards.reranker}"
    input:
        checkpoint=paths.CHECKPOINT.replace("{model}", "{reranker}"),
        corpus=lambda w: grid.corpus_of(w.dataset),
        queries=paths.QUERIES,
        run=paths.RUN.replace("{system}", "{first}"),
    output:
        made=paths.PAIRS_MADE,
    params:
        version=STAGE_VERSIONS["score"],
        entry=lambda w: in_file(grid.model_entry(w.reranker)),
        depth=lambda w: grid.score_depth(w.reranker, w.first),
        pairs=paths.PAIRS,
        precision=grid.config.encode["precision"],
        key=settings_key("score"),
    log:
        "logs/score/{reranker}/{dataset}/{first}.log",
    benchmark:
        "results/benchmarks/score/{reranker}/{dataset}/{first}.tsv"
    conda:
        NEURAL
    threads: 8
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("score", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("score", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("score", w),
        gpu=0 if grid.config.device == "cpu" else 1,
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid score --model {params.entry:q} --checkpoint {input.checkpoint:q}"
        " --corpus {input.corpus:q} --queries {input.queries:q} --run {input.run:q}"
        " --depth {params.depth:q} --precision {params.precision:q}"
        " --pairs {params.pairs:q} --made {output.made:q} > {log:q} 2>&1"


rule rerank:
    message:
        "Reranking {wildcards.dataset} as {wildcards.system}"
    input:
        run=lambda w: grid.part_runs(w.system, w.dataset),
        scores=lambda w: grid.pair_scores(w.system, w.dataset),
    output:
        run=paths.RUN,
        made=paths.RUN_MADE,
    params:
        version=STAGE_VERSIONS["rerank"],
        depth=lambda w: grid.depth(w.system),
        key=settings_key("rerank"),
    log:
        "logs/rerank/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/rerank/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("rerank"),
    conda:
        NEURAL
    threads: 1
    resources:
        mem_mb=lambda w, attempt: grid.needs.mem_mb("rerank", w, attempt),
        runtime=lambda w, attempt: grid.needs.runtime("rerank", w, attempt),
        disk_mb=lambda w: grid.needs.disk_mb("rerank", w),
    group:
        grid.cell_job
    shell:
        "BEIRGRID_SETTINGS={params.key}"
        " python -m beirgrid rerank --system {wildcards.system:q} --first-stage {input.run:q}"
        " --scores {input.scores:q} --depth {params.depth:q}"
        " --output {output.run:q} --made {output.made:q} > {log:q} 2>&1"
