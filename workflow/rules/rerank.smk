rule score:
    message:
        "Scoring pairs of {wildcards.dataset} from {wildcards.first} with {wildcards.reranker}"
    input:
        checkpoint=paths.CHECKPOINT.replace("{model}", "{reranker}"),
        corpus=lambda w: inputs.corpus(w.dataset),
        queries=paths.QUERIES,
        run=paths.RUN.replace("{system}", "{first}"),
    output:
        record=paths.PAIRS_RECORD,
    params:
        **settings.neural(
            "score",
            entry=lambda w: in_file(entries.model(w.reranker)),
            depth=lambda w: grid.score_depth(w.reranker, w.first),
        ),
        pairs=paths.PAIRS,
    log:
        "logs/score/{reranker}/{dataset}/{first}.log",
    benchmark:
        "results/benchmarks/score/{reranker}/{dataset}/{first}.tsv"
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("score"),
    shell:
        "{params.beirgrid} score --model {params.entry:q} --checkpoint {input.checkpoint:q}"
        " --corpus {input.corpus:q} --queries {input.queries:q} --run {input.run:q}"
        " --depth {params.depth:q} --precision {params.precision:q} {params.compute:q}"
        " --pairs {params.pairs:q} --record {output.record:q} > {log:q} 2>&1"


rule rerank:
    message:
        "Reranking {wildcards.system} on {wildcards.dataset}"
    input:
        run=lambda w: inputs.part_runs(w.system, w.dataset),
        scores=lambda w: inputs.pair_scores(w.system, w.dataset),
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **settings("rerank", depth=lambda w: grid.depth(grid.system(w.system))),
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
        **needs("rerank"),
    group:
        nodes.group("rerank")
    shell:
        "{params.beirgrid} rerank --system {wildcards.system:q} --first-stage {input.run:q}"
        " --scores {input.scores:q} --depth {params.depth:q}"
        " --output {output.run:q} --record {output.record:q} > {log:q} 2>&1"
