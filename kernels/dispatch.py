"""The product for users, with the tables, the dispatcher and the device that serve it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernels.device import GFX950, DeviceKey, local_device
from kernels.mxfp4.reference import mxfp4_gemm_reference, to_bf16
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.runtime.dispatcher import Dispatcher
from kernels.runtime.operands import BF16, check_apart, check_output, check_shuffled, operands
from kernels.tables.misses import MissRecorder
from kernels.tables.sources import load_device_tables, user_misses, user_tables
from kernels.triton import interpreter

LOGGER = logging.getLogger(__name__)


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
        misses: File to which shapes without a row are appended; none by default.

    Raises:
        InputError: A table cannot be read.
    """
    loaded = load_device_tables(device, tuple(tables) or user_tables())
    recorder = None if misses is None else MissRecorder(misses)
    return Dispatcher(device, loaded.table, deterministic_only, sources=loaded.sources, misses=recorder)


def default_dispatcher(index: int | None, deterministic_only: bool = False) -> Dispatcher:
    """Dispatcher of GPU ``index``; without a GPU (None), that of ``GFX950``, for the interpreter.

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


@functools.cache
def _noting() -> Dispatcher | None:
    """Who notes what the reference computes: ``GFX950``'s dispatcher where the user named tables or misses, else None.

    Raises:
        InputError: A table cannot be read; it is said here too, where none would be asked.
    """
    return default_dispatcher(None) if user_tables() or user_misses() else None


def _serving(a: torch.Tensor) -> Dispatcher | None:
    """Who serves the device of ``a``; None where only the reference can."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    if a.is_cuda:
        return default_dispatcher(a.get_device(), deterministic)
    _say_how_cpu_tensors_are_computed()
    return default_dispatcher(None, deterministic) if interpreter.interpreting() else None


def _reference(a: torch.Tensor, weight: PackedWeight, out: torch.Tensor | None) -> torch.Tensor:
    seen = operands(a, weight.N, weight.K, out)
    if a.device != weight.device:
        raise ValueError(f"a is on {a.device}, the weight on {weight.device}")
    if seen.M:
        if out is not None:
            check_apart(seen, weight.data, weight.scale)
        noting = _noting()
        if noting is not None:
            noting.note(GemmShape(seen.M, weight.N, weight.K))
        seen.out.copy_(to_bf16(mxfp4_gemm_reference(seen.a, weight)))
    return seen.result


def mxfp4_gemm(
    a: torch.Tensor, weight: PackedWeight, *, out: torch.Tensor | None = None, graph: bool | None = None
) -> torch.Tensor:
    """Compute ``bf16(Q(a) @ weight.T)``: quantise ``a`` to MXFP4 and multiply with the tuned kernel.

    On GPU tensors the kernel of the tuned table runs. On CPU tensors it runs through Triton's interpreter if
    TRITON_INTERPRET=1 was set, else the float64 reference answers; a log line says which. Under ``torch.compile``
    and ``torch.export`` it becomes the operator ``mxfp4_tune::gemm``. Where torch is told to use deterministic
    algorithms, rows that are not are passed over. Under ``torch.autocast``, of whatever dtype, ``a`` is cast.

    The gradient for ``a`` is that of a product with the dequantised weight, see
    :func:`gradient_now`; the weight has none, nor is there a second derivative.

    A block of ``a`` with Inf counts as 6 * 2**127 on FP4 units, in the reference and in Triton's interpreter. GPUs
    without them multiply bfloat16 values, of which that is none: there the block counts as Inf, and so may its row.

    Args:
        a: [..., K] bfloat16; rows may be strided, M may be 0.
        weight: [N, K] on the same device.
        out: [..., N] bfloat16, contiguous, apart from ``a`` and ``weight``; allocated if not given.
        graph: Replay the launches as a captured graph: for calls of at most 64 rows whose tensors lie where those of
            a recent call lay, see :mod:`kernels.runtime.graphs`. Default: where the table's row says so.

    Returns:
        [..., N] bfloat16: ``out``, or a new tensor.

    Raises:
        TypeError: ``weight`` is no ``PackedWeight``, or ``a`` no tensor.
        ValueError: A tensor has another shape, dtype, layout or device, or ``out`` shares memory with an input or
            stands where a gradient is needed.
        InputError: A table of this device cannot be read.
    """
    if not (isinstance(weight, PackedWeight) and isinstance(a, torch.Tensor)):
        found = f"{type(a).__name__}, {type(weight).__name__}"
        raise TypeError(f"mxfp4_gemm takes a tensor and a PackedWeight (from PackedWeight.from_dense), got {found}")
    a = autocast(a)
    if torch.compiler.is_compiling():
        return _traced(a, weight, out)
    if out is None and a.requires_grad and torch.is_grad_enabled():
        product: torch.Tensor = gemm_op(a, weight.data, weight.scale)
        return product
    dispatcher = _serving(a)
    if dispatcher is None:
        return _reference(a, weight, out)
    return dispatcher.gemm(a, weight, out=out, graph=graph)


