"""torch's ROCm face over a CPU build of torch: properties, visible devices, tensors, streams, events, graphs.

Tensors of the GPU are host tensors with a mark. A mode of torch's function protocol turns ``device="cuda"`` into a
mark, hands marks on from operands to results, and refuses what real devices refuse: mixed operands, NumPy views.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from simulated_rocm.device import LaunchSpec, SimulatedDevice
from simulated_rocm.hip import Library, map_library
from simulated_rocm.machine import GpuSpec, MachineSpec, visible
from simulated_rocm.memory import MARK, is_marked

CALLS = "SIMULATED_ROCM_CALLS"  # environment variable: folder in which processes note what of torch.cuda they call
GPU = torch.device("cuda", 0)
MIXES = frozenset({"copy_", "__getitem__", "__setitem__", "to", "index_put_", "set_"})  # operands of two devices
LEAVES = frozenset({"cpu", "item", "tolist", "__repr__", "numpy"})


class Face:
    """One process's view of the machine.

    Args:
        spec: The machine.
    """

    def __init__(self, spec: MachineSpec) -> None:
        self.spec = spec
        self._started = False
        self._device: SimulatedDevice | None = None
        self._library: Library | None = None

    @property
    def gpus(self) -> tuple[GpuSpec, ...]:
        """Those that the process sees; decided by the environment at its first use of the runtime, as HIP does."""
        return tuple(self.spec.gpus[index] for index in visible(len(self.spec.gpus), os.environ))

    def start(self) -> SimulatedDevice:
        """Initialise the runtime.

        Raises:
            RuntimeError: No GPU is visible.
        """
        if self._device is None:
            gpus = self.gpus
            if not gpus:
                raise RuntimeError("No HIP GPUs are available")
            self._device = SimulatedDevice(self.spec, gpus)
            self._library = Library(self.spec, gpus, self._device)
        return self._device

    @property
    def device(self) -> SimulatedDevice:
        """The started GPU."""
        return self.start()

    @property
    def started(self) -> bool:
        """Whether this process has used the runtime."""
        return self._device is not None


class Event:
    """A point of the device's clock."""

    def __init__(self, face: Face, enable_timing: bool = False, **rest: object) -> None:
        self._face, self._timing = face, enable_timing
        self._at_us: float | None = None

    def record(self, stream: object = None) -> None:
        """Note the clock."""
        self._at_us = self._face.device.clock_us

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds to ``end``."""
        if self._at_us is None or end._at_us is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end._at_us - self._at_us) / 1e3

    def synchronize(self) -> None:
        """All has run already."""


class Stream:
    """A queue; everything runs at once."""

    def __init__(self, device: object = None, priority: int = 0, **rest: object) -> None:
        self.cuda_stream = 0x10 - priority
        self.device = GPU

    def synchronize(self) -> None:
        """All has run already."""

    def wait_stream(self, other: object) -> None:
        """All has run already."""


class Graph:
    """Captured launches."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._nodes: tuple[LaunchSpec, ...] = ()
        self._pool: tuple[torch.Tensor, ...] = ()  # what was allocated meanwhile: torch keeps it as long as the graph

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """Note launches from now on."""
        if self._face.device.capture is not None:
            raise RuntimeError("HIP error: operation not permitted when stream is capturing")
        self._face.device.capture = []

    def capture_end(self) -> None:
        """Keep what was launched."""
        self._nodes = tuple(self._face.device.capture or ())
        self._pool = tuple(self._face.device.pool)
        self._face.device.pool.clear()
        self._face.device.capture = None

    def replay(self) -> None:
        """Run it."""
        self._face.device.replay(self._nodes)


