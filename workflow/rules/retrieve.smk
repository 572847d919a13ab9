rule retrieve_lexical:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        unpack(stage.retrieve_lexical.inputs),
    output:
        run="results/runs/{system}/{dataset}.run.gz",
        record="results/runs/{system}/{dataset}.json",
    params:
        **stage.retrieve_lexical.params,
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        **stage.retrieve_lexical.constraints,
    conda:
        LEXICAL
    threads: stage.retrieve_lexical.threads
    resources:
        **stage.retrieve_lexical.resources,
    group:
        stage.retrieve_lexical.group
    shell:
        "{params.command} > {log:q} 2>&1"


rule retrieve_program:
    message:
        "Retrieving {wildcards.dataset} with the program of {wildcards.system}"
    input:
        unpack(stage.retrieve_program.inputs),
    output:
        run="results/runs/{system}/{dataset}.run.gz",
        record="results/runs/{system}/{dataset}.json",
    params:
        **stage.retrieve_program.params,
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        **stage.retrieve_program.constraints,
    conda:
        EVALUATE
    threads: threads_of_program
    resources:
        **stage.retrieve_program.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


# One rule per kind of vectors.
rule retrieve_dense:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        unpack(stage.retrieve_dense.inputs),
    output:
        run="results/runs/{system}/{dataset}.run.gz",
        record="results/runs/{system}/{dataset}.json",
    params:
        **stage.retrieve_dense.params,
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        **stage.retrieve_dense.constraints,
    conda:
        NEURAL
    threads: stage.retrieve_dense.threads
    resources:
        **stage.retrieve_dense.resources,
    group:
        stage.retrieve_dense.group
    shell:
        "{params.command} > {log:q} 2>&1"


use rule retrieve_dense as retrieve_sparse with:
    input:
        unpack(stage.retrieve_sparse.inputs),
    params:
        **stage.retrieve_sparse.params,
    wildcard_constraints:
        **stage.retrieve_sparse.constraints,
    resources:
        **stage.retrieve_sparse.resources,
    group:
        stage.retrieve_sparse.group


use rule retrieve_dense as retrieve_late_interaction with:
    input:
        unpack(stage.retrieve_late_interaction.inputs),
    params:
        **stage.retrieve_late_interaction.params,
    wildcard_constraints:
        **stage.retrieve_late_interaction.constraints,
    resources:
        **stage.retrieve_late_interaction.resources,
    group:
        stage.retrieve_late_interaction.group


rule rewrite:
    message:
        "Rewriting the queries of {wildcards.dataset} ({wildcards.rewriting})"
    input:
        unpack(stage.rewrite.inputs),
    output:
        rewrites="results/rewrites/{rewriting}/{dataset}.parquet",
        record="results/rewrites/{rewriting}/{dataset}.json",
    params:
        **stage.rewrite.params,
    log:
        "logs/rewrite/{rewriting}/{dataset}.log",
    benchmark:
        "results/benchmarks/rewrite/{rewriting}/{dataset}.tsv"
    wildcard_constraints:
        **stage.rewrite.constraints,
    conda:
        NEURAL
    threads: stage.rewrite.threads
    resources:
        **stage.rewrite.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


use rule retrieve_dense as feedback with:
    input:
        unpack(stage.feedback.inputs),
    params:
        **stage.feedback.params,
    wildcard_constraints:
        **stage.feedback.constraints,
    threads: stage.feedback.threads
    resources:
        **stage.feedback.resources,
    group:
        stage.feedback.group
