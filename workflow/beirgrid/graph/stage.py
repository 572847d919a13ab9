"""What a plan says of the jobs of its stage. Each plan has a class below ``Stage``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ..core.families import FAMILIES, RETRIEVERS
from ..core.provenance import Stamp

if TYPE_CHECKING:
    from ..config.systems import SystemEntry
    from .dag import Job
    from .grid import Grid
    from .sizes import Amounts, Sizes

Settings = dict[str, Any]
# What a job does for a cell: it fetches, trains a model, encodes or indexes documents, searches, scores pairs, reranks
# by scores, fuses runs, adopts a run of other software, or works on finished runs.
Kind = Literal["fetch", "train", "encode", "index", "search", "score", "rerank", "fuse", "adopt", "evaluate", "report"]


class Cost(NamedTuple):
    """What a job takes for each unit of its work: seconds, MB of memory, MB of disk."""

    seconds: float = 0.0
    memory: float = 0.0
    disk: float = 0.0


# Checking a run of another program: its documents are looked up in the corpus (fitted to 5,183 and to 1,000,000).
# The run is held twice, and written with gzip.
ADOPTED = {"documents": Cost(seconds=5e-7), "hits": Cost(seconds=1e-5, memory=240e-6, disk=15e-6)}


class Output(NamedTuple):
    """A file or folder that a job writes, as an input of other jobs."""

    job: Job
    path: str


Inputs = Mapping[str, Output | Sequence[Output]]


class Stage:
    """A kind of job. Methods get a job's wildcards by name.

    The rule, and the function that does the work in the module ``work`` beside the plan, have the name of the class.
    Records have the name of the folder.

    Attributes:
        rule: name of the rule.
        name: name in records.
        version: version in records. Raise it when a change of code changes the output.
        packages: packages that records name with their versions, if they are installed.
        kind: what its jobs do for a cell.
        outputs: patterns of the outputs, by name. The function takes ``main`` as ``output``, others by their names.
        gpu: whether its jobs may ask for a GPU although they run no model.
        of_grid: whether its job reads the summary of a whole grid.
        downloads: whether its jobs download. Profiles limit how many of them run at the same time.
        group: which jobs of small corpora share a cluster job: those of shards or those of cells.
        evaluated_in: name of the cluster job in which runs that it makes of small corpora are evaluated.
        wildcards_passed: wildcards that the function takes.
        entry: the kind of system whose runs it makes, if its class stands in the plan.
        systems, families, recipes: kinds of systems, families of models, or recipes that the rule is for.
        options_from_job: options that follow from what a job was given: its threads, and the heap of its Java.
        temporary: whether its output is deleted after its last use, unless ``encode.keep`` keeps it.
        costs: what a job takes for each unit of its work. The unit ``job`` is 1, ``download_mb`` is downloaded, and
            ``scratch_mb`` is on disk while the job runs.
    """

    rule: str
    name: ClassVar[str]
    version: ClassVar[int]
    packages: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[Kind]
    outputs: Mapping[str, str]
    main: ClassVar[str] = ""
    gpu: ClassVar[bool] = False
    of_grid: ClassVar[bool] = False
    downloads: ClassVar[bool] = False
    group: ClassVar[Literal["shard", "cell", ""]] = ""
    evaluated_in: ClassVar[str] = "evaluate"
    wildcards_passed: ClassVar[tuple[str, ...]] = ()
    entry: ClassVar[type[SystemEntry] | None] = None
    systems: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    recipes: tuple[str | None, ...] = ()
    options_from_job: ClassVar[tuple[Literal["threads", "memory"], ...]] = ()
    temporary: bool = False
    costs: Mapping[str, Cost] = {}

    def __init_subclass__(cls) -> None:
        cls.rule = vars(cls).get("rule", cls.function_name())
        cls.name = vars(cls).get("name", cls.__module__.split(".")[-2])
        cls.systems = (cls.entry.kind,) if cls.entry else cls.systems

    @classmethod
    def function_name(cls) -> str:
        """Return the name of the class in lower case: ``index_lexical``. The function of its jobs has this name."""
        return re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def variants(cls) -> Iterable[Stage]:
        """Return the stages of this class, each with a rule of its own."""
        return [cls()]

    def model(self, grid: Grid, *_: Any, **wildcards: Any) -> str | None:
        """Return the model that a job runs, if it runs one."""
        return None

    def inputs(self, grid: Grid, *_: Any, **wildcards: Any) -> Inputs:
        """Return the outputs of other jobs that a job reads, by option."""
        return {}

    def files(self, grid: Grid, *_: Any, **wildcards: Any) -> Iterable[str]:
        """Return the local files that a job reads. A changed content reruns it."""
        return ()

    def settings(self, grid: Grid, *_: Any, **wildcards: Any) -> Settings:
        """Return the options that change the output. A changed one reruns the job."""
        return {}

    def lineage(self, grid: Grid, *_: Any, **wildcards: Any) -> Settings:
        """Return values in which a job and the jobs that made its inputs must agree, as the language of an index."""
        return {}

    def options(self, grid: Grid, *_: Any, **wildcards: Any) -> Settings:
        """Return the other options: names, and what does not change the output."""
        return {name: wildcards[name] for name in self.wildcards_passed}

    def constraints(self, grid: Grid) -> dict[str, str]:
        """Return the regular expressions of the rule's wildcards."""
        if self.systems:
            return {"system": grid.one_of(name for name in grid.config.systems if self.is_for(grid, system=name))}
        if self.families or self.recipes:
            return {"model": grid.one_of(name for name in grid.config.models if self.is_for(grid, model=name))}
        return {}

    def is_for(self, grid: Grid, system: str = "", model: str = "", **_: Any) -> bool:
        """Tell whether the rule is for jobs of a system or of a model."""
        if self.systems:
            return grid.searched(system).kind in self.systems
        entry = grid.model(model)
        if self.families:
            return entry.family in self.families
        return not entry.per_corpus and (entry.training.name if entry.training else None) in self.recipes

    def work(self, sizes: Sizes, *_: Any, **wildcards: Any) -> Amounts:
        """Return the work of a job in the units of ``costs``, beside those that follow from any job's wildcards."""
        return {}

    def runs_model(self, grid: Grid, *_: Any, **wildcards: Any) -> bool:
        """Tell whether a job starts PyTorch."""
        model = self.model(grid, **wildcards)
        return model is not None and grid.model(model).endpoint is None

    def uses_gpu(self, grid: Grid, *_: Any, **wildcards: Any) -> bool:
        """Tell whether a job asks for a GPU if the configuration allows one."""
        return self.runs_model(grid, **wildcards)

    @property
    def stamp(self) -> Stamp:
        """What its records say of it."""
        return Stamp(self.name, self.version, self.packages, self.kind)

    @property
    def function(self) -> str:
        """The name of the function of its jobs, by which ``beirgrid stage`` takes it."""
        return self.function_name()

    @property
    def module(self) -> str:
        """The module of its work, which is imported only by its jobs."""
        return f"{type(self).__module__.rpartition('.')[0]}.work"

    @property
    def runs_models(self) -> bool:
        """Whether its jobs may run a model."""
        return type(self).model is not Stage.model

    @property
    def reads_files(self) -> bool:
        """Whether its jobs read files that no job writes."""
        return self.of_grid or type(self).files is not Stage.files

    @property
    def priority(self) -> int:
        """Which jobs start first: those that need no model, and among these and the others, those that end a cell."""
        return 2 * (not self.runs_models) + (self.group == "cell")


class OfFamily(Stage):
    """A stage with a rule for each kind of vectors. A kind that ``costs_of`` lacks has the costs of ``dense``."""

    costs_of: ClassVar[Mapping[str, Mapping[str, Cost]]]

    def __init__(self, family: str) -> None:
        self.family = FAMILIES[family]
        self.families = tuple(other.name for other in FAMILIES.values() if family in (other.name, other.like))
        self.rule = f"{self.name}_{self.family.rule}"
        self.costs = self.costs_of.get(family, self.costs_of["dense"])

    @classmethod
    def variants(cls) -> Iterable[Stage]:
        return [cls(name) for name, family in RETRIEVERS.items() if not family.like]
