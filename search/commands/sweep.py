"""A sweep: one study a shape on one target, in turn, or three a GPU at a time, whose compilers seldom wait."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import optuna
import triton
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import SQLAlchemyError

from kernels.device import DeviceKey
from kernels.disk import configs_folder, default_cache
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.rocm.toolchain import torch_version, triton_version
from kernels.tables import Choice, choose
from kernels.tables.rows import TunedTable, needs_proof
from kernels.tables.sources import load_device_tables, user_tables
from search.commands.budget import shares, worths
from search.commands.shared_queue import SharedQueue
from search.evaluation import Candidate, Evaluation, FinalsFailedError, Point, Value
from search.evaluators import Evaluator
from search.evaluators.replay import named_points
from search.evaluators.targets import check_engine, check_jobs, make_cluster, make_evaluator
from search.formats.aiter_json import incumbents
from search.report.progress import TerminalReporter
from search.results.claims import SharedClaims, shared_claims
from search.results.dashboard import describe_study
from search.results.record import make_record
from search.results.starts import Start
from search.results.storage import open_storage
from search.results.stored import held_frame, note_asked, searched_trials, study_names
from search.results.studies import Rounds, first_study, only_writer
from search.results.trials import KeptTrials
from search.space.space import SearchSpace, load_spaces
from search.study.earlier import EarlierStudies, OtherShape
from search.study.points import Points
from search.study.priors import best_point, first_trials, sweep_points
from search.study.samplers import GRID, check_sampler
from search.study.sharing import SharedStudy, SharedTrials
from search.study.study import LOOK_S, Progress, Stopping, StudyRun
from search.terminal import stop_on_interrupt
from search.workers.pool import START_TIMEOUT_S

Result = TypeVar("Result")
SPACES = configs_folder() / "spaces"
SEARCHES_A_LANE = 3  # at once where compilers work ahead: one alone, early on, knows too little to keep them busy


@dataclass(frozen=True)
class SweepRequest:
    """What the user asked for.

    Args:
        target: One of ``search.evaluators.targets.TARGETS``; ``auto``: the local GPU, else ``GFX950``.
        families: Families to search; None takes all that have a space.
        trials: Trials a shape, those of earlier runs included.
        time_budget_s: Seconds for the whole sweep; None is no limit.
        storage: Optuna storage URL or file instead of the folder's own.
        jobs: Worker processes; None takes one a core.
        warm: Time with operands that stay in the GPU's cache, instead of cold ones; measured targets only.
        patience: Trials in a row without a better one that end a shape's search; None ends none so.
        until: Percent of the best time that a point must promise to save, for a shape's search to go on; None takes
            every trial.
        cache: Folder of compiled kernels; None takes the user's cache folder.
        only: Points of each shape to try, and no others; None searches the spaces.
        weights: How often a step of a model runs each shape: under a time budget the shapes share it by what they can
            still gain; equally where there are none.
        engine: What judges: the processes of this machine, or ``ray``, those of a cluster.
        address: Of the cluster's head; None starts one on this machine.
        starts: Published configurations to try first, by shape; those of other devices are not tried.
    """

    shapes: tuple[GemmShape, ...]
    target: str = "auto"
    families: tuple[str, ...] | None = None
    trials: int = 96
    time_budget_s: float | None = None
    sampler: str = "auto"
    results: Path = Path("results")
    storage: str | None = None
    jobs: int | None = None
    seed: int = 0
    fresh: bool = False
    warm: bool = False
    patience: int | None = None
    until: float | None = None
    spaces: Path = SPACES
    cache: Path | None = None
    only: Mapping[GemmShape, Sequence[Point]] | None = None
    weights: Mapping[GemmShape, float] = field(default_factory=dict)
    starts: Mapping[GemmShape, Sequence[Start]] = field(default_factory=dict)
    engine: str = "local"
    address: str | None = None

    def published(self, shape: GemmShape) -> list[Point]:
        """What others launch for a shape: the configurations to try first, and the choice of an AITER that is here."""
        return [*(start.point for start in self.starts.get(shape, ())), *incumbents(shape)]


@dataclass(frozen=True)
class SweepResult:
    """How the sweep ended.

    Args:
        studies: Study of each shape that was begun, in this sweep or an earlier one.
        left: Shapes without a trial for which the time budget was too short.
    """

    device: DeviceKey
    studies: Mapping[GemmShape, str]
    interrupted: bool = False
    left: Sequence[GemmShape] = ()


def run_sweep(request: SweepRequest, reporter: TerminalReporter) -> SweepResult:
    """Search every shape of ``request``; what was found is in its storage, also after Ctrl-C.

    Raises:
        InputError: No such target, family or space; a family that was asked for and lacks what it needs; too many
            jobs; a storage or cache that cannot be opened or written; another sweep holds it.
    """
    spaces = load_spaces(request.spaces, request.families)
    check_sampler(request.sampler)
    check_jobs(request.jobs)
    check_engine(request.engine, request.address)
    location = request.storage or request.results
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    notes = Notes()
    with only_writer(location), stop_on_interrupt() as stop, ExitStack() as resources:
        evaluator = resources.enter_context(closing(_evaluator(request, notes)))
        storage = open_storage(location, create=True)  # only where there is something to judge
        device = evaluator.device
        claims = shared_claims(storage)
        if claims is not None:
            resources.callback(claims.close)
        sweep = _Sweep(request, spaces, storage, evaluator, reporter, claims, stop)
        try:
            with _storing(location):
                sweep.spaces, left_out = evaluator.available(spaces, request.families)
                reporter.start(device, evaluator.protocol, len(request.shapes))
                notes.tell(sweep.note)
                for line in left_out:
                    sweep.note(line)
                sweep.run()
        except KeyboardInterrupt:
            return SweepResult(device, sweep.studies, interrupted=True, left=sweep.left)
    return SweepResult(device, sweep.studies, interrupted=stop.is_set(), left=sweep.left)


@contextmanager
def _storing(location: Path | str) -> Iterator[None]:
    """A trial that cannot be stored in ``location`` is an InputError."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError, OSError) as error:
        cause = str(error.__cause__ or error).splitlines()[0]
        place = f"{location} or {default_cache()}" if isinstance(error, OSError) else str(location)
        raise InputError(
            f"{place}: a trial could not be stored ({cause}); "
            "make room or name another folder with --results; the same command goes on"
        ) from error


