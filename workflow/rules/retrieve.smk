rule retrieve_lexical:
    message:
        "Retrieving {wildcards.dataset} with {wildcards.system}"
    input:
        index=lambda w: inputs.lucene(w.system, w.dataset),
        queries=paths.QUERIES,
    output:
        run=paths.RUN,
        record=paths.RUN_RECORD,
    params:
        **settings(
            "retrieve_lexical",
            fields=lambda w: grid.system(w.system).fields_,
            language=lambda w: entries.language(grid.corpus(w.dataset)),
            bm25=lambda w: entries.bm25(w.system),
            depth=DEPTH,
        ),
        heap=lambda w, resources: needs.heap_mb(resources.mem_mb),
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
        "{params.beirgrid} retrieve lexical --system {wildcards.system:q} --index {input.index:q}"
        " --fields {params.fields:q} --language {params.language:q} {params.bm25:q}"
        " --queries {input.queries:q} --depth {params.depth:q} --threads {threads}"
        " --memory {params.heap:q} --output {output.run:q} --record {output.record:q} > {log:q} 2>&1"


# One rule per family: only the command's word and what a job needs differ.
for family in (row for row in RETRIEVERS.values() if not row.like):

    rule:
        message:
            "Retrieving {wildcards.dataset} with {wildcards.system}"
        input:
            checkpoint=lambda w: inputs.checkpoint(w.system, w.dataset),
            corpus=lambda w: inputs.corpus(w.dataset),
            vectors=lambda w: inputs.vectors(w.system, w.dataset),
            indexes=lambda w: inputs.indexes(w.system, w.dataset),
            queries=paths.QUERIES,
        output:
            run=paths.RUN,
            record=paths.RUN_RECORD,
        params:
            **settings.neural(
                f"retrieve_{family.rule}",
                entry=lambda w: in_file(entries.query_model(w.system, w.dataset)),
                search=lambda w: in_file(*entries.search(w.system, w.dataset)),
                depth=DEPTH,
            ),
            family=lambda w, output: grid.system(w.system).kind,
        log:
            "logs/retrieve/{system}/{dataset}.log",
        benchmark:
            "results/benchmarks/retrieve/{system}/{dataset}.tsv"
        wildcard_constraints:
            system=grid.systems_of(*alike(family.name)),
        conda:
            NEURAL
        threads: 8
        resources:
            **needs(f"retrieve_{family.rule}"),
        name:
            f"retrieve_{family.rule}"
        group:
            nodes.group(f"retrieve_{family.rule}")
        shell:
            "{params.beirgrid} retrieve {params.family:q} --system {wildcards.system:q}"
            " --model {params.entry:q} --checkpoint {input.checkpoint:q} --corpus {input.corpus:q}"
            " --indexes {params.search:q} --queries {input.queries:q}"
            " --depth {params.depth:q} --precision {params.precision:q} {params.compute:q}"
            " --output {output.run:q} --record {output.record:q} > {log:q} 2>&1"
