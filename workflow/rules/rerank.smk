rule score:
    message:
        "Scoring pairs of {wildcards.dataset} from {wildcards.first} with {wildcards.reranker}"
    input:
        unpack(stage.score.inputs),
    output:
        record="results/pairs/{reranker}/{dataset}/{first}.json",
    params:
        **stage.score.params,
    log:
        "logs/score/{reranker}/{dataset}/{first}.log",
    benchmark:
        "results/benchmarks/score/{reranker}/{dataset}/{first}.tsv"
    conda:
        NEURAL
    threads: stage.score.threads
    resources:
        **stage.score.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule rerank:
    message:
        "Reranking {wildcards.system} on {wildcards.dataset}"
    input:
        unpack(stage.rerank.inputs),
    output:
        run="results/runs/{system}/{dataset}.run.gz",
        record="results/runs/{system}/{dataset}.json",
    params:
        **stage.rerank.params,
    log:
        "logs/rerank/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/rerank/{system}/{dataset}.tsv"
    wildcard_constraints:
        **stage.rerank.constraints,
    conda:
        NEURAL
    threads: 1
    resources:
        **stage.rerank.resources,
    group:
        stage.rerank.group
    shell:
        "{params.command} > {log:q} 2>&1"
