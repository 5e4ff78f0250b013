"""Search, tune and inspect MXFP4 GEMM kernels: ``python run_search.py --help``."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Before NumPy is imported: the model of a search takes many small steps, in which threads of the BLAS would only
    # wait for each other, and for the cores that compilers keep busy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    try:
        from search.cli import main
    except KeyboardInterrupt:  # what is imported here says it of all that follows
        print("interrupted", file=sys.stderr)
        sys.exit(130)

    main()
