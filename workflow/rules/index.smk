rule index_lexical:
    message:
        "Indexing {wildcards.corpus} for BM25 ({wildcards.fields}{wildcards.expansion})"
    input:
        unpack(stage.index_lexical.inputs),
    output:
        index=directory("results/indexes/bm25-{fields}{expansion}/{corpus}/lucene"),
        record="results/indexes/bm25-{fields}{expansion}/{corpus}/lucene.json",
    params:
        **stage.index_lexical.params,
    log:
        "logs/index/bm25-{fields}{expansion}/{corpus}.log",
    benchmark:
        "results/benchmarks/index/bm25-{fields}{expansion}/{corpus}.tsv"
    wildcard_constraints:
        **stage.index_lexical.constraints,
    conda:
        LEXICAL
    threads: stage.index_lexical.threads
    resources:
        **stage.index_lexical.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


rule index_program:
    message:
        "Indexing {wildcards.corpus} by the program of {wildcards.system}"
    input:
        unpack(stage.index_program.inputs),
    output:
        index=directory("results/indexes/{system}/{corpus}/program"),
        record="results/indexes/{system}/{corpus}/program.json",
    params:
        **stage.index_program.params,
    log:
        "logs/index/{system}/{corpus}/program.log",
    benchmark:
        "results/benchmarks/index/{system}/{corpus}/program.tsv"
    wildcard_constraints:
        **stage.index_program.constraints,
    conda:
        EVALUATE
    threads: threads_of_program
    resources:
        **stage.index_program.resources,
    shell:
        "{params.command} > {log:q} 2>&1"


# One rule per kind of vectors.
rule index_dense:
    message:
        "Indexing shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        unpack(stage.index_dense.inputs),
    output:
        index="results/indexes/{model}/{corpus}/{shard}.faiss",
        record="results/indexes/{model}/{corpus}/{shard}.json",
    params:
        **stage.index_dense.params,
    log:
        "logs/index/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/index/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        **stage.index_dense.constraints,
    conda:
        NEURAL
    threads: 1
    resources:
        **stage.index_dense.resources,
    group:
        stage.index_dense.group
    shell:
        "{params.command} > {log:q} 2>&1"


use rule index_dense as index_sparse with:
    input:
        unpack(stage.index_sparse.inputs),
    output:
        index=directory("results/indexes/{model}/{corpus}/{shard}.impact"),
        record="results/indexes/{model}/{corpus}/{shard}.json",
    params:
        **stage.index_sparse.params,
    wildcard_constraints:
        **stage.index_sparse.constraints,
    resources:
        **stage.index_sparse.resources,
    group:
        stage.index_sparse.group


use rule index_dense as index_late_interaction with:
    input:
        unpack(stage.index_late_interaction.inputs),
    output:
        index="results/indexes/{model}/{corpus}/{shard}.faiss",
        record="results/indexes/{model}/{corpus}/{shard}.json",
    params:
        **stage.index_late_interaction.params,
    wildcard_constraints:
        **stage.index_late_interaction.constraints,
    threads: stage.index_late_interaction.threads
    resources:
        **stage.index_late_interaction.resources,
    group:
        stage.index_late_interaction.group


rule index_approximate:
    message:
        "Building the index {wildcards.variant} of shard {wildcards.shard} of {wildcards.corpus}"
        " with {wildcards.model}"
    input:
        unpack(stage.index_approximate.inputs),
    output:
        index="results/indexes/{model}/{corpus}/{variant}/{shard}.faiss",
        record="results/indexes/{model}/{corpus}/{variant}/{shard}.json",
    params:
        **stage.index_approximate.params,
    log:
        "logs/index/{model}/{corpus}/{variant}/{shard}.log",
    benchmark:
        "results/benchmarks/index/{model}/{corpus}/{variant}/{shard}.tsv"
    wildcard_constraints:
        **stage.index_approximate.constraints,
    conda:
        NEURAL
    threads: stage.index_approximate.threads
    resources:
        **stage.index_approximate.resources,
    shell:
        "{params.command} > {log:q} 2>&1"
