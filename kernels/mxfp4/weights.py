"""PackedWeight: an MXFP4 weight [N, K] in the byte order that the kernels read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NoReturn

import torch

from kernels.mxfp4.layouts import padded_scale_shape, shuffle_scales, shuffle_weight, unshuffle_scales, unshuffle_weight
from kernels.mxfp4.numerics import ExponentRule, Mxfp4Tensor, quantize
from kernels.problem import BLOCK, GemmShape, Layout

SHUFFLED_MARK: Final = "is_shuffled"  # attribute that AITER's shuffle_weight sets on its result
BYTE_DTYPES: Final[Mapping[str, tuple[torch.dtype, ...]]] = {
    "codes": (torch.uint8, torch.float4_e2m1fn_x2),
    "scales": (torch.uint8, torch.float8_e8m0fnu),
}  # what each kind of tensor may be of: all of one byte an element, and taken as bytes


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """B of ``C[M, N] = A[M, K] @ B[N, K].T``, quantised and shuffled. Owns nothing beyond its two tensors.

    Args:
        data: [N, K // 2] uint8, contiguous, in the order of :func:`kernels.mxfp4.layouts.weight_offset`.
        scale: [pad256(N), pad8(K // 32)] uint8, contiguous, in that of :func:`kernels.mxfp4.layouts.scale_offset`.

    Raises:
        TypeError: A tensor is not uint8.
        ValueError: N or K is not a positive multiple of 64, or a tensor has another shape, gaps or
            another device.
    """

    data: torch.Tensor
    scale: torch.Tensor
    N: int
    K: int
    layout: Layout = "shuffled"

    def __post_init__(self) -> None:
        """Check extents, dtypes and devices."""
        _check_extents(self.N, self.K)
        if self.layout != "shuffled":
            raise ValueError(f"unknown layout {self.layout!r}: use 'shuffled'")
        _check_tensor("data", self.data, (self.N, self.K // 2))
        _check_tensor("scale", self.scale, padded_scale_shape(self.N, self.K // BLOCK))
        if self.data.device != self.scale.device:
            raise ValueError(f"data is on {self.data.device}, scale on {self.scale.device}")

    @classmethod
    def from_dense(cls, weight: torch.Tensor, rule: ExponentRule = "even") -> PackedWeight:
        """Quantise and shuffle ``weight`` [N, K] (bfloat16, float16 or float32).

        Raises:
            TypeError: ``weight`` has another dtype.
            ValueError: ``weight`` is no matrix, or N or K is not a positive multiple of 64.
        """
        if weight.ndim != 2:
            raise ValueError(f"weight must be a matrix [N, K], got {tuple(weight.shape)}")
        _check_extents(*weight.shape)
        quantized = quantize(weight, rule)
        return cls.from_packed(quantized.codes, quantized.scales)

    @classmethod
    def from_packed(cls, codes: torch.Tensor, scales: torch.Tensor) -> PackedWeight:
        """Shuffle ``codes`` [N, K // 2] and ``scales`` [N, K // 32], both in natural order.

        Args:
            codes: uint8 or float4_e2m1fn_x2, the even k in the low nibble; [N, K // 32, 16], with the bytes of a block
                in a dimension of their own (gpt-oss), is taken too.
            scales: uint8 or float8_e8m0fnu.

        Raises:
            TypeError: A tensor has another dtype.
            ValueError: The shapes disagree, N or K is not a positive multiple of 64, or AITER has shuffled the codes.
        """
        if getattr(codes, SHUFFLED_MARK, False):
            raise ValueError("codes are shuffled already, as AITER marks them: use from_shuffled with shuffled scales")
        if codes.ndim == scales.ndim + 1 and codes.shape[-1] == BLOCK // 2:
            codes = codes.flatten(-2)
        if codes.ndim != 2:
            cure = f"give one of its {codes.shape[0]} weights at a time" if codes.ndim == 3 else "give one matrix"
            raise ValueError(f"codes must be a matrix [N, K//2], got {list(codes.shape)}; {cure}")
        packed = Mxfp4Tensor(as_bytes("codes", codes, "codes"), as_bytes("scales", scales, "scales"))
        N = packed.codes.shape[0]
        _check_extents(N, packed.K)
        return cls(shuffle_weight(packed.codes), shuffle_scales(packed.scales), N=N, K=packed.K)

    @classmethod
    def from_shuffled(cls, data: torch.Tensor, scale: torch.Tensor, *, N: int, K: int) -> PackedWeight:
        """Wrap tensors that are shuffled already, without a copy: later writes to them are seen.

        Args:
            data: [N, K // 2] uint8 or float4_e2m1fn_x2 (the competition's ``B_shuffle``).
            scale: [pad256(N), pad8(K // 32)] uint8 or float8_e8m0fnu (``B_scale_sh``).
            K: Logical columns: elements, not bytes.

        Raises:
            TypeError: A tensor has another dtype.
            ValueError: An extent is wrong, or a tensor is not contiguous.
        """
        return cls(as_bytes("data", data, "codes"), as_bytes("scale", scale, "scales"), N=N, K=K)

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Sequence[type], arguments: Sequence[Any] = (), options: Any = None
    ) -> NoReturn:
        """Refuse to be the tensor argument of a torch function.

        It is also how ``nn.TransformerEncoderLayer`` learns that it must call its layers, rather than hand their
        weights to a kernel of its own.

        Raises:
            TypeError: Always.
        """
        name = getattr(function, "__name__", str(function))
        cure = "call the MXFP4Linear, or mxfp4_gemm; a module that reads its layer's weight must keep its nn.Linear"
        raise TypeError(f"{name} was given a PackedWeight, which is no tensor; {cure}")

    @property
    def shape(self) -> torch.Size:
        """[N, K], as ``nn.Linear.weight`` has it."""
        return torch.Size((self.N, self.K))

    @property
    def dtype(self) -> torch.dtype:
        """bfloat16: what a product takes and gives, for models that cast a layer's input to its weight's dtype."""
        return torch.bfloat16

    @property
    def device(self) -> torch.device:
        """Where both tensors lie."""
        return self.data.device

    def to(self, device: torch.device | str) -> PackedWeight:
        """Return this weight on ``device``; tensors that lie there already are shared."""
        return replace(self, data=self.data.to(device), scale=self.scale.to(device))

    def unshuffled(self) -> Mxfp4Tensor:
        """Return copies of the codes [N, K // 2] and scales [N, K // 32] in natural order."""
        scales = unshuffle_scales(self.scale, self.N, self.K // BLOCK)
        return Mxfp4Tensor(unshuffle_weight(self.data), scales)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return the values [N, K]; bfloat16 and float32 are exact below 2**128, float64 everywhere."""
        return self.unshuffled().dequantize(dtype)


def _check_extents(N: int, K: int) -> None:
    """Raise ValueError unless kernels exist for a weight [N, K], whatever M is."""
    GemmShape(M=1, N=N, K=K)


def as_bytes(name: str, tensor: torch.Tensor, kind: Literal["codes", "scales"]) -> torch.Tensor:
    """Return ``tensor`` seen as uint8, without a copy.

    Raises:
        TypeError: Its dtype holds no bytes of this kind.
    """
    if tensor.dtype not in BYTE_DTYPES[kind]:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in BYTE_DTYPES[kind])
        raise TypeError(f"{name} must be {allowed}, got {tensor.dtype}")
    return tensor.view(torch.uint8)


def _check_tensor(name: str, tensor: torch.Tensor, shape: tuple[int, int]) -> None:
    """Raise unless ``tensor`` is contiguous uint8 of ``shape``."""
    if tensor.dtype != torch.uint8:
        raise TypeError(f"{name} must be uint8, got {tensor.dtype}")
    if tensor.shape != shape:
        raise ValueError(f"{name} must be {list(shape)}, got {list(tensor.shape)}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()}")
