# Configuration, checked, and the plan of the grid.
import inspect
from types import SimpleNamespace

sys.path.insert(0, str(ROOT / "workflow"))

from beirgrid.tools import cluster
from beirgrid import config as configuration
from beirgrid.core import environment
from beirgrid.core import files
from beirgrid.core import paths
from beirgrid.core import provenance
from beirgrid.tools import status
from beirgrid.graph.arguments import in_file
from beirgrid.core.errors import BeirgridError, ConfigError
from beirgrid.graph.grid import Grid
from beirgrid.core.provenance import STAGE_VERSIONS
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.persistence import PersistenceBase
from snakemake.settings.types import RerunTrigger

try:
    configuration.refuse_duplicate_keys(workflow.configfiles if workflow.is_main_process else [])
    grid = Grid(configuration.load(config), config)
except ConfigError as error:
    raise WorkflowError(str(error)) from None


# The jobs' conda environments. Snakemake fills in {x} in their paths: the checkout may be in such a folder.
ENVIRONMENTS = str(ROOT / "envs").replace("{", "{{").replace("}", "}}")
EVALUATE = f"{ENVIRONMENTS}/evaluate.yaml"
LEXICAL = f"{ENVIRONMENTS}/lexical.yaml"
# What runs models: torch's CUDA build, which runs on a CPU too, is some GB larger.
NEURAL = f"{ENVIRONMENTS}/neural{'-cpu' if grid.config.device == 'cpu' else ''}.yaml"

environment.prepare_jobs(
    grid.config.device, grid.config.encode["batch_tokens"], grid.config.mirror, grid.on_gpu()
)

if workflow.is_main_process and grid.notice():
    logger.warning(grid.notice())


if workflow.is_main_process:
    environment.heed_hangup()
    recorder = status.Recorder(logger, config)


# What a job's record keeps of its rule's params: aggregate refuses the records of another grid by it, and in a folder
# without Snakemake's own metadata (copied, cleaned) it tells what is to be made again.
def settings_of(name, wildcards):
    """Return the digest of a rule's params; those that follow from a job's other parts are no settings."""
    values = {
        param: value(wildcards) if callable(value) else value
        for param, value in workflow.get_rule(name).params.items()
        if not callable(value) or len(inspect.signature(value).parameters) == 1
    }
    return provenance.digest(values)


def settings_key(name):
    """Return the function for a rule's param ``key``; that it takes ``output`` keeps it out of the reasons to rerun."""
    return lambda wildcards, output: settings_of(name, wildcards)


def settings_keys():
    """Return for each record behind the grid's cells the digest of the params that it should be made with."""
    made = {}
    for path in [*grid.made_files(), *grid.metric_files()]:
        maker = next(one for one in workflow.rules if one.is_producer(path))
        made[path] = settings_of(maker.name, SimpleNamespace(**maker.get_wildcards(path)))
    return made


if workflow.is_main_process:
    # Snakemake asks this of each job that nothing else makes it run again, before it compares params.
    known = PersistenceBase.has_metadata

    def has_metadata(persistence, job):
        found = known(persistence, job)
        if "key" in job.params.keys() and RerunTrigger.PARAMS in workflow.rerun_triggers:
            made = job.output.get("made") or job.output.metrics
            if reason := provenance.mismatch(made, None if found else job.params.key, job.output):
                logger.info(f"To be made again: {reason}.")
                persistence.dag.reason(job).forced = True
        return found

    PersistenceBase.has_metadata = has_metadata


wildcard_constraints:
    corpus="[^/]+",
    dataset="[^/]+",
    system="[^/]+",
    model="[^/]+",
    reranker="[^/]+",
    first="[^/]+",
    shard=r"\d+",


# In the process that a person started, once it holds the working directory's lock.
onstart:
    try:
        environment.check_temporary_folder()
        cluster.refuse_beside_orphans(Path.cwd(), workflow.executor_plugin.name)
    except BeirgridError as error:
        raise WorkflowError(str(error)) from None
    recorder.start(status.EVENTS)


onsuccess:
    recorder.end(succeeded=True)


onerror:
    recorder.end(succeeded=False)
