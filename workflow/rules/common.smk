# Configuration, checked, and the plan of the grid.
sys.path.insert(0, str(ROOT / "workflow"))

from beirgrid import cluster, config as configuration, environment, files, paths, status
from beirgrid.arguments import in_file
from beirgrid.errors import BeirgridError, ConfigError
from beirgrid.grid import Grid
from beirgrid.provenance import STAGE_VERSIONS
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

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
