"""A sweep in a process of its own that shares a storage: a formula judges, slowly, and each judgement is noted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from fake_evaluator import NotedEvaluator

from search.cli import app
from search.commands import sweep
from search.evaluation import Candidate
from search.results import claims

SLOWLY_S = 0.15


def told(candidate: Candidate) -> list[Any]:
    """Shape and point."""
    return [str(candidate.shape), candidate.family, candidate.config.to_dict()]


def main(log: str, lapse_s: float, words: list[str]) -> None:
    """Run a command of the program whose candidates are judged so."""
    sweep.make_evaluator = lambda *_, **__: NotedEvaluator(Path(log), SLOWLY_S, told)  # type: ignore[assignment]
    sweep.shared_claims = partial(claims.shared_claims, lapse_s=lapse_s)  # type: ignore[assignment]
    app(words, standalone_mode=False)
