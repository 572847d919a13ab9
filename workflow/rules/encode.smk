# One rule per family that encodes, since they differ in what a shard of vectors is, and one for expansions.
for step in SHARD_STEPS:
    temporary = step.stage == "encode" and not grid.config.encode.keep

    rule:
        message:
            f"{step.purpose} shard {{wildcards.shard}} of {{wildcards.corpus}} with {{wildcards.model}}"
        input:
            checkpoint=lambda w: inputs.weights(w.model),
            corpus=paths.CORPUS,
        output:
            result=(directory if step.folder else temp if temporary else str)(step.output),
            record=step.record,
        params:
            **settings.neural(
                step.rule,
                entry=lambda w: in_file(entries.model(w.model)),
                size=grid.config.encode.shard,
                last=lambda w: "--last" if grid.is_last(w.corpus, int(w.shard)) else "",
            ),
            stage=lambda w, output, step=step: step.stage,
        log:
            f"logs/{step.stage}/{{model}}/{{corpus}}/{{shard}}.log",
        benchmark:
            f"results/benchmarks/{step.stage}/{{model}}/{{corpus}}/{{shard}}.tsv"
        wildcard_constraints:
            model=grid.models_of_family(*step.families),
        conda:
            NEURAL
        threads: 8
        resources:
            **needs(step.rule),
        name:
            step.rule
        group:
            nodes.group(step.rule)
        shell:
            "{params.beirgrid} {params.stage:q} --model {params.entry:q} --checkpoint {input.checkpoint:q}"
            " --corpus {input.corpus:q} --shard {wildcards.shard:q} --shard-size {params.size:q}"
            " {params.last:q} --precision {params.precision:q} {params.compute:q}"
            " --output {output.result:q} --record {output.record:q} > {log:q} 2>&1"
