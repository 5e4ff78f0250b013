"""The dispatcher: from the tensors of a call to the launches of the kernel that a table chose for its shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.runtime.graphs import GraphCache, Pointers
from kernels.runtime.operands import Operands, check_apart, check_shuffled, operands
from kernels.runtime.plan import LIMIT_BYTES, Plan, address_of
from kernels.runtime.planner import Planned, Planner, Statistics
from kernels.runtime.runner import MakeRunner, make_runner
from kernels.runtime.tickets import Tickets
from kernels.tables import Choice, choose
from kernels.tables.misses import MissRecorder
from kernels.tables.rows import TunedTable
from kernels.tables.sources import TableSource
from kernels.triton import interpreter


@dataclass(eq=False)
class Dispatcher:
    """Serves shapes on one kind of device from one table. Safe to share between threads, streams and equal GPUs.

    Args:
        table: Tuned rows for ``device``; None serves every shape by the defaults.
        deterministic_only: Pass over rows whose result may differ in the last bit between runs.
        sources: The files that ``table`` was read from, and those that serve another device.
        misses: Where shapes without a row are recorded.
        make: Makes runners; default: the compiler, or the interpreter where it was switched on.
        workspace_limit_bytes: Of one call; a product that needs more is computed in parts.
        graphs: Captured products; default: of the GPU's runtime.
        tickets: Counters by stream, which callers' captured graphs use too; default: of the GPU's runtime.
    """

    device: DeviceKey
    table: TunedTable | None = None
    deterministic_only: bool = False
    sources: tuple[TableSource, ...] = ()
    misses: MissRecorder | None = None
    make: MakeRunner | None = None
    workspace_limit_bytes: int = LIMIT_BYTES
    graphs: GraphCache = field(default_factory=GraphCache)
    tickets: Tickets = field(default_factory=Tickets)
    _planner: Planner = field(init=False)
    _needs_gpu: bool = field(init=False)

    def __post_init__(self) -> None:
        """Make the planner."""
        self._planner = Planner(
            self.device, self.choose, self.make or make_runner, self.workspace_limit_bytes, self.misses
        )
        self._needs_gpu = self.make is None and not interpreter.interpreting()

    def choose(self, shape: GemmShape) -> Choice:
        """The table's row for ``shape``, or the default where there is none; what ``gemm`` runs."""
        return choose(self.table, shape, self.device, deterministic_only=self.deterministic_only)

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
            out: [..., N] bfloat16, contiguous, on the same device, apart from the inputs; allocated if not given.
            graph: Replay the launches as a captured graph where the addresses recur, see :mod:`kernels.runtime.graphs`;
                default: where the table's row says so.

        Returns:
            ``out``, or a new tensor.

        Raises:
            ValueError: A tensor has another shape, dtype, layout or device, needs a gradient, or ``out`` shares memory.
            InputError: The tensors are on the CPU, and the interpreter was not switched on.
            RuntimeError: The caller captures a graph and the shape has no plan yet; see :meth:`prepare`.
        """
        seen = operands(a, weight.N, weight.K, out)
        if seen.M:
            if out is not None:
                check_apart(seen, weight.data, weight.scale)
            planned, pointers, index = self._planned(seen, weight.data, weight.scale, weight.N, weight.K)
            wanted = planned.graph if graph is None else graph
            if not (wanted and self._replayed(planned, weight, seen, pointers, index)):
                self._launch(planned, pointers, weight.data, index)
        return seen.result

    def gemm_shuffled(self, a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Like :meth:`gemm`, without graphs, for a weight given as the two tensors of a ``PackedWeight``."""
        N, K = check_shuffled(data, scale)
        seen = operands(a, N, K, None)
        if seen.M:
            planned, pointers, index = self._planned(seen, data, scale, N, K)
            self._launch(planned, pointers, data, index)
        return seen.result

    def prepare(self, weight: PackedWeight, rows: Iterable[int]) -> None:
        """Choose, compile and load the kernels for ``weight`` at each M of ``rows``, so that no call has to.

        That holds for contiguous operands at multiples of 16 bytes; others get their plan with the first call.

        Raises:
            InputError: The weight is on the CPU, and the interpreter was not switched on.
        """
        for M in rows:
            self.tickets.counters(self.planned(M, weight).plan.ticket_bytes, weight.data)

    def planned(self, M: int, weight: PackedWeight) -> Planned:
        """The plan of calls with M contiguous, aligned rows; compiled now if there is none."""
        index = weight.data.get_device()
        if index < 0 and self._needs_gpu:
            raise _no_kernel_on_cpu()
        return self._planner.planned((M, weight.N, weight.K, weight.K, 0, index))

    def note(self, shape: GemmShape) -> None:
        """Record ``shape`` as missed if no row serves it, without planning it: somebody else computes it."""
        self._planner.note(shape)

    def _replayed(self, planned: Planned, weight: PackedWeight, seen: Operands, pointers: Pointers, index: int) -> bool:
        """Whether a graph did it."""
        tickets = self.tickets.counters(planned.plan.ticket_bytes, weight.data)
        return self.graphs.run(planned.plan, weight, seen, pointers, index, tickets)

    def _launch(self, planned: Planned, pointers: Pointers, data: torch.Tensor, index: int) -> None:
        """Launch on GPU ``index``, or interpret where there is none (-1)."""
        if planned.only_device or index == torch.cuda.current_device():
            self._run(planned.plan, pointers, data)
        else:  # kernels go to the current device, wherever the tensors are
            with torch.cuda.device(index):
                self._run(planned.plan, pointers, data)

    def _run(self, plan: Plan, pointers: Pointers, data: torch.Tensor) -> None:
        """Launch on the current device. The workspace is free for the stream's next call once this one returns."""
        workspace = data.new_empty(plan.workspace_bytes) if plan.workspace_bytes else None
        tickets = self.tickets.counters(plan.ticket_bytes, data)
        enqueued = False
        try:
            plan.run((*pointers, address_of(workspace), address_of(tickets)))
            enqueued = True
        finally:
            if not enqueued and tickets is not None:
                self.tickets.doubt(data)

    def _planned(
        self, seen: Operands, data: torch.Tensor, scale: torch.Tensor, N: int, K: int
    ) -> tuple[Planned, Pointers, int]:
        """The plan for a call, counted; the addresses of the four tensors; and the GPU that they are on."""
        index = data.get_device()
        if seen.a.get_device() != index or (index < 0 and seen.a.device != data.device):
            raise ValueError(f"a is on {seen.a.device}, the weight on {data.device}")
        if index < 0 and self._needs_gpu:
            raise _no_kernel_on_cpu()
        pointers = (seen.a.data_ptr(), data.data_ptr(), scale.data_ptr(), seen.out.data_ptr())
        misaligned = 0
        if (pointers[0] | pointers[1] | pointers[2] | pointers[3]) & 15:
            misaligned = sum(bool(pointer & 15) << bit for bit, pointer in enumerate(pointers))
        planned = self._planner.planned((seen.M, N, K, seen.stride_am, misaligned, index))
        planned.calls += 1
        return planned, pointers, index


def _no_kernel_on_cpu() -> InputError:
    cure = "move it to a GPU, or set TRITON_INTERPRET=1 before importing; mxfp4_gemm computes the reference there"
    return InputError(f"the weight is on the CPU, for which no kernel is compiled; {cure}")
