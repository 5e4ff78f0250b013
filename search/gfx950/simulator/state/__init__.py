"""What instructions read and write: registers, LDS, memory, findings."""
