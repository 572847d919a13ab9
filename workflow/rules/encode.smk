# One rule per kind of vectors.
rule encode_dense:
    message:
        "Encoding shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        unpack(stage.encode_dense.inputs),
    output:
        vectors=temp_unless_kept("results/embeddings/{model}/{corpus}/{shard}.npy"),
        record="results/embeddings/{model}/{corpus}/{shard}.json",
    params:
        **stage.encode_dense.params,
    log:
        "logs/encode/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/encode/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        **stage.encode_dense.constraints,
    conda:
        NEURAL
    threads: stage.encode_dense.threads
    resources:
        **stage.encode_dense.resources,
    group:
        stage.encode_dense.group
    shell:
        "{params.command} > {log:q} 2>&1"


use rule encode_dense as encode_sparse with:
    input:
        unpack(stage.encode_sparse.inputs),
    output:
        vectors=temp_unless_kept("results/embeddings/{model}/{corpus}/{shard}.npz"),
        record="results/embeddings/{model}/{corpus}/{shard}.json",
    params:
        **stage.encode_sparse.params,
    wildcard_constraints:
        **stage.encode_sparse.constraints,
    resources:
        **stage.encode_sparse.resources,
    group:
        stage.encode_sparse.group


# Its search also reads the vectors, so they are kept.
use rule encode_dense as encode_late_interaction with:
    input:
        unpack(stage.encode_late_interaction.inputs),
    output:
        vectors=directory("results/embeddings/{model}/{corpus}/{shard}.tokens"),
        record="results/embeddings/{model}/{corpus}/{shard}.json",
    params:
        **stage.encode_late_interaction.params,
    wildcard_constraints:
        **stage.encode_late_interaction.constraints,
    resources:
        **stage.encode_late_interaction.resources,
    group:
        stage.encode_late_interaction.group


rule expand:
    message:
        "Expanding shard {wildcards.shard} of {wildcards.corpus} with {wildcards.model}"
    input:
        unpack(stage.expand.inputs),
    output:
        expansions="results/expansions/{model}/{corpus}/{shard}.parquet",
        record="results/expansions/{model}/{corpus}/{shard}.json",
    params:
        **stage.expand.params,
    log:
        "logs/expand/{model}/{corpus}/{shard}.log",
    benchmark:
        "results/benchmarks/expand/{model}/{corpus}/{shard}.tsv"
    wildcard_constraints:
        **stage.expand.constraints,
    conda:
        NEURAL
    threads: stage.expand.threads
    resources:
        **stage.expand.resources,
    shell:
        "{params.command} > {log:q} 2>&1"
