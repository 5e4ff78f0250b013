"""Correct before timed: a candidate's output on the GPU against the float64 reference."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels.errors import WrongResultError
from kernels.launches.program import Program
from kernels.mxfp4.layouts import padded_scale_shape, shuffle_scales
from kernels.mxfp4.numerics import Mxfp4Tensor, quantize, row_slices
from kernels.mxfp4.reference import ErrorReport, mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import BLOCK, GemmShape
from kernels.runtime.plan import LoadedProgram
from kernels.runtime.runner import allocate
from search.device.gpu import Gpu, ReplayDiffersError
from search.device.timing import Launch
from search.evaluation import Value
from search.gate.tolerance import RowSizes, bf16_sum_bound, device_sum_bound, judge_result, row_sizes

REPEATS = 3  # further runs whose bits are compared with the first


def check(
    loaded: LoadedProgram, inputs: Sequence[CheckedInput], working: Tensors, gpu: Gpu, facts: dict[str, Value]
) -> bool:
    """Compare with the references from poisoned outputs and workspaces; whether every run gave the same bits.

    Raises:
        WrongResultError: An output is wrong, not finite, or was not written.
    """
    start_s = time.perf_counter()
    for given in inputs:
        out = _run_poisoned(loaded, given, working, gpu)
        report = judge_result(out[given.rows], given.reference, given.bound(loaded.program))
        facts |= {"max_rel_error": report.max_rel, "mismatches": report.mismatches}
        reject_wrong(report, bool(out.isfinite().all()))
    first = out.clone()
    same = all(torch.equal(_run_poisoned(loaded, inputs[-1], working, gpu), first) for _ in range(REPEATS))
    facts["check_s"] = time.perf_counter() - start_s
    return same


def _run_poisoned(loaded: LoadedProgram, given: CheckedInput, working: Tensors, gpu: Gpu) -> torch.Tensor:
    poison(working)
    gpu.launch(loaded, given.tensors | working)
    gpu.synchronize()
    return working["out"]


def reject_wrong(report: ErrorReport, finite: bool) -> None:
    """Refuse a product that is wrong where it was compared, or not ``finite`` elsewhere.

    Raises:
        WrongResultError: It is.
    """
    if not report.ok:
        raise WrongResultError(
            f"{report.mismatches} of {report.elements} values are no rounding of the sum, first at "
            f"{report.first_mismatch}; {report.nan_count} NaN; largest error {report.max_rel:.3g}"
        )
    if not finite:
        raise WrongResultError("a value that was not compared is NaN or Inf: not written, or computed from a pad")


SEEDS = (1, 2)
REFERENCE_PRODUCTS = 200_000_000_000  # M*N*K of one float64 reference: 0.1 s or less on a GPU with 5 TFLOP/s of it
POISON_BYTE = 0xFF
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class CheckedInput:
    """One pair of operands with what must come out.

    Args:
        a: [M, K] bfloat16.
        weight: [N, K], its scale pads poisoned.
        rows: Rows of the output that are compared, all of them where the float64 product is quick [R].
        reference: Float64 [R, N].
        sizes: Of the compared rows and of those of the weight, which bound the error of a sum.
    """

    a: torch.Tensor
    weight: PackedWeight
    rows: torch.Tensor
    reference: torch.Tensor
    sizes: tuple[RowSizes, RowSizes]

    def bound(self, program: Program) -> torch.Tensor:
        """Largest error [R, N] of the sums of ``program``, which adds fp32 or bf16 values, before they are rounded."""
        if program.bf16_slice_k is None:
            return device_sum_bound(*self.sizes, self.weight.K)
        a = quantize(self.a[self.rows]).dequantize(torch.float64)
        return bf16_sum_bound(a, self.weight.dequantize(torch.float64), program.bf16_slice_k)

    @property
    def tensors(self) -> Tensors:
        """Operands by buffer name."""
        return {"a": self.a, "b": self.weight.data, "b_scale": self.weight.scale}


def checked_input(shape: GemmShape, seed: int, device: torch.device) -> CheckedInput:
    """Operands drawn from N(0, 1), each row scaled by a power of two, and their reference.

    Row scales make a wrong scale byte visible, and leave every fp32 sum exact, as it is for N(0, 1): the
    rows' products stay multiples of one quantum.
    """
    generator = torch.Generator(device).manual_seed(seed)
    a = _scaled_rows(shape.M, shape.K, generator)
    weight = poison_pads(PackedWeight.from_dense(_scaled_rows(shape.N, shape.K, generator)))
    rows = compared_rows(shape, torch.Generator().manual_seed(seed)).to(device)
    sizes = (row_sizes(quantize(a[rows]).dequantize(torch.float64)), _weight_sizes(weight))
    return CheckedInput(a, weight, rows, mxfp4_gemm_reference(a[rows], weight), sizes)


def _weight_sizes(weight: PackedWeight) -> RowSizes:
    """Sizes of the rows, a few at a time: 8 bytes an element."""
    packed = weight.unshuffled()
    parts = (Mxfp4Tensor(packed.codes[rows], packed.scales[rows]) for rows in row_slices(weight.N, weight.K))
    return RowSizes.joined([row_sizes(part.dequantize(torch.float64)) for part in parts])


def _scaled_rows(rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    device = generator.device
    exponents = torch.randint(-3, 4, (rows, 1), generator=generator, device=device)
    return (torch.randn(rows, columns, generator=generator, device=device) * 2.0**exponents).to(torch.bfloat16)


def compared_rows(shape: GemmShape, generator: torch.Generator) -> torch.Tensor:
    """Rows of the output to compare: all, or the first, the last and random ones where all would take long."""
    affordable = max(4, REFERENCE_PRODUCTS // (shape.N * shape.K))
    if affordable >= shape.M:
        return torch.arange(shape.M)
    chosen = torch.randperm(shape.M - 2, generator=generator)[: affordable - 2] + 1
    return torch.cat([torch.tensor([0, shape.M - 1]), chosen]).sort().values


def poison_pads(weight: PackedWeight) -> PackedWeight:
    """``weight`` with 0xFF, the E8M0 NaN, in every pad byte of its scales: no kernel may depend on them."""
    rows, groups = padded_scale_shape(weight.N, weight.K // BLOCK)
    natural = torch.full((rows, groups), POISON_BYTE, dtype=torch.uint8, device=weight.device)
    natural[: weight.N, : weight.K // BLOCK] = weight.unshuffled().scales
    return PackedWeight(weight.data, shuffle_scales(natural), weight.N, weight.K)


def working_tensors(program: Program, device: torch.device) -> Tensors:
    """Output, workspaces and tickets of ``program``; only the tickets are initialised."""
    return {b.name: allocate(b, device) for b in program.buffers if b.role != "input"}


def poison(tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill ``tensors`` with what must never be read: NaN, or 0xFF in packed ones. Tickets keep what launches left."""
    for tensor in tensors.values():
        if tensor.dtype != torch.int32:
            tensor.fill_(POISON_BYTE if tensor.dtype == torch.uint8 else torch.nan)


