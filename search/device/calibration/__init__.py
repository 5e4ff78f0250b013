"""Constants of the timing model measured on the machine itself, with small kernels that compute a checkable result."""
