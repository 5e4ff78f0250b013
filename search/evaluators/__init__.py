"""One way to judge candidates a file."""
