# The configuration, checked, and the job graph that follows from it.
sys.path.insert(0, str(ROOT / "workflow"))

from functools import cache

from beirgrid import config as configuration
from beirgrid.core.families import RETRIEVERS, alike
from beirgrid.core import environment, files, paths
from beirgrid.core.errors import BeirgridError
from beirgrid.data import published
from beirgrid.graph import reruns
from beirgrid.graph.commands import Commands, in_file
from beirgrid.graph.grid import Grid, metric_files, runs_without_scores
from beirgrid.graph.inputs import SHARD_STEPS, TRAINING_STEPS, Inputs
from beirgrid.graph.needs import Needs
from beirgrid.graph.params import Params
from beirgrid.graph.records import Records
from beirgrid.graph.summary import PUBLISHED, Summary, settings_of
from beirgrid.tools import cluster, console, forks, processes, refresh, status
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

try:
    environment.check_names(str(ROOT))
    if workflow.is_main_process:
        configuration.refuse_misread(workflow.configfiles, workflow.config_settings.config, config)
    grid = Grid(configuration.load(config))
    needs = Needs(grid)
    if workflow.is_main_process:
        published.check(PUBLISHED, grid.config.tolerances, grid.config.grid.show.published)
except BeirgridError as error:
    raise WorkflowError(str(error)) from None

nodes, inputs = needs.nodes, Inputs(grid)
entries, records = Params(grid, inputs), Records(grid, inputs)
settings = Commands(grid, own_python=not workflow.deployment_settings.deployment_method)
summary = Summary(grid, records)


@cache
def summary_json():
    cells = [*records.everything(), *metric_files(grid)]
    return summary.as_json(settings_of(workflow, settings, cells))


# The jobs' conda environments. Snakemake fills in {x} in their paths: the checkout may be in such a folder.
ENVIRONMENTS = str(ROOT / "envs").replace("{", "{{").replace("}", "}}")
EVALUATE = f"{ENVIRONMENTS}/evaluate.yaml"
LEXICAL = f"{ENVIRONMENTS}/lexical.yaml"
# PyTorch's CUDA build, which runs on a CPU too, is some GB larger.
NEURAL = f"{ENVIRONMENTS}/neural{'-cpu' if grid.config.device == 'cpu' else ''}.yaml"
DEPTH = grid.config.retrieve.depth

if workflow.is_main_process:
    environment.heed_hangup()
    processes.run_alone()
    if notice := summary.notice():
        logger.warning(notice)
    recorder = status.Recorder(logger, config)
    refresher = refresh.Refresher(grid.config.grid.name, logger)
    console.shorten(logger)
    reruns.watch_records(workflow, settings)


wildcard_constraints:
    **dict.fromkeys(("corpus", "dataset", "system", "model", "reranker", "first"), "[^/]+"),
    shard=r"\d+",


# In the process that a person started, once it holds the working directory's lock.
onstart:
    try:
        environment.check_temporary_folder()
        cluster.refuse_beside_orphans(Path.cwd(), workflow.executor_plugin.name)
    except BeirgridError as error:
        raise WorkflowError(str(error)) from None
    if settings.own_python and workflow.executor_plugin.name == "local":
        forks.offer()
    settings.link_package()
    recorder.start(status.EVENTS)
    refresher.start(summary_json())


onsuccess:
    recorder.end(succeeded=True)
    refresher.end()


onerror:
    recorder.end(succeeded=False)
    refresher.end()
