"""Which device a configuration, a table row or a measurement belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_ARCH = re.compile(r"[a-z0-9_]{1,32}")  # it becomes part of file names


@dataclass(frozen=True)
class Architecture:
    """What the devices of one architecture have in common. Data sheets give the rates of the largest of them.

    Args:
        wave: Lanes of a wave (warp).
        lane_registers: That one lane can hold, accumulators included.
        lds_bytes: LDS (shared memory) of a compute unit.
        cu_counts: Compute units of its products, the usual one first, then of partitions.
        scaled_fp4: Whether the conversion to FP4 and the scaled FP4 matrix instruction exist and are used here.
        clock_mhz: Peak clock of the compute units.
        flops_per_clk: Dense rate of a compute unit's matrix unit, as it multiplies MXFP4 here.
        hbm_gbs: Memory bandwidth, GB/s.
        cache_bytes: Last-level cache that the runtime does not report as L2; None where L2 is the last level.
        products: What its vendor and other projects call the devices.
    """

    wave: int
    lane_registers: int
    lds_bytes: int
    cu_counts: tuple[int, ...]
    scaled_fp4: bool = False
    clock_mhz: float = 0.0
    flops_per_clk: int = 0
    hbm_gbs: float = 0.0
    cache_bytes: int | None = None
    products: tuple[str, ...] = ()

    def tflops(self, cu_count: int) -> float:
        """Dense rate of so many compute units, TFLOP/s."""
        return cu_count * self.flops_per_clk * self.clock_mhz * 1e-6

    def limits_us(self, cu_count: int, flops: int, moved_bytes: int) -> tuple[float, ...]:
        """Least microseconds of so many compute units' matrix units, and of memory; nothing where no rate is known."""
        if not self.flops_per_clk:
            return ()
        return flops / self.tflops(cu_count) * 1e-6, moved_bytes / self.hbm_gbs * 1e-3


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        # 8 XCDs of 32 compute units; MI350P: 128; 8 TB/s, 10 PFLOP/s of FP4, 256 MB of Infinity Cache (AMD CDNA 4 white
        # paper, ISA manual).
        "gfx950": Architecture(
            64, 512, 160 << 10, (256, 128, 64, 32), True, 2400.0, 16384, 8000.0, 256 << 20, ("MI350X", "MI355X")
        ),
        # 5.3 TB/s, 1307 TFLOP/s of bf16, 256 MB of Infinity Cache (AMD CDNA 3 white paper).
        "gfx942": Architecture(
            64, 512, 64 << 10, (304, 228, 80, 38), False, 2100.0, 2048, 5300.0, 256 << 20, ("MI300X",)
        ),
        # 4.8 TB/s, 989 TFLOP/s of dense bf16, to which FP4 operands are lowered (NVIDIA data sheet).
        "sm_90": Architecture(32, 255, 227 << 10, (132, 114), False, 1830.0, 4096, 4800.0, products=("H200",)),
    }
)
# Of architectures without a row: what a lane and a wave are is the vendor's, nobody knows the rates.
OTHER_AMD = Architecture(64, 512, 64 << 10, ())
OTHER_NVIDIA = Architecture(32, 255, 48 << 10, ())


@dataclass(frozen=True, order=True)
class DeviceKey:
    """Architecture and number of compute units (SMs on NVIDIA); product names are for display only."""

    arch: str
    cu_count: int

    def __post_init__(self) -> None:
        """Reject what names no device.

        Raises:
            ValueError: The message starts with the field's name.
        """
        if not isinstance(self.arch, str) or _ARCH.fullmatch(self.arch) is None:
            raise ValueError(f"arch: {self.arch!r} is no architecture; use a-z, 0-9 and _, for example {GFX950.arch}")
        if self.cu_count < 1:
            raise ValueError(f"cu_count: {self.cu_count} is less than 1")

    def __str__(self) -> str:
        return f"{self.arch}-{self.cu_count}cu"

    @property
    def is_amd(self) -> bool:
        """Whether the architecture is one of AMD's."""
        return self.arch.startswith("gfx")

    @property
    def architecture(self) -> Architecture:
        """What its architecture means; that of an unknown one is its vendor's, without rates."""
        return ARCHITECTURES.get(self.arch, OTHER_AMD if self.is_amd else OTHER_NVIDIA)

    @property
    def has_scaled_fp4(self) -> bool:
        """True where the conversion to FP4 and the scaled FP4 matrix instruction exist and are used here."""
        return self.architecture.scaled_fp4


def usual_device(arch: str) -> DeviceKey:
    """The usual device of an architecture that has a row."""
    return DeviceKey(arch, ARCHITECTURES[arch].cu_counts[0])


GFX950 = usual_device("gfx950")


def local_device(index: int | None = None) -> DeviceKey | None:
    """Key of local GPU ``index`` (default: the current one), or None without a GPU that torch can use."""
    import torch  # here, because it takes seconds to load and a key is needed by much that asks for no GPU

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    amd = torch.version.hip is not None
    arch = properties.gcnArchName.split(":")[0] if amd else f"sm_{properties.major}{properties.minor}"
    return DeviceKey(arch, properties.multi_processor_count)
