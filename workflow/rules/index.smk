rule index_lexical:
    message:
        "Indexing {wildcards.corpus} for BM25 ({wildcards.fields}{wildcards.expansion})"
    input:
        corpus=paths.CORPUS,
        expansions=lambda w: inputs.expansions(w.expansion, w.corpus),
    output:
        index=directory(paths.LUCENE.replace("{index}", "bm25-{fields}{expansion}")),
        record=paths.LUCENE_RECORD.replace("{index}", "bm25-{fields}{expansion}"),
    params:
        **settings(
            "index_lexical",
            expansions=lambda w: in_file(*inputs.expansions(w.expansion, w.corpus)),
            language=lambda w: entries.language(w.corpus),
        ),
        heap=lambda w, resources: needs.heap_mb(resources.mem_mb),
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
        "{params.beirgrid} index lexical --corpus {input.corpus:q} --expansions {params.expansions:q}"
        " --fields {wildcards.fields:q} --language {params.language:q} --threads {threads}"
        " --memory {params.heap:q} --output {output.index:q} --record {output.record:q} > {log:q} 2>&1"


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
        **settings(
            "index_approximate",
            variant=lambda w: entries.variant(w.model, w.variant),
        ),
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
        "{params.beirgrid} index approximate --exact {input.exact:q} {params.variant:q}"
        " --output {output.index:q} --record {output.record:q} > {log:q} 2>&1"


# One rule per family: they differ in what a shard of vectors is, and in its index.
for family in (row for row in RETRIEVERS.values() if not row.like):

    rule:
        message:
            "Indexing shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
        input:
            vectors=paths.EMBEDDINGS + family.embeddings,
        output:
            index=(directory if family.index_folder else str)(paths.INDEXES + family.index),
            record=paths.SHARD_RECORD,
        params:
            **settings(f"index_{family.rule}"),
            family=lambda w, output: grid.model(w.model).family,
        log:
            "logs/index/{model}/{corpus}/{shard}.log",
        benchmark:
            "results/benchmarks/index/{model}/{corpus}/{shard}.tsv"
        wildcard_constraints:
            model=grid.models_of_family(*alike(family.name)),
        conda:
            NEURAL
        threads: 8 if family.folder else 1
        resources:
            **needs(f"index_{family.rule}"),
        name:
            f"index_{family.rule}"
        group:
            nodes.group(f"index_{family.rule}")
        shell:
            "{params.beirgrid} index {params.family:q} --vectors {input.vectors:q}"
            " --output {output.index:q} --record {output.record:q} > {log:q} 2>&1"
