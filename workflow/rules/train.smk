# The steps in which the workflow trains a model: one rule per step, since each reads and writes other files.
for step in TRAINING_STEPS:

    rule:
        message:
            f"{step.purpose} {{wildcards.model}}"
        input:
            unpack(inputs.training_step(step.stage)),
        output:
            result=directory(step.output) if step.folder else step.output,
            record=step.record,
        params:
            **settings.neural(step.stage, recipe=entries.training_step(step.stage), **step.settings),
            stage=lambda w, output, step=step: step.stage,
            options=lambda w, input, threads, step=step: in_file(
                *inputs.training_options(step.stage, w, threads)
            ),
        log:
            f"logs/{step.stage}/{{model}}.log",
        benchmark:
            f"results/benchmarks/{step.stage}/{{model}}.tsv"
        wildcard_constraints:
            model=grid.models_of_recipe(*step.recipes),
        conda:
            NEURAL
        threads: 8
        resources:
            **needs(step.stage),
        name:
            step.stage
        shell:
            "{params.beirgrid} {params.stage:q} --recipe {params.recipe:q} {params.options:q}"
            " {params.compute:q} --precision {params.precision:q}"
            " --output {output.result:q} --record {output.record:q} > {log:q} 2>&1"