def set_bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    """Bytes of one set of operands and output."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def copies_of(operands: Tensors, shape: GemmShape, count: int) -> list[Tensors]:
    """``count`` sets of operands with an output each, at addresses of their own."""
    first = operands["a"]
    out = first.new_empty((count, shape.M, shape.N))
    return [{name: tensor.clone() for name, tensor in operands.items()} | {"out": out[i]} for i in range(count)]


def outputs_of(sets: Sequence[Tensors]) -> torch.Tensor:
    """The outputs of ``sets`` from :func:`copies_of`, which lie behind one another, as one tensor [sets, M, N]."""
    first = sets[0]["out"]
    M, N = first.shape
    return first.as_strided((len(sets), M, N), (M * N, N, 1))


def check_replay(graph: Any, launch: Launch, outputs: torch.Tensor, gpu: Gpu, *, exact: bool) -> None:
    """Compare what ``graph`` writes with what a plain launch writes.

    Args:
        graph: Its launches write every one of ``outputs``, from equal operands.
        launch: Writes the first of ``outputs``, and was checked.
        outputs: [sets, M, N].
        exact: Whether every run gives the same bits; else sums in another order are granted 1/64 of the largest value.

    Raises:
        ReplayDiffersError: They differ.
    """
    launch()
    gpu.synchronize()
    expected = outputs[0].clone()
    outputs.fill_(torch.nan)
    gpu.replay(graph)
    slack = 0.0 if exact else float(expected.abs().max()) / 64
    wrong = ~torch.isclose(outputs, expected, rtol=0.0, atol=slack).flatten(1).all(1)
    if wrong.any():
        count = f"{int(wrong.sum())} of {len(wrong)} outputs"
        raise ReplayDiffersError(f"a replay differs from the launches that it was captured from, in {count}")
