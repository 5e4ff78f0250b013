"""Found by ``PYTHONPATH``: gives torch its ROCm face as soon as a process imports it."""

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[2]


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as usual, and installs the face behind its import."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            sys.path.append(str(SUPPORT))
            from simulated_rocm.face import install
            from simulated_rocm.machine import machine_of

            install(machine_of(os.environ))

        spec.loader.exec_module = exec_module
        return spec


if "SIMULATED_ROCM" in os.environ:
    sys.meta_path.insert(0, _AfterTorch())
