"""ROCm without Triton: compilers, code objects, loading and launching them."""
