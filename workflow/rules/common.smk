# The validated configuration, and the job graph derived from it.
from beirgrid.config import lock
from beirgrid.core import files, interrupts, paths
from beirgrid.core.errors import BeirgridError, log_to_standard_error
from beirgrid.graph import artifacts, gate
from beirgrid.graph.rules import Rules
from beirgrid.graph.summaries import PUBLISHED
from beirgrid.results import published
from beirgrid.execution import events, forks
from snakemake.logging import logger
from snakemake.settings.enums import Quietness

try:
    if workflow.is_main_process:
        log_to_standard_error()
        configuration.refuse_misread(workflow.configfiles, workflow.config_settings.config, config)
    loaded = configuration.load(config)
    grid = gate.current(loaded)
except BeirgridError as error:
    raise events.refusal(error) from None

# The rules take their inputs, params and resources from the stages: stage.rerank.inputs.
stage = Rules(grid, own_python=not workflow.deployment_settings.deployment_method)


def threads_of_program(wildcards):
    return grid.program(wildcards.system).threads


# Vectors are deleted after indexing, unless they are kept.
temp_unless_kept = str if grid.config.encode.keep else temp
# The jobs' conda environments. Braces are escaped, because Snakemake expands them and the checkout's path may contain some.
ENVIRONMENTS = str(ROOT / "envs").replace("{", "{{").replace("}", "}}")
EVALUATE = f"{ENVIRONMENTS}/evaluate.yaml"
LEXICAL = f"{ENVIRONMENTS}/lexical.yaml"
# PyTorch's CUDA build also runs on a CPU, but is some GB larger.
NEURAL = f"{ENVIRONMENTS}/neural{'-cpu' if grid.config.device == 'cpu' else ''}.yaml"


def begin():
    """Check the surroundings of a run, and write what its jobs read."""
    published.check(PUBLISHED, grid.config.tolerances, grid.config.grid.show.published)
    events.refuse_beside_others()
    events.refuse_beside_orphans(Path.cwd(), workflow.executor_plugin.name)
    events.refuse_the_future(workflow.dag.needrun_jobs())
    stage.keep_replaced()
    lock.write()
    gate.announce(loaded, grid)
    # Read by aggregate, report and analyses.
    files.replace(grid.own(paths.GRID_SUMMARY), f"{stage.summary_json()}\n")
    if stage.own_python and workflow.executor_plugin.name == "local":
        forks.offer()
        if threads := stage.threads_of_models(workflow.dag.needrun_jobs()):
            forks.start_ahead("models", threads, stage.modules)
    stage.link_package()


def expected_seconds():
    return stage.expected_seconds(workflow.dag.needrun_jobs())


if workflow.is_main_process:
    interrupts.handle_signals()
    for notice in filter(None, (gate.notice(loaded, grid), stage.summary.notice())):
        logger.warning(notice)
    stage.workflow = workflow
    if not workflow.output_settings.dryrun:
        quiet = Quietness.ALL in (workflow.output_settings.quiet or ())
        logger.addFilter(events.Expectation(expected_seconds))
        logger.addHandler(events.Recorder(grid.config.grid.name, begin, quiet))


# The stages of a group take no more cores at once than a node has. Only with a cluster, Snakemake has a number of nodes.
if workflow.nodes is not None:
    workflow.register_resource("_cores", grid.config.nodes.cpu.cores)


wildcard_constraints:
    **dict.fromkeys(("corpus", "dataset", "slice", "system", "model", "reranker", "first"), "[^/]+"),
    shard=r"\d+",
