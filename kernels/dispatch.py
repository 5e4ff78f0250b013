"""Choose the kernel for a shape from the tuned tables, and run it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from kernels import interpreter
from kernels.config import TileConfig
from kernels.defaults import default_choice
from kernels.device import GFX950, DeviceKey, local_device
from kernels.families import FAMILIES
from kernels.launch import allocate, launch
from kernels.problem import GemmShape
from kernels.reference import mxfp4_gemm_reference, to_bf16
from kernels.tables import Lookup, TunedTable, load_table, lookup, tables_folder
from kernels.weights import PackedWeight

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """What serves a shape, and why.

    Args:
        family: Name in ``FAMILIES``.
        config: Its configuration.
        lookup: The table's answer; its ``row`` is None where the family's default serves.
    """

    family: str
    config: TileConfig
    lookup: Lookup


@dataclass(frozen=True, eq=False)
class Dispatcher:
    """Serves shapes on one device from one table.

    Args:
        device: Where the kernels run.
        table: Tuned rows for ``device``; None serves every shape by the defaults.
        deterministic_only: Pass over rows whose result may differ in the last bit between runs.
    """

    device: DeviceKey
    table: TunedTable | None = None
    deterministic_only: bool = False
    _chosen: dict[GemmShape, Choice] = field(default_factory=dict)

    def choose(self, shape: GemmShape) -> Choice:
        """The row for ``shape``, or the default; a miss is logged once a shape."""
        known = self._chosen.get(shape)
        if known is None:
            known = self._chosen[shape] = self._look_up(shape)
        return known

    def _look_up(self, shape: GemmShape) -> Choice:
        if self.table is None:
            found = Lookup(None, "miss", f"no table for {self.device}")
        else:
            found = lookup(self.table, shape, deterministic_only=self.deterministic_only)
        if found.row is not None:
            return Choice(found.row.family, found.row.config, found)
        LOGGER.warning("%s is not tuned for %s (%s); the default serves", shape, self.device, found.explanation)
        return Choice(*default_choice(shape, self.device), found)

    def gemm(self, a: torch.Tensor, weight: PackedWeight, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """Compute ``Q(a) @ weight.T`` with the kernel chosen for the shape.

        Args:
            a: [M, K] bfloat16 on the weight's device; rows may be strided, the elements of a row may not.
            weight: [N, K].
            out: [M, N] bfloat16, contiguous, on the same device; allocated if not given.

        Returns:
            ``out``.

        Raises:
            ValueError: A tensor has another shape, dtype, layout or device.
        """
        a, out = _check(a, weight, out)
        if a.shape[0] == 0:
            return out
        shape = GemmShape(a.shape[0], weight.N, weight.K)
        choice = self.choose(shape)
        program = FAMILIES[choice.family].program(shape, choice.config, a.stride(0))
        tensors = {"a": a, "b": weight.data, "b_scale": weight.scale, "out": out}
        launch(program, tensors | {b.name: allocate(b, a.device) for b in program.workspaces})
        return out


def _check(a: torch.Tensor, weight: PackedWeight, out: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """``a`` with rows whose elements are neighbours, and the output tensor."""
    if a.dtype != torch.bfloat16 or a.ndim != 2 or a.shape[1] != weight.K:
        raise ValueError(f"a must be bfloat16 [M, {weight.K}], got {a.dtype} {list(a.shape)}")
    if a.device != weight.device:
        raise ValueError(f"a is on {a.device}, the weight on {weight.device}")
    shape = (a.shape[0], weight.N)
    if out is None:
        out = torch.empty(shape, dtype=torch.bfloat16, device=a.device)
    elif out.dtype != torch.bfloat16 or out.shape != shape or not out.is_contiguous() or out.device != a.device:
        raise ValueError(f"out must be contiguous bfloat16 {list(shape)} on {a.device}, got {out.dtype} {list(out.shape)}")
    return (a if a.stride(1) == 1 else a.contiguous()), out


def table_path(device: DeviceKey) -> Path:
    """Where the project keeps its table for ``device``."""
    return tables_folder() / f"{device.arch}.yaml"


def load_dispatcher(device: DeviceKey, tables: Sequence[Path] = (), *, deterministic_only: bool = False) -> Dispatcher:
    """Dispatcher with the first of ``tables`` (default: the project's own) that was made for ``device``.

    Raises:
        InputError: A table cannot be read.
    """
    own = table_path(device)
    paths = list(tables) or ([own] if own.exists() else [])
    made_for = [table for table in map(load_table, paths) if table.device == device]
    return Dispatcher(device, made_for[0] if made_for else None, deterministic_only)


@functools.cache
def default_dispatcher(index: int | None) -> Dispatcher:
    """Dispatcher of GPU ``index``; without a GPU (None), the one of gfx950, for the interpreter."""
    return load_dispatcher(GFX950 if index is None else local_device(index) or GFX950)


@functools.cache
def _say_how_cpu_tensors_are_computed() -> None:
    how = "Triton's interpreter" if interpreter.interpreting() else "the float64 reference"
    LOGGER.warning("no GPU tensors: mxfp4_gemm runs through %s", how)


def mxfp4_gemm(a: torch.Tensor, weight: PackedWeight, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute ``bf16(Q(a) @ weight.T)``: quantise ``a`` to MXFP4 and multiply with the tuned kernel.

    On GPU tensors the kernel of the tuned table runs. On CPU tensors it runs through Triton's interpreter if
    TRITON_INTERPRET=1 was set, else the float64 reference answers; a log line says which.

    Args:
        a: [M, K] bfloat16, M may be 0.
        weight: [N, K] on the same device.
        out: [M, N] bfloat16, contiguous; allocated if not given.

    Returns:
        [M, N] bfloat16: ``out``, or a new tensor.

    Raises:
        ValueError: A tensor has another shape, dtype, layout or device.
        InputError: The table of this device cannot be read.
    """
    if a.is_cuda:
        return default_dispatcher(a.device.index).gemm(a, weight, out=out)
    _say_how_cpu_tensors_are_computed()
    if interpreter.interpreting():
        return default_dispatcher(None).gemm(a, weight, out=out)
    a, out = _check(a, weight, out)
    return out.copy_(to_bf16(mxfp4_gemm_reference(a, weight))) if len(a) else out
