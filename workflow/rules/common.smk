# The validated configuration, and the job graph derived from it.
from functools import cache

from beirgrid import config as configuration
from beirgrid.config.entries import ADAPTATIONS
from beirgrid.core import environment, files, paths
from beirgrid.core.errors import BeirgridError
from beirgrid.core.families import alike, named
from beirgrid.core.provenance import digest
from beirgrid.results import published
from beirgrid.graph import reruns
from beirgrid.graph.commands import Commands, given
from beirgrid.graph.grid import Grid, metric_files, runs_without_scores
from beirgrid.graph.inputs import Inputs
from beirgrid.graph.needs import Needs
from beirgrid.graph.params import Params
from beirgrid.graph.cell_records import Records
from beirgrid.graph.summaries import PUBLISHED, Summary, asked_of
from beirgrid.tools import cluster, forks, processes
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

try:
    environment.check_names(str(ROOT))
    if workflow.is_main_process:
        environment.check_folders("results", "logs")
        configuration.refuse_misread(workflow.configfiles, workflow.config_settings.config, config)
    grid = Grid(configuration.load(config))
    needs = Needs(grid)
    if workflow.is_main_process:
        published.check(PUBLISHED, grid.config.tolerances, grid.config.grid.show.published)
except BeirgridError as error:
    raise WorkflowError(str(error)) from None

nodes, inputs, params = needs.nodes, Inputs(grid), Params(grid)
records = Records(grid, inputs)
commands = Commands(grid, own_python=not workflow.deployment_settings.deployment_method)
summary = Summary(grid, records)


@cache
def asked():
    return asked_of(workflow, commands, [*records.everything(), *metric_files(grid)])


@cache
def settings():
    return {path: digest(params) for path, params in asked().items()}


@cache
def summary_json():
    return summary.as_json(settings())


def summary_digest(wildcards):
    return digest({"summary": summary_json()})


def aggregated_digest(wildcards):
    return digest({"summary": summary_json(), "published": list(map(files.sha256, PUBLISHED))})


def grid_folder(wildcards, output):
    return grid.own(paths.GRID_FOLDER)


def tables_folder(wildcards, output):
    return grid.own(paths.TABLES)


def heap(wildcards, resources):
    return needs.heap_mb(resources.mem_mb)


# Vectors are deleted after indexing, unless they are kept.
passing = str if grid.config.encode.keep else temp
# The jobs' conda environments. Braces are escaped, because Snakemake expands them and the checkout's path may contain some.
ENVIRONMENTS = str(ROOT / "envs").replace("{", "{{").replace("}", "}}")
EVALUATE = f"{ENVIRONMENTS}/evaluate.yaml"
LEXICAL = f"{ENVIRONMENTS}/lexical.yaml"
# PyTorch's CUDA build also runs on a CPU, but is some GB larger.
NEURAL = f"{ENVIRONMENTS}/neural{'-cpu' if grid.config.device == 'cpu' else ''}.yaml"


DEPTH = grid.config.retrieve.depth
GRID_SUMMARY = grid.own(paths.GRID_SUMMARY)

if workflow.is_main_process:
    environment.handle_signals()
    processes.allow_one_run()
    if notice := summary.notice():
        logger.warning(notice)
    reruns.watch_records(workflow, commands)


wildcard_constraints:
    **dict.fromkeys(("corpus", "dataset", "system", "model", "reranker", "first"), "[^/]+"),
    shard=r"\d+",


# Runs in the main process, once it holds the working directory's lock.
onstart:
    try:
        environment.check_temporary_folder()
        cluster.refuse_beside_orphans(Path.cwd(), workflow.executor_plugin.name)
        # Read by aggregate, report and analyses.
        in_words = {settings()[path]: params for path, params in asked().items()}
        files.replace_text(GRID_SUMMARY, f"{summary.as_json(settings(), in_words)}\n")
    except (BeirgridError, OSError) as error:
        raise WorkflowError(str(error)) from None
    if commands.own_python and workflow.executor_plugin.name == "local":
        forks.offer()
    commands.link_package()
    run_log.start(workflow, records, config)


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
