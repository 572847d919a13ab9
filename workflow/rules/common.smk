# The validated configuration, and the job graph derived from it.
from beirgrid import config as configuration
from beirgrid.core import environment, files, paths
from beirgrid.core.errors import BeirgridError
from beirgrid.pipeline import artifacts, reruns
from beirgrid.pipeline.grid import Grid
from beirgrid.pipeline.rules import Rules
from beirgrid.pipeline.summaries import PUBLISHED
from beirgrid.results import published
from beirgrid.tools import cluster, forks, processes
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

try:
    environment.check_names(str(ROOT))
    if workflow.is_main_process:
        environment.check_folders("results", "logs")
        configuration.refuse_misread(workflow.configfiles, workflow.config_settings.config, config)
    grid = Grid(configuration.load(config))
    if workflow.is_main_process:
        published.check(PUBLISHED, grid.config.tolerances, grid.config.grid.show.published)
except BeirgridError as error:
    raise WorkflowError(str(error)) from None

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
if workflow.is_main_process:
    environment.handle_signals()
    processes.allow_one_run()
    if notice := stage.summary.notice():
        logger.warning(notice)
    reruns.watch_records(workflow, stage)


# The stages of a group take no more cores at once than a node has. Only with a cluster, Snakemake has a number of nodes.
if workflow.nodes is not None:
    workflow.register_resource("_cores", grid.config.nodes.cpu.cores)


wildcard_constraints:
    **dict.fromkeys(("corpus", "dataset", "system", "model", "reranker", "first"), "[^/]+"),
    shard=r"\d+",


# Runs in the main process, once it holds the working directory's lock.
onstart:
    try:
        environment.check_temporary_folder()
        cluster.refuse_beside_orphans(Path.cwd(), workflow.executor_plugin.name)
        # Read by aggregate, report and analyses.
        files.replace_text(
            grid.own(paths.GRID_SUMMARY), f"{stage.summary_json(with_settings=True)}\n"
        )
    except (BeirgridError, OSError) as error:
        raise WorkflowError(str(error)) from None
    if stage.own_python and workflow.executor_plugin.name == "local":
        forks.offer()
    stage.link_package()
    run_log.start(workflow, grid, config)


onsuccess:
    run_log.finish(succeeded=True)


onerror:
    run_log.finish(succeeded=False)


# Snakemake runs the handlers of the main Snakefile alone. Those of a module run before them.
if not workflow.modifier.is_main_snakefile():

    def both(of_module, of_main):
        def handler(log):
            of_module(log=log)
            of_main(log)

        return handler

    for name in ("_onstart", "_onsuccess", "_onerror"):
        setattr(workflow, name, both(workflow.globals[name[1:]], getattr(workflow, name)))
