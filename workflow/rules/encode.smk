# One rule per kind of vectors. Their jobs have the same params.
rule encode_dense:
    message:
        "Encoding shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        checkpoint=inputs.weights,
        corpus=paths.CORPUS,
    output:
        vectors=passing(f"{paths.EMBEDDINGS}.npy"),
        record=paths.EMBEDDINGS_RECORD,
    params:
        **commands.neural(
            "encode_dense",
            model=params.model,
            shard_size=grid.config.encode.shard,
            last=params.is_last,
        ),
    log:
        "logs/encode/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/encode/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        model=grid.models_of_family(*alike("dense")),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("encode_dense"),
    group:
        nodes.group("encode_dense")
    shell:
        "{params.beirgrid} encode @- {params.compute:q} --shard {wildcards.shard:q}"
        " --checkpoint {input.checkpoint:q} --corpus {input.corpus:q}"
        " --output {output.vectors:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"


use rule encode_dense as encode_sparse with:
    output:
        vectors=passing(f"{paths.EMBEDDINGS}.npz"),
        record=paths.EMBEDDINGS_RECORD,
    wildcard_constraints:
        model=grid.models_of_family(*alike("sparse")),
    resources:
        **needs("encode_sparse"),
    group:
        nodes.group("encode_sparse")


# Its search also reads the vectors, so they are kept.
use rule encode_dense as encode_late_interaction with:
    output:
        vectors=directory(f"{paths.EMBEDDINGS}.tokens"),
        record=paths.EMBEDDINGS_RECORD,
    wildcard_constraints:
        model=grid.models_of_family(*alike("late-interaction")),
    resources:
        **needs("encode_late_interaction"),
    group:
        nodes.group("encode_late_interaction")


rule expand:
    message:
        "Expanding shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        checkpoint=inputs.weights,
        corpus=paths.CORPUS,
    output:
        expansions=paths.EXPANSIONS,
        record=paths.EXPANSIONS_RECORD,
    params:
        **commands.neural(
            "expand",
            model=params.model,
            shard_size=grid.config.encode.shard,
            last=params.is_last,
        ),
    log:
        "logs/expand/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/expand/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        model=grid.models_of_family(*named("expander")),
    conda:
        NEURAL
    threads: 8
    resources:
        **needs("expand"),
    shell:
        "{params.beirgrid} expand @- {params.compute:q} --shard {wildcards.shard:q}"
        " --checkpoint {input.checkpoint:q} --corpus {input.corpus:q}"
        " --output {output.expansions:q} --record {output.record:q} <<< {params.settings:q} > {log:q} 2>&1"
