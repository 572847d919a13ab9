# Configuration, checked, and the plan of the grid.
sys.path.insert(0, str(ROOT / "workflow"))
# Jobs run `python -m beirgrid`: with the package of this checkout, and, outside a conda environment,
# with the Python that runs Snakemake even where its environment was not activated.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT / "workflow"), os.environ.get("PYTHONPATH")])
)
os.environ["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ["PATH"]]
)

from beirgrid import config as configuration, paths
from beirgrid.errors import ConfigError
from beirgrid.grid import Grid
from beirgrid.provenance import STAGE_VERSIONS
from snakemake.exceptions import WorkflowError

try:
    grid = Grid(configuration.load(config), config)
except ConfigError as error:
    raise WorkflowError(str(error)) from None


wildcard_constraints:
    corpus="[^/]+",
    dataset="[^/]+",
    system="[^/]+",
    model="[^/]+",
    reranker="[^/]+",
    shard=r"\d+",
