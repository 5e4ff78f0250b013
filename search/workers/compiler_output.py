"""What a compiler says: its error stream, kept from the user's terminal, and the line in it that matters."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

REASON_LENGTH = 300  # characters kept of a compiler's message
DIAGNOSTICS = (  # what MLIR says of the pipeline as a whole comes last
    r"error: (?!Failures have been detected)(.*)",
    r"(LLVM ERROR: .*)",
    r"(Assertion .* failed.*)",
    r"(fatal error: .*)",
    r"error: (.*)",
)


@contextmanager
def captured_stderr(log: Path | None = None) -> Iterator[BinaryIO]:
    """File that receives the error stream; MLIR and LLVM write below Python's ``sys.stderr``.

    Args:
        log: Where to keep it; it outlives a compiler that aborts the process.
    """
    with open(log, "w+b") if log else tempfile.TemporaryFile() as stream:
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            os.dup2(stream.fileno(), 2)
            yield stream
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def written(stream: BinaryIO) -> str:
    """What :func:`captured_stderr` has received so far."""
    sys.stderr.flush()
    stream.seek(0)
    return stream.read().decode(errors="replace")


def diagnostic_line(text: str) -> str:
    """First line of a compiler's output that says what went wrong, without its location, or ""."""
    for pattern in DIAGNOSTICS:
        found = re.search(pattern, text)
        if found:
            return found.group(1).strip()[:REASON_LENGTH]
    return ""


def reason(error: BaseException, said: str) -> str:
    """One line: what matters of the compiler's output, else the innermost message, without its quoted source."""
    return diagnostic_line(said) or innermost(error)


def innermost(error: BaseException) -> str:
    """Last line of the innermost message: a front-end error quotes the source first."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:REASON_LENGTH]
