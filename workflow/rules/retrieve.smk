rule retrieve_lexical:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        index=inputs.lucene,
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **commands("retrieve_lexical", params.bm25, depth=DEPTH),
        heap=heap,
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
        **needs("retrieve_lexical"),
    group:
        nodes.group("retrieve_lexical")
    shell:
        "{params.beirgrid} retrieve lexical --system {wildcards.system:q} @-"
        " --threads {threads} --memory {params.heap:q} --index {input.index:q} --queries {input.queries:q}"
        " --output {output.run:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


rule retrieve_program:
    message:
        "Retrieving {wildcards.dataset} with the program of {wildcards.system}"
    input:
        inputs.command_files,
        corpus=inputs.corpus,
        queries=paths.QUERIES,
        index=inputs.program_index,
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **commands(
            "retrieve_program",
            params.program("command"),
            depth=DEPTH,
            allow=params.accepted_flaws,
            files=reruns.state_of(inputs.command_files),
        ),
        index=given("index"),
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of("program"),
    conda:
        EVALUATE
    threads: params.program_threads
    resources:
        **needs("retrieve_program"),
    shell:
        "{params.beirgrid} retrieve program --system {wildcards.system:q} @- --threads {threads}"
        " {params.index:q} --queries {input.queries:q} --corpus {input.corpus:q}"
        " --output {output.run:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


# One rule per kind of vectors.
rule retrieve_dense:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        checkpoint=inputs.query_checkpoint,
        corpus=inputs.corpus,
        indexes=inputs.indexes,
        exact=inputs.exact_indexes,
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **commands.neural("retrieve_dense", params.search, model=params.query_model, depth=DEPTH),
        family=params.retriever,
        vectors=given("exact", "tokens"),
    log:
        "logs/retrieve/{system}/{dataset}.log",
    benchmark:
        "results/benchmarks/retrieve/{system}/{dataset}.tsv"
    wildcard_constraints:
        system=grid.systems_of(*alike("dense")),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("retrieve_dense"),
    group:
        nodes.group("retrieve_dense")
    shell:
        "{params.beirgrid} retrieve {params.family:q} --system {wildcards.system:q} @- {params.compute:q}"
        " --checkpoint {input.checkpoint:q} --corpus {input.corpus:q} --indexes {input.indexes:q} {params.vectors:q}"
        " --queries {input.queries:q}"
        " --output {output.run:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


use rule retrieve_dense as retrieve_sparse with:
    params:
        **commands.neural("retrieve_sparse", params.search, model=params.query_model, depth=DEPTH),
        family=params.retriever,
        vectors="",
    wildcard_constraints:
        system=grid.systems_of(*alike("sparse")),
    resources:
        **needs("retrieve_sparse"),
    group:
        nodes.group("retrieve_sparse")


use rule retrieve_dense as retrieve_late_interaction with:
    input:
        checkpoint=inputs.query_checkpoint,
        corpus=inputs.corpus,
        indexes=inputs.indexes,
        tokens=inputs.tokens,
        queries=paths.QUERIES,
    wildcard_constraints:
        system=grid.systems_of(*alike("late-interaction")),
    resources:
        **needs("retrieve_late_interaction"),
    group:
        nodes.group("retrieve_late_interaction")
