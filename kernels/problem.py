"""The problem a kernel solves: the logical shape of one GEMM."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

MAX_EXTENT = 1 << 31  # extents are 32-bit kernel arguments
BLOCK = 32  # values of K that share one E8M0 scale (OCP Microscaling Formats v1.0)
Layout = Literal["shuffled"]  # of a packed weight
_TEXT = re.compile(r"\s*(\d{1,10})\s*x\s*(\d{1,10})\s*x\s*(\d{1,10})\s*", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class GemmShape:
    """Logical shape of ``C[M, N] = A[M, K] @ B[N, K].T``, counted in elements, never in packed bytes."""

    M: int
    N: int
    K: int

    def __post_init__(self) -> None:
        """Reject what no kernel family supports.

        Raises:
            ValueError: M < 1, N or K is not a positive multiple of 64, or one of them is 2**31 or more.
        """
        for name, value in (("M", self.M), ("N", self.N), ("K", self.K)):
            if value >= MAX_EXTENT:
                raise ValueError(f"{name} is {MAX_EXTENT} or more, which no kernel addresses")
        if self.M < 1:
            raise ValueError(f"M = {self.M} must be at least 1")
        for name, value in (("N", self.N), ("K", self.K)):
            if value < 64 or value % 64:
                raise ValueError(f"{name} = {value} must be a positive multiple of 64")

    def __str__(self) -> str:
        return f"{self.M}x{self.N}x{self.K}"

    @classmethod
    def parse(cls, text: str) -> GemmShape:
        """Shape written as ``MxNxK``, for example ``16x2112x7168``.

        Raises:
            ValueError: ``text`` has another form, or the sizes are not supported.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a shape of the form MxNxK, for example 16x2112x7168")
        return cls(*(int(group) for group in match.groups()))

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product."""
        return 2 * self.M * self.N * self.K

    @property
    def unique_bytes(self) -> int:
        """Bytes that must move at least once: A and C in bf16, B packed with its scales."""
        return 2 * self.M * (self.K + self.N) + self.N * self.K // 2 + self.N * self.K // BLOCK
