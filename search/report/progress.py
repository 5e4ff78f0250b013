"""Progress of a sweep on a terminal; one plain line a shape where the output is piped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from kernels.wording import counted
from search.evaluation import OUTCOMES, SIMULATED, is_simulated
from search.study.study import Progress as StudyProgress


@dataclass(frozen=True)
class _Begun:
    """A shape at work: its bar, when it began, and how many trials it had then."""

    bar: TaskID
    start_s: float
    first: int


@dataclass
class TerminalReporter:
    """A bar for each shape at work and one for the sweep; of a second sweep it says what the first one did not.

    Args:
        again: What a second sweep is for.
    """

    console: Console
    again: str = "again"
    _bars: Progress = field(init=False)
    _sweep: TaskID | None = None
    _begun: dict[GemmShape, _Begun] = field(default_factory=dict)
    _shapes: int = 0
    _studies_done: int = 0
    _simulated: bool = False
    _notes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Prepare the bars; nothing is drawn before :meth:`start`."""
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            transient=True,
            disable=not _draws(self.console),
        )

    def __enter__(self) -> TerminalReporter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def start(self, device: DeviceKey, protocol: str, shapes: int) -> None:
        """Say what begins, and draw the bars."""
        self._shapes, self._studies_done, self._simulated = shapes, 0, is_simulated(protocol)
        if self._sweep is None:
            self.console.print(f"{counted(shapes, 'shape')} for {device}, judged by {protocol}", highlight=False)
            self._sweep = self._bars.add_task("shapes", total=shapes, note="")
        else:
            self.console.print(f"{self.again}: {counted(shapes, 'shape')}", highlight=False)
            self._bars.reset(self._sweep, total=shapes)
        self._bars.start()

    def note(self, text: str) -> None:
        """Print a line above the bars, once."""
        if text in self._notes:
            return
        self._notes.add(text)
        self.console.print(f"note: {text}", highlight=False, markup=False, soft_wrap=not self.console.is_terminal)

    def progress(self, progress: StudyProgress) -> None:
        """Move the bar of a shape at work."""
        begun = self._begun.get(progress.shape) or self._begin(progress)
        seconds = time.monotonic() - begun.start_s
        rate = (progress.done - begun.first) / seconds if seconds > 0 else 0.0
        note = f"{rate:.1f}/s  {self._best(progress)}"
        self._bars.update(begun.bar, completed=progress.done, total=progress.total, note=note)

    def study_done(self, progress: StudyProgress) -> None:
        """Say in one line what the shape's search gave."""
        self._studies_done += 1
        if self._sweep is not None:
            self._bars.update(self._sweep, completed=self._studies_done)
        begun = self._begun.get(progress.shape) or self._begin(progress)
        del self._begun[progress.shape]
        self._bars.remove_task(begun.bar)
        ran = progress.done - begun.first
        idle = "nothing left to do" if progress.done >= progress.total else "none new"
        did = f"{ran} new in {time.monotonic() - begun.start_s:.0f} s" if ran else idle
        outcomes = _outcomes(progress)
        self.console.print(
            f"[{self._studies_done}/{self._shapes}] {progress.shape}: {self._best(progress)}, "
            f"{counted(progress.done, 'trial')} ({did})" + (f": {outcomes}" if outcomes else ""),
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def _best(self, progress: StudyProgress) -> str:
        if progress.best_us is None:
            return "no winner yet"
        return f"best {progress.best_us:.2f} us {SIMULATED if self._simulated else progress.evidence}"

    def _begin(self, progress: StudyProgress) -> _Begun:
        bar = self._bars.add_task(str(progress.shape), total=progress.total, note="")
        begun = self._begun[progress.shape] = _Begun(bar, time.monotonic(), progress.done)
        return begun


def _draws(console: Console) -> bool:
    """Whether bars can move on it: a terminal, or a notebook with the widgets that rich draws with there."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def _outcomes(progress: StudyProgress) -> str:
    return ", ".join(f"{progress.outcomes[name]} {name}" for name in OUTCOMES if name in progress.outcomes)
