"""Choose the kernel for a shape from the tuned tables, and run it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from kernels import interpreter, ops
from kernels.defaults import default_choice
from kernels.device import GFX950, DeviceKey, local_device
from kernels.graphs import GraphCache, Static
from kernels.misses import MissRecorder
from kernels.operands import as_output, as_rows, check_shuffled
from kernels.planner import Choice, Planned, Planner, Statistics
from kernels.problem import GemmShape
from kernels.reference import mxfp4_gemm_reference, to_bf16
from kernels.runner import Compile, compile_call, interpret_call
from kernels.table_sources import TableSource, load_device_tables, table_path, user_misses, user_tables
from kernels.tables import Lookup, TunedTable, lookup
from kernels.weights import PackedWeight
from kernels.workspace import LIMIT_BYTES

__all__ = [
    "Choice", "Dispatcher", "default_dispatcher", "gemm_shuffled", "load_dispatcher", "mxfp4_gemm", "table_path",
]  # fmt: skip

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Dispatcher:
    """Serves shapes on one kind of device from one table. Safe to share between threads, streams and equal GPUs.

    Args:
        device: Where the kernels run.
        table: Tuned rows for ``device``; None serves every shape by the defaults.
        deterministic_only: Pass over rows whose result may differ in the last bit between runs.
        sources: The files that ``table`` was read from, and those that serve another device.
        misses: Where shapes without a row are recorded.
        compile_call: Makes runners; default: the compiler, or the interpreter where it was switched on.
        workspace_limit_bytes: Of one call; a product that needs more is computed in parts.
        graphs: Captured products; default: of the GPU's runtime.
    """

    device: DeviceKey
    table: TunedTable | None = None
    deterministic_only: bool = False
    sources: tuple[TableSource, ...] = ()
    misses: MissRecorder | None = None
    compile_call: Compile | None = None
    workspace_limit_bytes: int = LIMIT_BYTES
    graphs: GraphCache = field(default_factory=GraphCache)
    _planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        """Make the planner."""
        compiler = self.compile_call or (interpret_call if interpreter.interpreting() else compile_call)
        planner = Planner(self.device, self.choose, compiler, self.workspace_limit_bytes, self.misses)
        object.__setattr__(self, "_planner", planner)

    def choose(self, shape: GemmShape) -> Choice:
        """The table's row for ``shape``, or the default where there is none; what ``gemm`` runs."""
        if self.table is None:
            found = Lookup(None, "miss", f"no table for {self.device}")
        else:
            found = lookup(self.table, shape, deterministic_only=self.deterministic_only)
        if found.row is not None:
            return Choice(found.row.family, found.row.config, found)
        return Choice(*default_choice(shape, self.device), found)

    @property
    def statistics(self) -> Statistics:
        """How many calls each kind of answer served so far."""
        return self._planner.statistics()

    def gemm(
        self,
        a: torch.Tensor,
        weight: PackedWeight,
        *,
        out: torch.Tensor | None = None,
        graph: bool | None = None,
    ) -> torch.Tensor:
        """Compute ``Q(a) @ weight.T`` with the kernel chosen for the shape, on the current stream.

        Args:
            a: [..., K] bfloat16 on the weight's device; rows may be strided. No rows give no launch.
            weight: [N, K].
            out: [..., N] bfloat16, contiguous, on the same device; allocated if not given.
            graph: Replay the launches as a captured graph; default: where the table's row says so.

        Returns:
            ``out``, or a new tensor.

        Raises:
            ValueError: A tensor has another shape, dtype, layout or device, or needs a gradient.
            RuntimeError: The caller captures a graph and the shape has no plan yet; see :meth:`prepare`.
        """
        rows = as_rows(a, weight.K)
        product = as_output(out, a, rows, weight.N)
        if rows.shape[0]:
            planned, pointers = self._planned(rows, weight.data, weight.scale, product)
            planned.calls += 1
            wanted = _row_wants_graph(planned.choice) if graph is None else graph
            if not (wanted and self.graphs.run(self, weight, rows, product)):
                _launch(planned, pointers, weight.data)
        return _shaped(product, a, out)

    def gemm_shuffled(
        self, a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor, *, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Like :meth:`gemm`, without graphs, for a weight given as the two tensors of a ``PackedWeight``."""
        N, K = check_shuffled(data, scale)
        rows = as_rows(a, K)
        product = as_output(out, a, rows, N)
        if rows.shape[0]:
            planned, pointers = self._planned(rows, data, scale, product)
            planned.calls += 1
            _launch(planned, pointers, data)
        return _shaped(product, a, out)

    def prepare(self, weight: PackedWeight, rows: Iterable[int], *, graph: bool = False) -> None:
        """Choose, compile and load the kernels for ``weight`` at each M of ``rows``, so that no call has to.

        That holds for contiguous operands at multiples of 16 bytes; others get their plan with the first call.

        Args:
            weight: For the plans any weight of its extents would do; graphs belong to this one.
            rows: Values of M.
            graph: Also capture, for replay on the current stream.
        """
        for M in rows:
            self._planner.planned((M, weight.N, weight.K, weight.K, 0, weight.data.get_device()))
            if graph:
                self.gemm(weight.data.new_zeros((M, weight.K), dtype=torch.bfloat16), weight, graph=True)

    def allocate(self, M: int, weight: PackedWeight) -> Static:
        """Buffers of a captured product."""
        planned = self._planner.planned((M, weight.N, weight.K, weight.K, 0, weight.data.get_device()))
        a, out = (weight.data.new_empty((M, width), dtype=torch.bfloat16) for width in (weight.K, weight.N))
        return Static(a, out, weight.data.new_empty(planned.plan.workspace_bytes))

    def launch(self, static: Static, weight: PackedWeight) -> None:
        """Launch a product on the buffers of :meth:`allocate`."""
        planned, pointers = self._planned(static.a, weight.data, weight.scale, static.out)
        planned.plan.run((*pointers, static.workspace.data_ptr()))

    def _planned(
        self, a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor, out: torch.Tensor
    ) -> tuple[Planned, tuple[int, int, int, int]]:
        """The plan for matrices [M, K] and [M, N], and the addresses of the four tensors."""
        index = data.get_device()
        if a.get_device() != index:
            raise ValueError(f"a is on {a.device}, the weight on {data.device}")
        pointers = (a.data_ptr(), data.data_ptr(), scale.data_ptr(), out.data_ptr())
        misaligned = 0
        if (pointers[0] | pointers[1] | pointers[2] | pointers[3]) & 15:
            misaligned = sum(bool(pointer & 15) << bit for bit, pointer in enumerate(pointers))
        M, K = a.shape
        return self._planner.planned((M, out.shape[1], K, a.stride(0), misaligned, index)), pointers


def _launch(planned: Planned, pointers: tuple[int, int, int, int], data: torch.Tensor) -> None:
    """Run a plan with a workspace that is free for the stream's next call as soon as this one returns."""
    size = planned.plan.workspace_bytes
    workspace = data.new_empty(size) if size else None
    addresses = (*pointers, 0 if workspace is None else workspace.data_ptr())
    index = data.get_device()
    if index < 0 or index == torch.cuda.current_device():
        planned.plan.run(addresses)
    else:  # kernels go to the current device, wherever the tensors are
        with torch.cuda.device(index):
            planned.plan.run(addresses)


def _row_wants_graph(choice: Choice) -> bool:
    return False


def _shaped(product: torch.Tensor, a: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """The caller's ``out``, or the matrix with the leading extents of ``a``."""
    if out is not None:
        return out
    return product if a.ndim == 2 else product.view(*a.shape[:-1], product.shape[1])


def load_dispatcher(
    device: DeviceKey,
    tables: Sequence[Path] = (),
    *,
    deterministic_only: bool = False,
    misses: Path | None = None,
) -> Dispatcher:
    """Dispatcher with the user's tables and the project's own for ``device``.

    Args:
        device: What the rows must have been made for; files for another device are counted in ``sources``.
        tables: The user's, which come before the project's; default: those that ``MXFP4_TABLES`` names now.
        deterministic_only: See :class:`Dispatcher`.
        misses: File to which shapes without a row are appended; none by default.

    Raises:
        InputError: A table cannot be read.
    """
    loaded = load_device_tables(device, tuple(tables) or user_tables())
    recorder = None if misses is None else MissRecorder(misses)
    return Dispatcher(device, loaded.table, deterministic_only, sources=loaded.sources, misses=recorder)


def default_dispatcher(index: int | None, deterministic_only: bool = False) -> Dispatcher:
    """Dispatcher of GPU ``index``; without a GPU (None), the one of gfx950, for the interpreter.

    Made once; ``MXFP4_TABLES`` and ``MXFP4_MISSES`` are read then.

    Raises:
        InputError: A table cannot be read.
    """
    return _default_dispatcher(index, deterministic_only)


@functools.cache
def _default_dispatcher(index: int | None, deterministic_only: bool) -> Dispatcher:
    device = GFX950 if index is None else local_device(index) or GFX950
    return load_dispatcher(device, deterministic_only=deterministic_only, misses=user_misses())


@functools.cache
def _say_how_cpu_tensors_are_computed() -> None:
    how = "Triton's interpreter" if interpreter.interpreting() else "the float64 reference"
    LOGGER.warning("no GPU tensors: mxfp4_gemm runs through %s", how)


def _serving(a: torch.Tensor) -> Dispatcher | None:
    """Who serves the device of ``a``; None where only the reference can."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    if a.is_cuda:
        return default_dispatcher(a.get_device(), deterministic)
    _say_how_cpu_tensors_are_computed()
    return default_dispatcher(None, deterministic) if interpreter.interpreting() else None


def _reference(a: torch.Tensor, weight: PackedWeight, out: torch.Tensor | None) -> torch.Tensor:
    rows = as_rows(a, weight.K)
    product = as_output(out, a, rows, weight.N)
    if a.device != weight.device:
        raise ValueError(f"a is on {a.device}, the weight on {weight.device}")
    if rows.shape[0]:
        product.copy_(to_bf16(mxfp4_gemm_reference(rows, weight)))
    return _shaped(product, a, out)


def mxfp4_gemm(
    a: torch.Tensor, weight: PackedWeight, *, out: torch.Tensor | None = None, graph: bool | None = None
) -> torch.Tensor:
    """Compute ``bf16(Q(a) @ weight.T)``: quantise ``a`` to MXFP4 and multiply with the tuned kernel.

    On GPU tensors the kernel of the tuned table runs. On CPU tensors it runs through Triton's interpreter if
    TRITON_INTERPRET=1 was set, else the float64 reference answers; a log line says which. Under ``torch.compile``
    and ``torch.export`` it becomes the operator ``mxfp4_tune::gemm``. Where torch is told to use deterministic
    algorithms, rows that are not are passed over.

    Args:
        a: [..., K] bfloat16; rows may be strided, M may be 0.
        weight: [N, K] on the same device.
        out: [..., N] bfloat16, contiguous; allocated if not given.
        graph: Replay the launches as a captured graph (64 rows at most); default: where the table's row says so.

    Returns:
        [..., N] bfloat16: ``out``, or a new tensor.

    Raises:
        ValueError: A tensor has another shape, dtype, layout or device, or needs a gradient.
        InputError: A table of this device cannot be read.
    """
    if torch.compiler.is_compiling():
        product = ops.gemm(a, weight.data, weight.scale)
        return product if out is None else out.copy_(product)
    dispatcher = _serving(a)
    if dispatcher is None:
        return _reference(a, weight, out)
    return dispatcher.gemm(a, weight, out=out, graph=graph)


def gemm_shuffled(
    a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Like :func:`mxfp4_gemm` for a weight given as two uint8 tensors, see ``PackedWeight.from_shuffled``."""
    dispatcher = _serving(a)
    if dispatcher is None:
        N, K = check_shuffled(data, scale)
        return _reference(a, PackedWeight(data, scale, N=N, K=K), out)
    return dispatcher.gemm_shuffled(a, data, scale, out=out)
