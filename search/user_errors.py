"""How a program ends on a mistake of its user: one line on the standard error and exit code 2, no traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kernels.device import DeviceKey, local_device
from kernels.errors import InputError

EXIT_INPUT = 2  # a usage or input error


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an InputError into its line and the end of the program; any other error is a bug and goes on.

    Raises:
        SystemExit: With ``EXIT_INPUT``.
    """
    try:
        yield
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(EXIT_INPUT) from error


def required_gpu() -> DeviceKey:
    """Key of the current GPU, for what cannot be done without one.

    Raises:
        InputError: torch finds none.
    """
    device = local_device()
    if device is None:
        raise InputError("torch finds no GPU here; run this on a machine that has one")
    return device
