"""A script's main guard: worker processes import the script first, and without one each would start the script anew."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType


def lacks_main_guard(frame: FrameType | None) -> bool:
    """Whether ``frame`` runs, at whatever depth, a top-level statement of the main script that no ``__name__`` guards.

    A notebook, an interactive session and text from a pipe are no script: workers do not import them.
    """
    while frame is not None and not _is_main(frame):
        frame = frame.f_back
    if frame is None:
        return False
    try:
        tree = ast.parse(Path(frame.f_code.co_filename).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return False
    return not any(_is_guard(one) and _holds(one, frame.f_lineno) for one in tree.body)


def _is_main(frame: FrameType) -> bool:
    main = sys.modules["__main__"]
    return frame.f_code.co_name == "<module>" and frame.f_globals is vars(main) and hasattr(main, "__file__")


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _holds(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)
