"""Search, tune and inspect MXFP4 GEMM kernels: ``python run_search.py --help``."""

from __future__ import annotations

from search.cli import main

if __name__ == "__main__":
    main()
