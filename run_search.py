"""Search, tune and inspect MXFP4 GEMM kernels: ``python run_search.py --help``."""

from __future__ import annotations

import os

if __name__ == "__main__":
    # Before NumPy is imported: the model of a search takes many small steps, in which threads of the BLAS would only
    # wait for each other, and for the cores that compilers keep busy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from search.cli import main

    main()