def autocast(a: torch.Tensor) -> torch.Tensor:
    """``a`` in bfloat16 where torch casts the inputs of products now, else ``a`` itself."""
    if a.dtype is not BF16 and a.is_floating_point() and torch.is_autocast_enabled(a.device.type):
        return a.to(BF16)
    return a


def _traced(a: torch.Tensor, weight: PackedWeight, out: torch.Tensor | None) -> torch.Tensor:
    """The product as the operator; it is copied to ``out``, which may therefore share memory with an input."""
    product: torch.Tensor = gemm_op(a, weight.data, weight.scale)
    if out is None:
        return product
    check_output(out, (*a.shape[:-1], weight.N), a)
    return out.copy_(product)


def gemm_shuffled(a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Like :func:`mxfp4_gemm`, into a new tensor, for a weight given as its two tensors.

    Args:
        a: [..., K] bfloat16.
        data: [N, K // 2] uint8, shuffled, as in ``PackedWeight``.
        scale: [pad256(N), pad8(K // 32)] uint8, shuffled.

    Raises:
        ValueError: A tensor has another shape, dtype, layout or device.
    """
    dispatcher = _serving(a)
    if dispatcher is None:
        N, K = check_shuffled(data, scale)
        return _reference(a, PackedWeight(data, scale, N=N, K=K), None)
    return dispatcher.gemm_shuffled(a, data, scale)


NAMESPACE = "mxfp4_tune"
OPERATOR, GRADIENT = f"{NAMESPACE}::gemm", f"{NAMESPACE}::gemm_input_gradient"


def gemm_shape(a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return a tensor like the result, for tracing.

    Raises:
        ValueError: The operands do not fit.
    """
    N, row_bytes = data.shape
    if a.shape[-1] != 2 * row_bytes:
        raise ValueError(f"a has {a.shape[-1]} columns, the weight {2 * row_bytes}")
    return a.new_empty((*a.shape[:-1], N), dtype=torch.bfloat16)


def gradient_now(grad: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Gradient [..., K] for ``a``, given ``grad`` [..., N] of the product: ``grad @ weight``, rounded to bfloat16.

    The weight is dequantised for the time of the call, 2 bytes an element. Quantisation counts as the identity, as
    usual for a function that is constant almost everywhere. Source: the straight-through estimator, Bengio et al.,
    arXiv:1308.3432.
    """
    N, K = check_shuffled(data, scale)
    return grad @ PackedWeight(data, scale, N=N, K=K).dequantize(torch.bfloat16)


def gradient_shape(grad: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return a tensor like the gradient, for tracing."""
    return grad.new_empty((*grad.shape[:-1], 2 * data.shape[1]))


def _keep_weight(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    return gradient_op(grad, *ctx.saved_tensors), None, None


def _no_second_derivative(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    raise RuntimeError("mxfp4_gemm has no second derivative: call its backward without create_graph")


LIBRARY = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
LIBRARY.define("gemm(Tensor a, Tensor data, Tensor scale) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
LIBRARY.impl("gemm", gemm_shuffled, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
LIBRARY.define(
    "gemm_input_gradient(Tensor grad, Tensor data, Tensor scale) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)  # type: ignore[no-untyped-call]
LIBRARY.impl("gemm_input_gradient", gradient_now, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
torch.library.register_fake(OPERATOR, gemm_shape, lib=LIBRARY)
torch.library.register_fake(GRADIENT, gradient_shape, lib=LIBRARY)
torch.library.register_autograd(OPERATOR, _backward, setup_context=_keep_weight, lib=LIBRARY)
torch.library.register_autograd(GRADIENT, _no_second_derivative, lib=LIBRARY)
gemm_op = torch.ops.mxfp4_tune.gemm.default
gradient_op = torch.ops.mxfp4_tune.gemm_input_gradient.default
