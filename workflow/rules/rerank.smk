rule score:
    message:
        "Scoring pairs of {wildcards.dataset} from {wildcards.first} with {wildcards.reranker}"
    input:
        checkpoint=inputs.scorer,
        corpus=inputs.corpus,
        queries=paths.QUERIES,
        run=paths.RUN.replace("{system}", "{first}"),
    output:
        record=paths.PAIRS_RECORD,
    params:
        **commands.neural("score", model=params.reranker, depth=params.score_depth),
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
        "{params.beirgrid} score @- {params.compute:q} --checkpoint {input.checkpoint:q}"
        " --corpus {input.corpus:q} --queries {input.queries:q} --run {input.run:q}"
        " --pairs {params.pairs:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule rerank:
    message:
        "Reranking {wildcards.system} on {wildcards.dataset}"
    input:
        run=inputs.component_runs,
        scores=inputs.pair_scores,
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **commands("rerank", depth=params.rerank_depth),
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
        "{params.beirgrid} rerank --system {wildcards.system:q} @-"
        " --first-stage {input.run:q} --scores {input.scores:q}"
        " --output {output.run:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"
