rule index_lexical:
    message:
        "Indexing {wildcards.corpus} for BM25 ({wildcards.fields}{wildcards.expansion})"
    input:
        corpus=paths.CORPUS,
        expansions=inputs.expansions,
    output:
        index=directory(paths.LUCENE.replace("{index}", "bm25-{fields}{expansion}")),
        record=paths.LUCENE_RECORD.replace("{index}", "bm25-{fields}{expansion}"),
    params:
        **commands("index_lexical", language=params.language),
        heap=heap,
        expansions=given("expansions"),
    log:
        "logs/index/bm25-{fields}{expansion}/{corpus}.log",
    benchmark:
        "results/benchmarks/index/bm25-{fields}{expansion}/{corpus}.tsv"
    wildcard_constraints:
        fields="flat|multifield",
        expansion="([@~][^/]+)?",
    conda:
        LEXICAL
    threads: 8
    resources:
        **needs("index_lexical"),
    shell:
        "{params.beirgrid} index lexical --fields {wildcards.fields:q} @- --threads {threads} --memory {params.heap:q}"
        " --corpus {input.corpus:q} {params.expansions:q}"
        " --output {output.index:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule index_program:
    message:
        "Indexing {wildcards.corpus} by the program of {wildcards.system}"
    input:
        inputs.index_command_files,
        corpus=paths.CORPUS,
    output:
        index=directory(paths.PROGRAM_INDEX),
        record=paths.PROGRAM_INDEX_RECORD,
    params:
        **commands(
            "index_program",
            params.program("index_command"),
            files=reruns.state_of(inputs.index_command_files),
        ),
    log:
        "logs/index/{system}/{corpus}/program.log",
    benchmark:
        "results/benchmarks/index/{system}/{corpus}/program.tsv"
    wildcard_constraints:
        system=grid.systems_of("program"),
    conda:
        EVALUATE
    threads: params.program_threads
    resources:
        **needs("index_program"),
    shell:
        "{params.beirgrid} index program @- --threads {threads} --corpus {input.corpus:q}"
        " --output {output.index:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


# One rule per kind of vectors. Their jobs have the same params.
rule index_dense:
    message:
        "Indexing shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        vectors=f"{paths.EMBEDDINGS}.npy",
    output:
        index=f"{paths.INDEXES}.faiss",
        record=paths.SHARD_RECORD,
    params:
        **commands("index_dense"),
        family=params.family,
    log:
        "logs/index/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/index/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        model=grid.models_of_family(*alike("dense")),
    conda:
        NEURAL
    threads: 1
    resources:
        **needs("index_dense"),
    group:
        nodes.group("index_dense")
    shell:
        "{params.beirgrid} index {params.family:q} --vectors {input.vectors:q}"
        " --output {output.index:q} --record {output.record:q} > {log:q} 2>&1"


use rule index_dense as index_sparse with:
    input:
        vectors=f"{paths.EMBEDDINGS}.npz",
    output:
        index=directory(f"{paths.INDEXES}.impact"),
        record=paths.SHARD_RECORD,
    wildcard_constraints:
        model=grid.models_of_family(*alike("sparse")),
    resources:
        **needs("index_sparse"),
    group:
        nodes.group("index_sparse")


use rule index_dense as index_late_interaction with:
    input:
        vectors=f"{paths.EMBEDDINGS}.tokens",
    output:
        index=f"{paths.INDEXES}.faiss",
        record=paths.SHARD_RECORD,
    wildcard_constraints:
        model=grid.models_of_family(*alike("late-interaction")),
    threads: 8
    resources:
        **needs("index_late_interaction"),
    group:
        nodes.group("index_late_interaction")


rule index_approximate:
    message:
        "Building the index {wildcards.variant} of shard {wildcards.shard} of {wildcards.corpus}"
        " with {wildcards.model}"
    input:
        exact=f"{paths.INDEXES}.faiss",
    output:
        index=paths.VARIANTS,
        record=paths.VARIANT_RECORD,
    params:
        **commands("index_approximate", params.variant),
    log:
        "logs/index/{model}/{corpus}/{variant}/{shard}.log",
    benchmark:
        "results/benchmarks/index/{model}/{corpus}/{variant}/{shard}.tsv"
    wildcard_constraints:
        model=grid.models_of_family("dense"),
        variant=grid.one_of(grid.variants),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("index_approximate"),
    shell:
        "{params.beirgrid} index approximate @- --exact {input.exact:q}"
        " --output {output.index:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"
