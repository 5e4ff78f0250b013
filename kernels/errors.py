"""Errors of the project. A :class:`KernelError` carries the ``outcome`` word that the results store."""

from __future__ import annotations


class InputError(ValueError):
    """The user's input is wrong; the message is one line: what, where, how to cure it."""


def before_cure(error: Exception) -> str:
    """The error's text as it can stand after a colon: a semicolon before the cure."""
    return str(error).replace(": ", "; ", 1)


class KernelError(Exception):
    """A configuration did not yield a valid result; the search records ``outcome`` and goes on."""

    outcome = "crashed"


class IllegalConfigError(KernelError):
    """The configuration cannot run this shape on this device; nothing was compiled or launched."""

    outcome = "illegal"


class UnavailableError(KernelError):
    """What the configuration needs besides the device is not on this machine: a compiler, a library, its files."""

    outcome = "illegal"


class CompileError(KernelError):
    """The compiler rejected the configuration."""

    outcome = "compile_error"


class ResourceLimitError(KernelError):
    """The compiled kernel spills, needs more LDS than a CU has, or lost its scaled MFMA."""

    outcome = "resource_limit"


class WrongResultError(KernelError):
    """The kernel ran and its output differs from the reference."""

    outcome = "wrong_result"


class TimedOutError(KernelError):
    """The compilation or the run exceeded its time limit."""

    outcome = "timed_out"
