"""A ROCm that tests and the rehearsal run against, on a machine without a GPU.

torch's face (:mod:`simulated_rocm.face`), the HIP runtime (``amdhip64.c``), and behind both a GPU whose launches
execute on the project's simulator (:mod:`simulated_rocm.device`). A process gets it by ``PYTHONPATH``, on which it
finds ``site/sitecustomize.py``, and by a machine in ``SIMULATED_ROCM``.
"""
