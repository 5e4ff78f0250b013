"""MXFP4Linear: a linear layer for inference whose weight is packed MXFP4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import torch
from torch import nn

from kernels import dispatch
from kernels.dispatch import mxfp4_gemm
from kernels.mxfp4.layouts import padded_scale_shape
from kernels.mxfp4.numerics import ExponentRule
from kernels.mxfp4.weights import PackedWeight, as_bytes
from kernels.problem import BLOCK, GemmShape

KINDS: Final[Mapping[str, Literal["codes", "scales"]]] = {"data": "codes", "scale": "scales"}  # of the buffers


class MXFP4Linear(nn.Module):
    """``y = bf16(Q(x) @ weight.T) + bias`` for x [..., in_features] in bfloat16.

    The input has a gradient, see :func:`kernels.dispatch.gradient_now`; the packed weight is fixed, and the
    bias is a buffer. Under ``torch.autocast`` the input is cast to bfloat16, and the result is bfloat16.

    Under ``torch.compile`` the product is bit for bit the eager one, but Inductor rounds what it fuses between two
    layers (the bias too) once, eager torch after each operation, and an input that moved by one bfloat16 step may get
    another MXFP4 code: results then differ by some percent, and neither is nearer to the unrounded model.
    ``torch.compile(model, options={"emulate_precision_casts": True})`` rounds as eager does. Source:
    ``benchmarks/compiled_model.py``.

    The state dict holds ``data`` and ``scale``, the shuffled tensors of :class:`PackedWeight`, and ``bias``. A new
    layer holds zeros until a state dict is loaded; see also :meth:`from_linear` and :meth:`from_weight`.

    Args:
        in_features: K, a multiple of 64.
        out_features: N, a multiple of 64.
        bias: Whether there is one, [N] bfloat16.

    Raises:
        ValueError: A size is no positive multiple of 64.
    """

    data: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        GemmShape(1, out_features, in_features)
        padded = padded_scale_shape(out_features, in_features // BLOCK)
        data = torch.zeros(out_features, in_features // 2, dtype=torch.uint8, device=device)
        scale = torch.zeros(padded, dtype=torch.uint8, device=device)
        zeros = torch.zeros(out_features, dtype=torch.bfloat16, device=device) if bias else None
        self._adopt(PackedWeight(data, scale, N=out_features, K=in_features), zeros)

    def _adopt(self, weight: PackedWeight, bias: torch.Tensor | None) -> None:
        self.in_features, self.out_features = weight.K, weight.N
        self.register_buffer("data", weight.data)
        self.register_buffer("scale", weight.scale)
        self.register_buffer("bias", bias)
        self._weight = weight

    @classmethod
    def from_weight(cls, weight: PackedWeight, bias: torch.Tensor | None = None) -> MXFP4Linear:
        """Layer on ``weight``, whose tensors it shares, with ``bias`` [N] rounded to bfloat16.

        For a packed checkpoint: ``from_weight(PackedWeight.from_packed(codes, scales))``.

        Raises:
            ValueError: ``bias`` has another shape.
        """
        if bias is not None and bias.shape != (weight.N,):
            raise ValueError(f"bias must be [{weight.N}], got {list(bias.shape)}")
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        rounded = None if bias is None else bias.detach().to(weight.device, torch.bfloat16)
        layer._adopt(weight, rounded)
        return layer

    @classmethod
    def from_linear(cls, linear: nn.Linear, rule: ExponentRule = "even") -> MXFP4Linear:
        """Quantise the weight of ``linear``; its bias is rounded to bfloat16.

        Raises:
            TypeError: The weight is neither bfloat16, float16 nor float32, or is packed already.
            ValueError: A size is no positive multiple of 64.
        """
        if isinstance(linear.weight, PackedWeight):
            raise TypeError("the layer's weight is packed already: use it as it is")
        return cls.from_weight(PackedWeight.from_dense(linear.weight.detach(), rule), linear.bias)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool,
        missing: list[str], unexpected: list[str], errors: list[str],
    ) -> None:  # fmt: skip
        """Take codes and scales of torch's 4-bit and E8M0 dtypes byte for byte, where ``copy_`` would convert them."""
        for name, kind in KINDS.items():
            if isinstance(state_dict.get(prefix + name), torch.Tensor):
                try:
                    state_dict[prefix + name] = as_bytes(prefix + name, state_dict[prefix + name], kind)
                except TypeError as error:
                    errors.append(str(error))
                    return
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)

    @property
    def weight(self) -> PackedWeight:
        """The weight as the kernels see it; a new value after the layer moved or its buffers were replaced."""
        buffers = self._buffers  # as attributes they cost a call of nn.Module.__getattr__ each
        data, scale = buffers["data"], buffers["scale"]
        assert data is not None and scale is not None
        known = self._weight
        if known.data is not data or known.scale is not scale:
            known = self._weight = PackedWeight(data, scale, N=self.out_features, K=self.in_features)
        return known

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [..., out_features] in bfloat16.

        Args:
            x: [..., in_features] bfloat16.

        Raises:
            ValueError: ``x`` has another shape, dtype or device.
        """
        if torch.compiler.is_compiling():
            y, bias = dispatch.gemm_op(dispatch.autocast(x), self.data, self.scale), self.bias
        else:
            y, bias = mxfp4_gemm(x, self.weight), self._buffers["bias"]
        return y if bias is None else torch.add(y, bias.to(y.dtype))

    def extra_repr(self) -> str:
        """Sizes, as ``nn.Linear`` prints them."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
