"""Which families this machine can search: what their stages need, and what is said where that is absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from search.space.space import KnobValue, SearchSpace


def absence(family: str, device: DeviceKey, *, offline: bool) -> str | None:
    """Why ``family`` cannot be searched, after a semicolon the cure where there is one; None if it can.

    Args:
        offline: Whether candidates are judged by the simulator instead of a GPU.
    """
    return config_absence(family, FAMILIES[family].config_type(), device, offline=offline)


def config_absence(family: str, config: KernelConfig, device: DeviceKey, *, offline: bool) -> str | None:
    """As :func:`absence`, for one configuration of ``family``: what its GEMM lacks before what comes ahead of it."""
    stages = FAMILIES[family].launched(config)[::-1]
    for stage in stages:
        if stage.ARCH not in (None, device.arch):
            return f"its kernels are for {stage.ARCH}, not for {device.arch}"
    return next((reason for stage in stages if (reason := stage.lacking(offline=offline)) is not None), None)


def available_spaces(
    spaces: Mapping[str, SearchSpace], asked: Sequence[str] | None, device: DeviceKey, *, offline: bool
) -> tuple[dict[str, SearchSpace], list[str]]:
    """The spaces that can be searched, and a line for each thing that is left out.

    Args:
        asked: Families that the user named; None if none was.

    Raises:
        InputError: A family that the user named cannot be searched, or none can.
    """
    found: dict[str, SearchSpace] = {}
    left_out: list[str] = []
    for family, space in spaces.items():
        reason = absence(family, device, offline=offline)
        if asked is None and FAMILIES[family].ordinary_only:
            reason = (
                reason or f"not exact for NaN and Inf, a baseline; --families fused,{family} times it beside others"
            )
        if reason is not None and asked is not None:
            raise InputError(f"--families {family}: {reason}")
        if reason is not None:
            left_out.append(f"{family} is left out: {reason}")
            continue
        found[family], lines = _without_absent_choices(space, device, offline)
        left_out += lines
    if not found:
        raise InputError(f"no family can be searched: {'; '.join(left_out)}")
    return found, left_out


def _without_absent_choices(space: SearchSpace, device: DeviceKey, offline: bool) -> tuple[SearchSpace, list[str]]:
    """``space`` without the words of a knob that need what is absent, where others are left, and a line for each."""
    lines: list[str] = []
    for name, choices in space.parameters.items():
        reasons = {choice: _choice_absence(space, name, choice, device, offline) for choice in choices}
        if None in reasons.values():
            for choice, reason in reasons.items():
                if reason is not None:
                    space = _without(space, name, choice)
                    lines.append(f"{space.family} with {name}={choice} is left out: {reason}")
    return space, lines


def _choice_absence(space: SearchSpace, name: str, choice: KnobValue, device: DeviceKey, offline: bool) -> str | None:
    """What a configuration needs because of this choice; None for numbers, which choose no kernel."""
    if not isinstance(choice, str):
        return None
    return config_absence(space.family, FAMILIES[space.family].config({name: choice}), device, offline=offline)


def _without(space: SearchSpace, name: str, choice: KnobValue) -> SearchSpace:
    choices = tuple(other for other in space.parameters[name] if other != choice)
    defaults = tuple(config for config in space.defaults if config.to_dict()[name] != choice)
    return replace(space, parameters={**space.parameters, name: choices}, defaults=defaults)