class Mode(TorchFunctionMode):
    """Marks tensors of the GPU."""

    def __init__(self, face: Face) -> None:
        super().__init__()
        self._face = face
        getter = torch.Tensor
        self._answers: Mapping[object, Callable[[Any], Any]] = {
            getter.device.__get__: lambda tensor: GPU, getter.is_cuda.__get__: lambda tensor: True,
            getter.get_device: lambda tensor: 0, getter.record_stream: lambda tensor, stream: None,
        }  # fmt: skip

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` on the host."""
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        first = args[0] if args else None
        if is_marked(first) and func in self._answers:
            return self._answers[func](*args)
        name = getattr(func, "__name__", "")
        devices: list[str] = []
        args = tuple(_on_host(value, devices) for value in args)
        kwargs = {key: _on_host(value, devices) for key, value in kwargs.items()}
        operands = list(_tensors((args, kwargs)))
        marked = any(map(is_marked, operands))
        _refuse(name, operands, marked)
        if marked:
            self._face.device.memory.epoch += 1
        result = func(*args, **kwargs)
        if name in LEAVES or ("cpu" in devices and name == "to"):
            return _left(result, marked)
        if "cuda" in devices or (marked and "cpu" not in devices):
            return _marked(result, self._face, operands, moved="cuda" in devices)
        return result


def _on_host(value: Any, devices: list[str]) -> Any:
    """``value`` with the host in place of a device, whose kind is noted."""
    if isinstance(value, torch.device) or (isinstance(value, str) and value.partition(":")[0] in ("cuda", "cpu")):
        kind = torch.device(value).type
        if kind in ("cuda", "cpu"):
            devices.append(kind)
            return torch.device("cpu")
    return value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _refuse(name: str, operands: list[torch.Tensor], marked: bool) -> None:
    if name == "numpy" and marked:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
    if marked and name not in MIXES and any(t.dim() and not is_marked(t) for t in operands):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        )


def _left(result: Any, marked: bool) -> Any:
    if not marked or not isinstance(result, torch.Tensor):
        return result
    copy = result.clone()
    vars(copy).pop(MARK, None)
    return copy


def _marked(result: Any, face: Face, operands: list[torch.Tensor], *, moved: bool) -> Any:
    if isinstance(result, torch.Tensor):
        if moved and not is_marked(result) and any(result is operand for operand in operands):
            result = result.clone()
        if face.device.capture is not None and not is_marked(result):
            face.device.pool.append(result)
        return face.device.memory.mark(result)
    if isinstance(result, (tuple, list)):
        return type(result)([_marked(part, face, operands, moved=moved) for part in result])
    return result


def install(spec: MachineSpec) -> Face:
    """Give this process the face; once."""
    face = Face(spec)
    map_library(spec)  # as torch does with its import: Triton takes the copy that is mapped
    torch.version.hip = spec.hip
    torch.version.cuda = None
    _install_cuda(face)
    _install_generator(face)
    Mode(face).__enter__()
    _enter_in_threads(face)
    return face


def _enter_in_threads(face: Face) -> None:
    """A mode of torch is one thread's: have each that starts enter it, as what it allocates is the GPU's too."""
    run = threading.Thread.run

    def entered(thread: threading.Thread) -> None:
        with Mode(face):
            run(thread)

    threading.Thread.run = entered  # type: ignore[method-assign]


def _install_generator(face: Face) -> None:
    base = torch.Generator

    class Generator(base):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            self = super().__new__(cls, "cpu")
            self._kind = torch.device(device)
            return self

        def __init__(self, device: Any = "cpu") -> None: ...

        @property
        def device(self) -> torch.device:
            return GPU if self._kind.type == "cuda" else self._kind

        def manual_seed(self, seed: int) -> Any:
            super().manual_seed(seed)
            return self

    torch.Generator = Generator


def _install_cuda(face: Face) -> None:
    cuda = torch.cuda
    counted = face.spec.count_before_start

    def device_count() -> int:
        return len(face.gpus) if counted is None or face.started else counted

    def current_device() -> int:
        face.start()
        return 0

    def get_device_properties(device: Any = None) -> SimpleNamespace:
        face.start()
        return _properties(face.gpus[_index(device)])

    @contextmanager
    def graph(
        captured: Graph, pool: object = None, stream: object = None, capture_error_mode: str = "global"
    ) -> Iterator[None]:
        captured.capture_begin(capture_error_mode=capture_error_mode)
        try:
            yield
        finally:
            captured.capture_end()

    @contextmanager
    def entered(*values: object) -> Iterator[None]:
        yield

    def no_telemetry(device: object = None) -> int:
        raise ModuleNotFoundError("amdsmi does not seem to be installed or it can't be imported.")

    names: Mapping[str, object] = {
        "is_available": lambda: bool(face.gpus), "device_count": device_count, "current_device": current_device,
        "set_device": lambda device: face.start(), "get_device_properties": get_device_properties,
        "get_device_name": lambda device=None: get_device_properties(device).name,
        "get_device_capability": lambda device=None: (9, 5), "synchronize": lambda device=None: face.start() and None,
        "init": lambda: face.start() and None, "is_initialized": lambda: face.started,
        "Event": lambda enable_timing=False, **rest: Event(face, enable_timing, **rest), "Stream": Stream,
        "CUDAGraph": lambda *args: Graph(face), "graph": graph, "stream": entered, "device": entered,
        "current_stream": lambda device=None: Stream(), "default_stream": lambda device=None: Stream(),
        "is_current_stream_capturing": lambda: face.started and face.device.capture is not None,
        "mem_get_info": lambda device=None: (280 << 30, 288 << 30), "empty_cache": lambda: None,
        "clock_rate": no_telemetry, "temperature": no_telemetry, "power_draw": no_telemetry,
        "memory_allocated": lambda device=None: 0, "max_memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
    }  # fmt: skip
    for name, value in names.items():
        setattr(cuda, name, _noted(name, value))


def _noted(name: str, value: Any) -> Any:
    """``value``, which notes its first call in this process where the rehearsal collects them."""
    folder = os.environ.get(CALLS)
    if folder is None or not callable(value):
        return value
    noted: set[str] = set()

    def called(*args: Any, **kwargs: Any) -> Any:
        if not noted:
            noted.add(name)
            with (Path(folder) / str(os.getpid())).open("a") as file:
                file.write(f"{name}\n")
        return value(*args, **kwargs)

    return called


def _index(device: Any) -> int:
    if device is None:
        return 0
    return device if isinstance(device, int) else torch.device(device).index or 0


def _properties(gpu: GpuSpec) -> SimpleNamespace:
    """The fields of torch's structure that ROCm builds fill."""
    return SimpleNamespace(
        name=gpu.name, gcnArchName=gpu.architecture, multi_processor_count=gpu.compute_units, major=9, minor=5,
        L2_cache_size=4 << 20, total_memory=288 << 30, warp_size=64, clock_rate=2_400_000,
        pci_bus_id=gpu.pci_bus, pci_device_id=0, pci_domain_id=0, uuid=f"{gpu.pci_bus:032x}",
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536, shared_memory_per_block=64 << 10,
    )  # fmt: skip
