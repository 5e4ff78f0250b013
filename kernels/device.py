"""Which device a configuration, a table row or a measurement belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARCH = re.compile(r"[a-z0-9_]{1,32}")  # it becomes part of file names


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
            raise ValueError(f"arch: {self.arch!r} is no architecture; use a-z, 0-9 and _, for example gfx950")
        if self.cu_count < 1:
            raise ValueError(f"cu_count: {self.cu_count} is less than 1")

    def __str__(self) -> str:
        return f"{self.arch}-{self.cu_count}cu"

    @property
    def is_amd(self) -> bool:
        """Whether the architecture is one of AMD's."""
        return self.arch.startswith("gfx")

    @property
    def has_scaled_fp4(self) -> bool:
        """True where the conversion to FP4 and the scaled FP4 matrix instruction exist and are used here."""
        return self.arch == "gfx950"


GFX950 = DeviceKey("gfx950", 256)  # MI350X and MI355X: 8 XCDs of 32 compute units (AMD CDNA 4 white paper)


def local_device(index: int | None = None) -> DeviceKey | None:
    """Key of local GPU ``index`` (default: the current one), or None without a GPU that torch can use."""
    import torch  # here, because it takes seconds to load and a key is needed by much that asks for no GPU

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    amd = torch.version.hip is not None
    arch = properties.gcnArchName.split(":")[0] if amd else f"sm_{properties.major}{properties.minor}"
    return DeviceKey(arch, properties.multi_processor_count)
