"""Kernel Tuner's strategies as searches of a recorded space; needs the extra ``bench``.

A strategy calls for times, a search is asked for points: each strategy runs as a coroutine that stops at every point
that it has not seen. It is given the legal points, each knob by the place of its value among the knob's values.
Source: Kernel Tuner 1.5, its strategies and the interface between them and a runner.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from recorded_searches import RandomSearch

from kernels.errors import InputError
from search.study.features import PointSpace

STRATEGIES = ("genetic_algorithm", "hybrid_vndx", "adaptive_tabu_greywolf", "dual_annealing")
Config = tuple[int, ...]


class KernelTunerSearch(RandomSearch):
    """A strategy of Kernel Tuner; points in random order where it has ended.

    Args:
        strategy: Its name there.

    Raises:
        InputError: The extra ``bench`` is not installed.
    """

    def __init__(self, space: PointSpace, seed: int, strategy: str) -> None:
        super().__init__(space, seed)
        try:
            from greenlet import greenlet
        except ImportError as error:
            raise InputError(f"{strategy}: {error}; install the extra: pip install '.[bench]'") from error
        self._caller = greenlet.getcurrent()
        # A knob that a family lacks takes its first value, so that one step leads from family to family.
        self._configs: list[Config] = [tuple(row) for row in np.maximum(space.codes, 0).tolist()]
        self._numbers = {config: number for number, config in enumerate(self._configs)}
        self._results: dict[Config, dict[str, Any]] = {}
        self._coroutine = greenlet(_tune)
        self._begun = False
        self._seed = seed
        self._strategy = strategy

    def propose(self, running: Sequence[int]) -> int:
        """The next point whose time the strategy wants.

        Raises:
            InputError: It does not know the time of the one before.
        """
        if running:
            raise InputError(f"{self._strategy} judges one point at a time; leave --capacities at 1")
        if not self._begun:
            self._begun = True
            point = self._coroutine.switch(self._strategy, self._configs, self._seed, self._result_of)
        elif not self._coroutine.dead:
            point = self._coroutine.switch()
        return super().propose(running) if self._coroutine.dead else int(point)

    def _result_of(self, config: Config) -> dict[str, Any]:
        """What the strategy asks for; back to the caller where it is not known yet."""
        while config not in self._results:
            self._caller.switch(self._numbers[config])
        return self._results[config]

    def tell(self, point: int, time_us: float | None) -> None:
        """The strategy reads it when it goes on."""
        super().tell(point, time_us)
        from kernel_tuner.util import RuntimeFailedConfig

        self._results[self._configs[point]] = {"__error__": RuntimeFailedConfig()} if time_us is None else {
            "time": time_us
        }  # fmt: skip


def _tune(strategy: str, configs: Sequence[Config], seed: int, result_of: Callable[[Config], dict[str, Any]]) -> None:
    """Run ``strategy`` over all ``configs``, as the interface of Kernel Tuner does."""
    from kernel_tuner.interface import Options, strategy_map
    from kernel_tuner.runners.runner import Runner
    from kernel_tuner.searchspace import Searchspace
    from kernel_tuner.util import StopCriterionReached, TuningBudget

    class Recorded(Runner):  # type: ignore[misc] # Kernel Tuner has no types
        """Answers from the recording."""

        def get_device_info(self) -> Any:
            return None

        def get_environment(self, tuning_options: Any) -> dict[str, Any]:
            return {}

        def run(self, parameter_space: Any, tuning_options: Any) -> list[dict[str, Any]]:
            return [dict(result_of(tuple(map(int, element)))) for element in parameter_space]

    names = [f"knob{place}" for place in range(len(configs[0]))]
    values = {name: sorted(set(column)) for name, column in zip(names, zip(*configs, strict=True), strict=True)}
    cache = {str(number): dict(zip(names, config, strict=True)) for number, config in enumerate(configs)}
    space = Searchspace(None, None, None, from_cache={"tune_params": values, "cache": cache})
    options = Options(
        objective=["time"], objective_higher_is_better=[False], strategy_options=Options(), verbose=False,
        budget=TuningBudget(max_fevals=len(configs)),
    )  # fmt: skip
    random.seed(seed)
    np.random.seed(seed)
    try:
        strategy_map[strategy].tune(space, Recorded(), options)
    except StopCriterionReached:
        return
