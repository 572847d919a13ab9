# One rule per family: they differ in what a shard of vectors is.
for family in RETRIEVERS.values():

    rule:
        message:
            "Encoding shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
        input:
            checkpoint=paths.CHECKPOINT,
            corpus=paths.CORPUS,
        output:
            vectors=(
                directory(paths.EMBEDDINGS + family.embeddings)
                if family.folder
                else (
                    paths.EMBEDDINGS + family.embeddings
                    if grid.config.encode.keep
                    else temp(paths.EMBEDDINGS + family.embeddings)
                )
            ),
            record=paths.EMBEDDINGS_RECORD,
        params:
            **settings.neural(
                f"encode_{family.rule}",
                stage="encode",
                entry=lambda w: in_file(entries.model(w.model)),
                size=grid.config.encode.shard,
                last=lambda w: "--last" if grid.is_last(w.corpus, int(w.shard)) else "",
            ),
        log:
            "logs/encode/{model}/{corpus}/{shard}.log",
        benchmark:
            "results/benchmarks/encode/{model}/{corpus}/{shard}.tsv"
        wildcard_constraints:
            model=grid.models_of_family(family.name),
        conda:
            NEURAL
        threads: 8
        resources:
            **needs(f"encode_{family.rule}"),
        name:
            f"encode_{family.rule}"
        group:
            nodes.group(f"encode_{family.rule}")
        shell:
            "{params.beirgrid} encode --model {params.entry:q} --checkpoint {input.checkpoint:q}"
            " --corpus {input.corpus:q} --shard {wildcards.shard:q} --shard-size {params.size:q}"
            " {params.last:q} --precision {params.precision:q} {params.compute:q}"
            " --output {output.vectors:q} --record {output.record:q} > {log:q} 2>&1"
