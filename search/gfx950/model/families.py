"""What the model makes of a family: the work of its stages, and whether they fit, from knobs or columns of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.families import FAMILIES
from kernels.families.aiter_triton import AiterFusedGemm, AiterPackedGemm, AiterQuantize, AiterSum
from kernels.families.fused_splitk_ticket import TicketGemm
from kernels.families.staged_ck import CodeObjectGemm
from kernels.families.staged_hip import HipGemm
from kernels.families.staged_splitk_ticket import StagedTicketGemm
from kernels.families.stages import Clear, Gemm, HipQuantize, Quantize, Round, Stage, Sum
from kernels.problem import GemmShape
from search.gfx950.machine import Machine
from search.gfx950.model.formula import CallWork, total_us
from search.gfx950.model.native_work import (
    code_object_gemm_work,
    hip_gemm_overflows,
    hip_gemm_work,
    hip_quantize_work,
)
from search.gfx950.model.work import (
    aiter_gemm_overflows,
    aiter_gemm_work,
    clear_work,
    gemm_overflows,
    gemm_work,
    quantize_work,
    sum_work,
    ticket_gemm_work,
)

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class StageModel:
    """Estimates of one kind of stage.

    Args:
        work: Of one launch, from the stage, the shape and the machine.
        overflows: Whether it probably exceeds the registers or the LDS; None for kernels that are built already, or
            so small that they always fit.
    """

    work: Callable[[Any, GemmShape, Machine], CallWork]
    overflows: Callable[[Any, Machine], Any] | None = None


MODELS: Mapping[type[Stage], StageModel] = {
    Quantize: StageModel(quantize_work),
    Round: StageModel(quantize_work),
    HipQuantize: StageModel(hip_quantize_work),
    Clear: StageModel(clear_work),
    Gemm: StageModel(gemm_work, gemm_overflows),
    TicketGemm: StageModel(ticket_gemm_work, gemm_overflows),
    StagedTicketGemm: StageModel(ticket_gemm_work, gemm_overflows),
    HipGemm: StageModel(hip_gemm_work, hip_gemm_overflows),
    CodeObjectGemm: StageModel(code_object_gemm_work),
    Sum: StageModel(sum_work),
    AiterQuantize: StageModel(quantize_work),
    AiterPackedGemm: StageModel(aiter_gemm_work, aiter_gemm_overflows),
    AiterFusedGemm: StageModel(aiter_gemm_work, aiter_gemm_overflows),
    AiterSum: StageModel(sum_work),
}


def is_modelled(family: str) -> bool:
    """Whether every stage of ``family`` has a model."""
    return all(type(stage) in MODELS for stage in FAMILIES[family].stages(FAMILIES[family].config_type()))


def estimate_calls(family: str, columns: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    """Work of each launch of a family's program, in the program's order.

    A launch that some configurations lack has 0 workgroups there. For one configuration, such launches are left out,
    so that the result pairs with the calls of its :class:`~kernels.launches.program.Program`.

    Args:
        columns: The configuration's fields: single values, or one array [configurations] for each.

    Raises:
        KeyError: The family is not modelled.
        AttributeError: A field is missing.
    """
    stages = FAMILIES[family].stages(SimpleNamespace(**columns))
    works = [_launched(MODELS[type(stage)].work(stage, shape, machine), stage.when) for stage in stages]
    return tuple(work for work in works if np.any(np.asarray(work.workgroups) > 0))


def _launched(work: CallWork, when: Any) -> CallWork:
    return replace(work, workgroups=np.where(when, work.workgroups, 0))


def overflows(family: str, columns: Mapping[str, Any], points: int, machine: Machine) -> Flags:
    """Whether each configuration [points] probably exceeds the registers or the LDS of ``machine``.

    Args:
        family: Name in ``FAMILIES``; a stage without a model is taken to fit.
        columns: One array [points] for each of the configuration's fields.
    """
    found = np.zeros(points, np.bool_)
    for stage in FAMILIES[family].stages(SimpleNamespace(**columns)):
        model = MODELS.get(type(stage))
        if model is not None and model.overflows is not None:
            found |= np.logical_and(stage.when, model.overflows(stage, machine))
    return found


def estimate_us(family: str, frame: pd.DataFrame, shape: GemmShape, machine: Machine) -> npt.NDArray[np.float64]:
    """Estimated time [points] of each configuration in ``frame``."""
    times = total_us(estimate_calls(family, columns_of(frame), shape, machine), machine)
    return np.broadcast_to(np.asarray(times, np.float64), len(frame))


def columns_of(frame: pd.DataFrame) -> dict[str, npt.NDArray[Any]]:
    """Each knob's values [points], as the stages of a family take them."""
    return {
        str(name): frame[name].to_numpy(np.float64 if pd.api.types.is_numeric_dtype(frame[name]) else object)
        for name in frame.columns
    }