class Notes:
    """Lines worth knowing, which are kept until there is somebody to tell; called from any thread."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._tell: Callable[[str], None] = self._kept.append

    def __call__(self, line: str) -> None:
        """Tell ``line``, now or later."""
        self._tell(line)

    def tell(self, told: Callable[[str], None]) -> None:
        """From now on there is ``told``, who hears what was kept first."""
        self._tell = told
        for line in self._kept:
            told(line)


def _evaluator(request: SweepRequest, note: Callable[[str], None]) -> Evaluator:
    if request.engine == "ray":
        return make_cluster(request.target, request.address, warm=request.warm, cache=request.cache, note=note)
    return make_evaluator(request.target, jobs=request.jobs, warm=request.warm, cache=request.cache, note=note)


@dataclass
class _Sweep:
    """The order of the shapes, each one's share of the time, and what has come out so far."""

    request: SweepRequest
    spaces: Mapping[str, SearchSpace]
    storage: optuna.storages.BaseStorage
    evaluator: Evaluator
    reporter: TerminalReporter
    claims: SharedClaims | None = None  # where other sweeps may write to the same storage
    stop: threading.Event = field(default_factory=threading.Event)
    studies: dict[GemmShape, str] = field(default_factory=dict)
    table: TunedTable | None = field(init=False)
    rounds: Rounds = field(init=False)
    earlier: EarlierStudies = field(init=False)
    slots: threading.Semaphore = field(default_factory=threading.Semaphore)  # of searches that submit candidates
    reading: threading.Lock = field(default_factory=threading.Lock)  # of earlier studies
    held: dict[GemmShape, int] = field(default_factory=dict)  # trials of earlier runs
    left: list[GemmShape] = field(default_factory=list)
    noted: bool = False  # whether a study says what this sweep was asked for
    reporting: threading.Lock = field(default_factory=threading.Lock)
    helping: threading.Lock = field(default_factory=threading.Lock)  # claims are of a process, so that one lane helps

    def __post_init__(self) -> None:
        """Read the tuned rows, and learn which studies there are."""
        self.table = load_device_tables(self.evaluator.device, user_tables()).table
        names = study_names(self.storage)
        location = self.request.storage or self.request.results
        self.rounds = Rounds(names)
        read = partial(held_frame, self.storage, location)
        self.earlier = EarlierStudies(read, names, self.evaluator.device, self.evaluator.protocol)

    def run(self) -> None:
        request, lanes = self.request, self.evaluator.lanes
        ahead = self.evaluator.ahead and self.claims is None
        searches = lanes * (SEARCHES_A_LANE if ahead else 1)
        order = self.order()
        budget_s = math.inf if request.time_budget_s is None else request.time_budget_s
        end_s = time.monotonic() + budget_s
        todo = [shape for shape in order if self.held[shape] < request.trials]
        if todo:  # meanwhile the first candidates are chosen
            limit_s = min(budget_s, START_TIMEOUT_S)
            threading.Thread(target=self.evaluator.start, args=(limit_s,), daemon=True).start()
        worth = self.worths(todo)
        parts_of = dict.fromkeys(order, 1.0) | dict(zip(todo, shares(worth, searches), strict=True))
        if self.claims is not None:
            self.drain(self.claims, parts_of, end_s)
            return
        if searches == 1:
            for shape, parts in parts_of.items():
                self.search_within(shape, end_s, parts)
        else:
            self.search_at_once(parts_of, end_s, searches, lanes if ahead else 0)

    def search_at_once(self, parts_of: Mapping[GemmShape, float], end_s: float, searches: int, ending: int) -> None:
        """Search several shapes, while ``ending`` others hold their finals."""
        self.slots = threading.Semaphore(searches)
        with ThreadPoolExecutor(searches + ending) as pool:
            studies = [pool.submit(self.search_within, s, end_s, n) for s, n in parts_of.items()]
            try:
                for study in studies:
                    study.result()
            finally:  # after the last study, or an error of one
                pool.shutdown(wait=False, cancel_futures=True)
                self.evaluator.close()  # cancels what the threads wait for

    def drain(self, claims: SharedClaims, parts_of: Mapping[GemmShape, float], end_s: float) -> None:
        """Lead the search of each shape that no other sweep leads, then help the others; until all are done."""
        queue = SharedQueue(claims, list(parts_of), lambda shape: claims.patiently(lambda: self.open_study(shape)))

        def work() -> None:
            while queue.left and not self.stop.is_set() and time.monotonic() < end_s:
                shape = queue.take()
                if shape is not None:
                    self.search_within(shape, end_s, parts_of[shape])
                    queue.done(shape)
                elif not self.help(queue, end_s):
                    self.stop.wait(LOOK_S)

        self.slots = threading.Semaphore(self.evaluator.lanes)
        with ThreadPoolExecutor(self.evaluator.lanes) as pool:
            lanes = [pool.submit(work) for _ in range(self.evaluator.lanes)]
            try:
                for lane in lanes:
                    lane.result()
            finally:
                if not all(lane.done() for lane in lanes):  # one failed, or a second Ctrl-C
                    self.stop.set()
        self.left += [shape for shape in queue.left if not self.held[shape]]

    def help(self, queue: SharedQueue, end_s: float) -> bool:
        """Judge points of the shapes that other sweeps lead; whether there were any. One lane at a time does so."""
        if not self.helping.acquire(blocking=False):
            return False
        try:
            return any([self.search(shape, end_s, 1, leads=False) for shape in queue.left])
        finally:
            self.helping.release()

    def order(self) -> list[GemmShape]:
        """Shapes in the order of their search; first, of equals, those whose row other kernels or compilers made.

        Under a time budget those with the fewest trials come first, so that the same command goes on where the time
        ended; finished ones, which need none, are the last.
        """
        request = self.request
        if not request.fresh:
            newest = {shape: self.rounds.newest(self.first_study(shape)) for shape in request.shapes}
            self.studies |= {shape: name for shape, name in newest.items() if name is not None}
        trials = searched_trials(self.storage, self.studies.values())
        self.held = {shape: trials.get(self.studies.get(shape, ""), 0) for shape in request.shapes}
        held = self.held if request.time_budget_s is not None else dict.fromkeys(request.shapes, 0)
        unproven = {row.shape for row in (self.table.rows if self.table else ()) if needs_proof(row)}
        return sorted(request.shapes, key=lambda shape: (held[shape], shape not in unproven))

    def worths(self, todo: Sequence[GemmShape]) -> list[float]:
        """See :func:`search.commands.budget.worths`; earlier trials are read where they count."""
        known = [self.studies[shape] for shape in todo if self.held[shape] and self.request.weights.get(shape)]
        return worths(todo, self.request.weights, self.earlier.rows(known), self.evaluator.device)

    def search_within(self, shape: GemmShape, end_s: float, shares: float) -> None:
        """Search one shape; of the time that is left it takes one of ``shares`` equal parts."""
        known = self.held[shape] >= self.request.trials or time.monotonic() > end_s or self.stop.is_set()
        points = None if known else self.points(shape)  # while another shape is searched
        with ExitStack() as slot:
            slot.enter_context(self.slots)
            if self.stop.is_set():
                return
            if time.monotonic() < end_s:
                self.search(shape, end_s, shares, slot=slot, points=points)
                self.evaluator.study_ended(shape)
            elif not self.held[shape]:
                self.left.append(shape)

    def search(
        self,
        shape: GemmShape,
        end_s: float,
        shares: float,
        *,
        leads: bool = True,
        slot: ExitStack | None = None,
        points: Points | None = None,
    ) -> int:
        """Search ``shape``; its trials that ended meanwhile.

        Args:
            points: Of ``shape``, if they are known already.
            slot: The right to submit candidates, freed for the next search when this one has submitted its last.
            leads: Whether to go on to the end, finals included; else as long as there are points that nobody judges.
        """
        request = self.request
        kept = self.patiently(lambda: self.open_study(shape))
        trials = self.trials(kept)
        sharing = SharedStudy(trials, waits=leads) if isinstance(trials, SharedTrials) else None
        if sharing is not None:
            self.held[shape] = sharing.stored
            if not leads and not sharing.vacant(request.trials):
                return 0
        complete = self.held[shape] >= request.trials  # nothing to search, perhaps finals to hold
        if points is None or complete:
            points = Points({}, request.seed) if complete else self.points(shape)
        record = partial(_record, study=kept.study_name, device=self.evaluator.device)
        run = StudyRun(
            kept, shape, self.evaluator, points, record, self.notify, self.stop,
            partial(self.other_shapes, shape), sharing,
            submitted=slot.close if slot is not None and self.evaluator.ahead else lambda: None,
        )  # fmt: skip
        ended = run.run(
            sampler=request.sampler, seed=request.seed, trials=request.trials,
            seeds=[] if complete else self.first_trials(shape, points), deadline_s=end_s, shares=shares,
            stopping=Stopping(request.patience, None if request.until is None else request.until / 100),
        )  # fmt: skip
        if leads:
            self.end(trials, ended)
        return ended.done - self.held[shape]

    def other_shapes(self, shape: GemmShape) -> list[OtherShape]:
        """Trials of other shapes, for a sampler that learns from them."""
        with self.reading:
            return self.patiently(lambda: self.earlier.trials(shape))

    def end(self, trials: KeptTrials, ended: Progress) -> None:
        """The search of a shape that this sweep leads has done what it could."""
        shape = ended.shape
        if not ended.done and not self.stop.is_set():
            self.left.append(shape)
            return
        if not self.stop.is_set():
            self.hold_finals(trials, shape)
        best = best_point(trial.record for trial in trials.read())
        if best is not None:
            self.earlier.found(shape, best)
        with self.reporting:
            self.reporter.study_done(ended)

    def trials(self, kept: optuna.Study) -> KeptTrials:
        """Those of ``kept``, which other sweeps may add to."""
        return KeptTrials(kept) if self.claims is None else self.patiently(partial(SharedTrials, kept, self.claims))

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """What ``attempt`` gives; a server that is shared may be away for a while."""
        return attempt() if self.claims is None else self.claims.patiently(attempt)

    def open_study(self, shape: GemmShape) -> optuna.Study:
        """The study of this shape: the newest, or a new one."""
        name = self.studies[shape] = self.rounds.to_open(self.first_study(shape), fresh=self.request.fresh)
        with self.reading:
            self.earlier.add(name)
            first, self.noted = not self.noted, True
        with nullcontext() if self.claims is None else self.claims.alone():
            study = optuna.create_study(storage=self.storage, study_name=name, load_if_exists=True)
            describe_study(study, self.evaluator.device, shape, self.evaluator.protocol)
            KeptTrials(study)
            if first:
                note_asked(study, self.request.shapes)
        return study

    def first_study(self, shape: GemmShape) -> str:
        return first_study(self.evaluator.device, shape, self.evaluator.protocol, triton_version())

    def points(self, shape: GemmShape) -> Points:
        """The shape's legal points; raises InputError where no family has one."""
        if self.request.only is not None:
            return Points(named_points(self.request.only.get(shape, ()), shape, self.evaluator.device), 0)
        legal, refusals = self.evaluator.legal(self.spaces, shape)
        for text in refusals:
            self.note(text)
        return sweep_points(legal, self.evaluator.device, self.request.seed)

    def first_trials(self, shape: GemmShape, points: Points) -> list[Point]:
        defaults = [(family, config) for family, space in self.spaces.items() for config in space.defaults]
        winners: Mapping[GemmShape, Point] = {}
        if self.request.sampler != GRID:  # whose points are the same whatever else is searched, and by how many
            with self.reading:
                winners = self.patiently(lambda: self.earlier.winners(shape))
        choice = self.choice(shape)
        served = (choice.family, choice.config)
        own = first_trials(shape, self.evaluator.device, points, served, winners, defaults)
        installed = [_legal(point, points) for point in incumbents(shape, points.legal)]
        return list(dict.fromkeys([*self.published(shape, points), *installed, *own]))

    def choice(self, shape: GemmShape) -> Choice:
        """What serves ``shape`` today."""
        return choose(self.table, shape, self.evaluator.device)

    def published(self, shape: GemmShape, points: Points) -> list[Point]:
        """Published points, or the nearest that are legal here."""
        starts = [one for one in self.request.starts.get(shape, ()) if one.device == self.evaluator.device]
        return [
            _legal(one.point, points)
            for one in starts
            if one.family in points.legal and not (one.exact and points.legal[one.family].index_of(one.config) is None)
        ]

    def hold_finals(self, kept: KeptTrials, shape: GemmShape) -> None:
        choice = self.choice(shape)
        incumbent = (choice.family, choice.config) if choice.lookup.row and choice.lookup.how == "exact" else None
        try:
            self.evaluator.hold_finals(kept, shape, incumbent, self.request.seed)
        except FinalsFailedError as error:
            self.note(f"{shape}: no finals ({error}); the search's own times stand")

    def note(self, text: str) -> None:
        with self.reporting:
            self.reporter.note(text)

    def notify(self, progress: Progress) -> None:
        with self.reporting:
            self.reporter.progress(progress)


def _legal(point: Point, points: Points) -> Point:
    """``point``, or the nearest that is legal."""
    family, config = point
    return point if points.legal[family].index_of(config) is not None else points.nearest(family, config.to_dict())


def _record(
    candidate: Candidate, evaluation: Evaluation, started: str, seconds: float, *, study: str, device: DeviceKey
) -> Mapping[str, Value]:
    return make_record(
        study=study, device=device, candidate=candidate, evaluation=evaluation,
        started=started, duration_s=seconds, versions={"triton": triton.__version__, "torch": torch_version()},
    )  # fmt: skip
