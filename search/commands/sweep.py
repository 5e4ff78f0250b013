"""A sweep: one study a shape on one target, in turn, or one a GPU at a time where there are several."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import optuna
import pandas as pd
import torch
import triton
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import SQLAlchemyError

from kernels.device import DeviceKey
from kernels.disk import default_cache
from kernels.dispatch import load_dispatcher
from kernels.errors import InputError
from kernels.families import study_hash
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from search.device.finals import decide
from search.evaluation import Candidate, Evaluation, Evaluator, FinalsFailedError, Value
from search.evaluators.device import DeviceEvaluator
from search.evaluators.replay import ReplayEvaluator
from search.evaluators.targets import check_jobs, make_evaluator
from search.results import load
from search.results.record import Point, make_record
from search.results.storage import open_storage
from search.results.studies import newest_study, only_writer
from search.space.available import available_spaces
from search.space.legal_set import LegalSet, legal_set
from search.space.space import SearchSpace, load_spaces
from search.study.points import LegalPoints, Points
from search.study.priors import NEIGHBOURS, best_point, distance, favourites, sweep_points, winners_of
from search.study.samplers import check_sampler
from search.study.study import Progress, StudyRun, unique
from search.terminal import stop_on_interrupt
from search.workers.pool import START_TIMEOUT_S

SPACES = Path(__file__).resolve().parents[2] / "configs" / "spaces"


@dataclass(frozen=True)
class SweepRequest:
    """What the user asked for.

    Args:
        shapes: To be searched, in order.
        target: One of ``search.evaluators.targets.TARGETS``; ``auto``: the local GPU where there is one, else gfx950.
        families: Families to search; None takes all that have a space.
        trials: Trials a shape, those of earlier runs included.
        time_budget_s: Seconds for the whole sweep; None is no limit.
        sampler: One of ``search.study.samplers.SAMPLERS``.
        results: Folder of the results.
        storage: Optuna storage URL or file instead of the folder's own.
        jobs: Worker processes; None takes one a core.
        seed: Of the samplers.
        fresh: Begin new studies instead of resuming.
        warm: Time with operands that stay in the GPU's cache, instead of cold ones; measured targets only.
        spaces: Folder of the search spaces.
        cache: Folder of compiled kernels; None takes the user's cache folder.
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
    spaces: Path = SPACES
    cache: Path | None = None


class Reporter(Protocol):
    """Tells people how the sweep goes."""

    def start(self, device: DeviceKey, evaluator: Evaluator, shapes: int) -> None:
        """The sweep begins."""
        ...

    def note(self, text: str) -> None:
        """Something worth knowing."""
        ...

    def progress(self, progress: Progress) -> None:
        """A trial ended."""
        ...

    def study_done(self, progress: Progress) -> None:
        """A shape is finished."""
        ...


@dataclass(frozen=True)
class SweepResult:
    """How the sweep ended.

    Args:
        device: What the trials are valid for.
        studies: Study of each shape that was begun, in this sweep or an earlier one.
        interrupted: Whether the user stopped it.
        left: Shapes without a trial for which the time budget was too short.
    """

    device: DeviceKey
    studies: Mapping[GemmShape, str]
    interrupted: bool = False
    left: Sequence[GemmShape] = ()


def run_sweep(request: SweepRequest, reporter: Reporter) -> SweepResult:
    """Search every shape of ``request``; what was found is in its storage, also after Ctrl-C.

    Raises:
        InputError: No such target, family or space; a family that was asked for and lacks what it needs; too many
            jobs; a storage or cache that cannot be opened or written; another sweep holds it.
    """
    spaces = load_spaces(request.spaces, request.families)
    check_sampler(request.sampler)
    check_jobs(request.jobs)
    location = request.storage or request.results
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with only_writer(location), stop_on_interrupt() as stop:
        storage = open_storage(location, create=True)
        notes: list[str] = []
        evaluator = make_evaluator(
            request.target, jobs=request.jobs, warm=request.warm, cache=request.cache, note=notes.append
        )
        device = evaluator.device
        sweep = _Sweep(request, device, spaces, storage, evaluator, reporter, stop)
        try:
            left_out = sweep.leave_out()
            reporter.start(device, evaluator, len(request.shapes))
            for line in [*notes, *left_out]:
                reporter.note(line)
            sweep.run()
        except KeyboardInterrupt:
            return SweepResult(device, sweep.studies, interrupted=True, left=sweep.left)
        except (SQLAlchemyError, StorageInternalError, OSError) as error:
            cause = str(error.__cause__ or error).splitlines()[0]
            place = f"{location} or {default_cache()}" if isinstance(error, OSError) else str(location)
            raise InputError(
                f"{place}: a trial could not be stored ({cause}); "
                "make room or name another folder with --results; the same command goes on"
            ) from error
        finally:
            evaluator.close()
    return SweepResult(device, sweep.studies, interrupted=stop.is_set(), left=sweep.left)


