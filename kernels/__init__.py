"""Runtime of the MXFP4 GEMM kernels: formats, kernel families, tuned tables, dispatcher."""
