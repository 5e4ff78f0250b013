"""Is the machine code of a candidate right: inputs, execution, tolerance."""
