# Configuration, checked, and the plan of the grid.
sys.path.insert(0, str(ROOT / "workflow"))

from beirgrid import config as configuration, environment, paths
from beirgrid.errors import ConfigError
from beirgrid.grid import Grid
from beirgrid.provenance import STAGE_VERSIONS
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

try:
    grid = Grid(configuration.load(config), config)
except ConfigError as error:
    raise WorkflowError(str(error)) from None


environment.prepare_jobs(grid.config.device, grid.config.encode["batch_tokens"], grid.config.mirror)

if workflow.is_main_process and grid.notice():
    logger.warning(grid.notice())


wildcard_constraints:
    corpus="[^/]+",
    dataset="[^/]+",
    system="[^/]+",
    model="[^/]+",
    reranker="[^/]+",
    first="[^/]+",
    shard=r"\d+",
