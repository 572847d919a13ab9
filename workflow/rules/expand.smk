rule expand:
    message:
        "Expanding shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        checkpoint=paths.CHECKPOINT,
        corpus=paths.CORPUS,
    output:
        expansions=paths.EXPANSIONS,
        record=paths.EXPANSIONS_RECORD,
    params:
        **settings.neural(
            "expand",
            entry=lambda w: in_file(entries.model(w.model)),
            size=grid.config.encode.shard,
            last=lambda w: "--last" if grid.is_last(w.corpus, int(w.shard)) else "",
        ),
    log:
        "logs/expand/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/expand/{model}/{corpus}/{shard}.tsv"
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("expand"),
    shell:
        "{params.beirgrid} expand --model {params.entry:q} --checkpoint {input.checkpoint:q}"
        " --corpus {input.corpus:q} --shard {wildcards.shard:q} --shard-size {params.size:q}"
        " {params.last:q} --precision {params.precision:q} {params.compute:q}"
        " --output {output.expansions:q} --record {output.record:q} > {log:q} 2>&1"
