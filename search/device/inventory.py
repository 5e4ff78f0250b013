"""The local GPUs, asked for without keeping one open where that could cost this process.

On ROCm a process that has opened a GPU is signalled, and ends, when that GPU is reset, whoever caused the reset; and a
process that has not opened one counts by another library. A child therefore looks, and answers in JSON. On CUDA neither
holds, and the process looks itself. Source: ROCR-Runtime ``HwExceptionHandler``; amdsmi's page on resets.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from kernels.device import DeviceKey, local_device
from kernels.errors import InputError
from kernels.wording import counted
from search.device.product import Product, pci_address, product_of

TIMEOUT_S = 180.0  # importing torch from a cold disk, opening eight GPUs
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class GpuFacts:
    """One GPU that this process sees.

    Args:
        address: On the PCI bus; None where torch does not say.
    """

    index: int
    key: DeviceKey
    name: str
    address: str | None = None
    product: Product | None = None


def local_gpus() -> tuple[GpuFacts, ...]:
    """Every GPU that torch can use here.

    Raises:
        InputError: The child that looks hangs, or ends without an answer.
    """
    return look() if torch.version.hip is None else _ask()


def alike(gpus: Sequence[GpuFacts]) -> tuple[GpuFacts, ...]:
    """The largest group of ``gpus`` of one device and product; of equal groups, the one with the first GPU."""
    if not gpus:
        return ()
    kinds = Counter((gpu.key, gpu.product) for gpu in gpus)
    kind, _ = kinds.most_common(1)[0]
    return tuple(gpu for gpu in gpus if (gpu.key, gpu.product) == kind)


def others_note(gpus: Sequence[GpuFacts], used: Sequence[GpuFacts]) -> str | None:
    """One line on GPUs that are left out because they are of another kind; None where there are none."""
    left = [gpu for gpu in gpus if gpu not in used]
    if not left:
        return None
    kinds = ", ".join(f"GPU {gpu.index} is {gpu.key}" + (f" ({gpu.product})" if gpu.product else "") for gpu in left)
    return f"{counted(len(used), 'GPU')} of {used[0].key} measure; left out: {kinds}"


def look() -> tuple[GpuFacts, ...]:
    """The GPUs, by opening them in this process."""
    if local_device() is None:
        return ()
    return tuple(map(facts_of, range(torch.cuda.device_count())))  # only now: before, another library counts


def facts_of(index: int) -> GpuFacts:
    """Facts of visible GPU ``index``."""
    key = local_device(index)
    assert key is not None
    properties = torch.cuda.get_device_properties(index)
    if torch.version.hip is None:
        return GpuFacts(index, key, properties.name)
    address = pci_address(properties)
    return GpuFacts(index, key, properties.name, address, product_of(properties.name, address))


def _ask() -> tuple[GpuFacts, ...]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"torch did not open the GPUs within {TIMEOUT_S:.0f} s; is one hung? See `dmesg`") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(f"torch cannot open the GPUs: {said}; run `run_search.py doctor`")
    return tuple(_from_json(fields) for fields in json.loads(done.stdout.splitlines()[-1]))


def _from_json(fields: dict[str, object]) -> GpuFacts:
    key, product = fields.pop("key"), fields.pop("product")
    assert isinstance(key, dict) and (product is None or isinstance(product, dict))
    return GpuFacts(key=DeviceKey(**key), product=None if product is None else Product(**product), **fields)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps([asdict(gpu) for gpu in look()]) + "\n")
