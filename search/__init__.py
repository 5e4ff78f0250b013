"""The search: spaces, studies, evaluators, results, reports and file formats. ``search.tune`` is its door in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from search.commands.tune import tune

__all__ = ["tune"]


def __getattr__(name: str) -> Any:
    """``tune``, loaded when it is asked for: torch, Triton and Optuna take seconds."""
    if name == "tune":
        from search.commands.tune import tune

        return tune
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