@dataclass
class _Sweep:
    request: SweepRequest
    device: DeviceKey
    spaces: Mapping[str, SearchSpace]
    storage: optuna.storages.BaseStorage
    evaluator: Evaluator
    reporter: Reporter
    stop: threading.Event = field(default_factory=threading.Event)
    studies: dict[GemmShape, str] = field(default_factory=dict)
    winners: dict[GemmShape, Point] = field(default_factory=dict)
    held: dict[GemmShape, int] = field(default_factory=dict)  # trials of earlier runs
    left: list[GemmShape] = field(default_factory=list)
    reporting: threading.Lock = field(default_factory=threading.Lock)

    def leave_out(self) -> list[str]:
        """Leave out the families that this machine cannot search; a line for each.

        Raises:
            InputError: The user named one of them, or there is no other.
        """
        if isinstance(self.evaluator, ReplayEvaluator):
            return []
        offline = not isinstance(self.evaluator, DeviceEvaluator)
        self.spaces, lines = available_spaces(self.spaces, self.request.families, self.device, offline=offline)
        return lines

    def run(self) -> None:
        request = self.request
        results = load(request.storage or request.results)
        self.winners = winners_of(results, self.device)
        order = self.order(results)
        budget_s = math.inf if request.time_budget_s is None else request.time_budget_s
        end_s = time.monotonic() + budget_s
        self.evaluator.start(min(budget_s, START_TIMEOUT_S))
        lanes = self.evaluator.lanes if isinstance(self.evaluator, DeviceEvaluator) else 1
        todo = sum(self.held[shape] < request.trials for shape in order)
        shares = [max(1, math.ceil((todo - i) / lanes)) for i in range(len(order))]
        if lanes == 1:
            for shape, parts in zip(order, shares, strict=True):
                self.search_within(shape, end_s, parts)
            return
        with ThreadPoolExecutor(lanes) as pool:
            studies = [pool.submit(self.search_within, s, end_s, n) for s, n in zip(order, shares, strict=True)]
            try:
                for study in studies:
                    study.result()
            finally:  # after the last study, or an error of one
                pool.shutdown(wait=False, cancel_futures=True)
                self.evaluator.close()  # cancels what the threads wait for

    def order(self, results: pd.DataFrame) -> list[GemmShape]:
        """Shapes in the order of their search.

        Under a time budget those with the fewest trials come first, so that the same command goes on where the time
        ended; finished ones, which need none, are the last.
        """
        request = self.request
        names = optuna.get_all_study_names(self.storage)
        known = {} if request.fresh else {shape: self.newest(shape, names) for shape in request.shapes}
        self.studies |= {shape: name for shape, name in known.items() if name is not None}
        trials = results[results["selected"].isna()]["study"].value_counts()  # rows of the finals repeat a trial
        self.held = {shape: int(trials.get(self.studies.get(shape, ""), 0)) for shape in request.shapes}
        if request.time_budget_s is None:
            return list(request.shapes)
        return sorted(request.shapes, key=lambda shape: self.held[shape])

    def search_within(self, shape: GemmShape, end_s: float, shares: int) -> None:
        """Search one shape; of the time that is left it takes one of ``shares`` equal parts."""
        if self.stop.is_set():
            return
        if time.monotonic() < end_s:
            self.search(shape, end_s, shares)
            if isinstance(self.evaluator, DeviceEvaluator):
                self.evaluator.study_ended(shape)
        elif not self.held[shape]:
            self.left.append(shape)

    def search(self, shape: GemmShape, end_s: float, shares: int) -> None:
        request = self.request
        kept = self.open_study(shape)
        points = sweep_points(self.legal(shape), self.device, request.seed)

        def notify(progress: Progress) -> None:
            with self.reporting:
                self.reporter.progress(progress)

        record = partial(_record, study=kept.study_name, device=self.device)
        run = StudyRun(kept, shape, self.evaluator, points, record, notify, self.stop)
        ended = run.run(
            sampler=request.sampler, seed=request.seed, trials=request.trials,
            seeds=self.seeds(shape, points), deadline_s=end_s, shares=shares,
        )  # fmt: skip
        if not ended.done and not self.stop.is_set():
            self.left.append(shape)
            return
        if not self.stop.is_set():
            self.decide(kept, shape)
        best = best_point(trial.user_attrs.get("record") for trial in kept.get_trials(deepcopy=False))
        if best is not None:
            self.winners[shape] = best
        with self.reporting:
            self.reporter.study_done(ended)

    def decide(self, kept: optuna.Study, shape: GemmShape) -> None:
        """Hold the finals of a measured study."""
        if not isinstance(self.evaluator, DeviceEvaluator):
            return
        row = load_dispatcher(self.device).choose(shape)
        incumbent = (row.family, row.config) if row.lookup.row and row.lookup.how == "exact" else None
        try:
            decide(kept, shape, self.evaluator, incumbent, self.request.seed)
        except FinalsFailedError as error:
            with self.reporting:
                self.reporter.note(f"{shape}: no finals ({error}); the search's own times stand")

    def open_study(self, shape: GemmShape) -> optuna.Study:
        """The study of this shape: the newest, or a new one."""
        name = self.newest(shape, optuna.get_all_study_names(self.storage))
        if name is None:
            name = self.base(shape)
        elif self.request.fresh:
            name = f"{self.base(shape)}#{int(name.partition('#')[2] or 1) + 1}"
        self.studies[shape] = name
        return optuna.create_study(storage=self.storage, study_name=name, load_if_exists=True)

    def newest(self, shape: GemmShape, names: Collection[str]) -> str | None:
        """Which of ``names`` is the shape's newest study; None if none is."""
        return newest_study(self.base(shape), names)

    def base(self, shape: GemmShape) -> str:
        """Name of the shape's first study; it holds everything that makes two trials comparable."""
        versions = (f"triton-{triton.__version__}", study_hash())
        return "/".join((str(self.device), str(shape), self.evaluator.protocol, *versions))

    def legal(self, shape: GemmShape) -> Mapping[str, LegalPoints]:
        """Legal points of every family that has some; of a recorded sweep, what was recorded.

        Raises:
            InputError: No family has one.
        """
        if isinstance(self.evaluator, ReplayEvaluator):
            return self.evaluator.legal(shape)
        found: dict[str, LegalSet] = {}
        refusals: list[InputError] = []
        for family, space in self.spaces.items():
            try:
                found[family] = legal_set(space, shape, self.device)
            except InputError as error:
                refusals.append(error)
                with self.reporting:
                    self.reporter.note(str(error))
        if not found:
            raise refusals[-1]
        return found

    def seeds(self, shape: GemmShape, points: Points) -> list[Point]:
        """Points to try first, the likeliest to win ahead: few trials do not reach far into the defaults."""
        row = load_dispatcher(self.device).choose(shape)
        serving = (row.family, row.config)
        untuned = default_choice(shape, self.device)  # shows what a missing row would cost
        near = sorted(self.winners, key=lambda other: distance(shape, other))[:NEIGHBOURS]
        neighbours = [self.winners[other] for other in near]
        liked = favourites(points.legal, shape, self.device)
        defaults: list[Point] = [(family, config) for family, space in self.spaces.items() for config in space.defaults]
        return unique([serving, untuned, *neighbours, *liked.first, *defaults, *liked.others])


def _record(
    candidate: Candidate, evaluation: Evaluation, started: str, seconds: float, *, study: str, device: DeviceKey
) -> Mapping[str, Value]:
    versions = {"triton": triton.__version__, "torch": torch.__version__}
    return make_record(
        study=study, device=device, candidate=candidate, evaluation=evaluation,
        started=started, duration_s=seconds, versions=versions,
    )  # fmt: skip
