"""Parts of the results: winners, queries, columns; and JSON where a script wants it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from tokenize import TokenError
from typing import NoReturn

import pandas as pd

from kernels.errors import InputError
from kernels.wording import instead_of
from search.report.closing import CONFIGURATION, with_configuration
from search.results.columns import ALL_LISTED
from search.results.winners import winners


@dataclass(frozen=True)
class View:
    """Which rows and columns of the results to show.

    Args:
        query: Expression that is true for the rows to keep, see ``search.report.view``.
        sort: Column to sort by; a leading ``-`` sorts downwards.
        columns: Columns to keep, in order, each once.
    """

    query: str | None = None
    best: bool = False
    sort: str | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None


def select(frame: pd.DataFrame, view: View) -> pd.DataFrame:
    """The part of the results that ``view`` describes.

    Raises:
        InputError: An expression that is not allowed, an unknown column, a negative limit.
    """
    if _mentions_configuration(view):
        frame = with_configuration(frame)
    if view.best:
        frame = frame.loc[[winner.row for winner in winners(frame)]]
    if view.query is not None:
        frame = matching_rows(frame, view.query)
    if view.sort is not None:
        name = view.sort.removeprefix("-")
        _require(frame, [name])
        frame = frame.sort_values(name, ascending=not view.sort.startswith("-"), kind="stable")
    if view.limit is not None and view.limit < 0:
        raise InputError(f"--limit {view.limit} is negative; give a number of rows")
    frame = frame.head(view.limit) if view.limit is not None else frame
    if view.columns is not None:
        _require(frame, view.columns)
        frame = frame[list(dict.fromkeys(view.columns))]
    else:
        frame = frame.drop(columns=CONFIGURATION, errors="ignore")
    return frame.reset_index(drop=True)


def _mentions_configuration(view: View) -> bool:
    return any(CONFIGURATION in part for part in (view.query or "", view.sort or "", view.columns or ()))


def column_names(frame: pd.DataFrame) -> list[str]:
    """All that can be chosen, of the results and of what is made of them."""
    return list(dict.fromkeys([*map(str, frame), CONFIGURATION]))


def _require(frame: pd.DataFrame, names: Collection[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise InputError(f"unknown column {name!r}; {instead_of(name, column_names(frame), ALL_LISTED)}")


def to_json(frame: pd.DataFrame) -> str:
    """One JSON object a row; what is unknown is left out."""
    rows = frame.astype(object).to_dict("records")
    known = [{name: value for name, value in row.items() if not pd.isna(value)} for row in rows]
    return json.dumps(known, indent=1, default=lambda value: value.item())


MAX_CHARACTERS = 2000
METHODS: tuple[str, ...] = ("isna", "notna", "isin", "between", "abs")  # of a column
TEXT_METHODS = ("contains", "startswith", "endswith", "match", "fullmatch", "lower", "upper", "len")  # of its .str
KEYWORDS = ("case", "na", "regex", "inclusive")  # of those methods
EXAMPLE = "write a comparison of columns like \"family == 'fused' and predicted_us < 9\""
PANDAS_ERRORS = (  # what pandas raises for an expression that it cannot parse or evaluate
    SyntaxError, TokenError, ValueError, TypeError, KeyError, AttributeError, NameError, NotImplementedError,
    ArithmeticError, RecursionError, re.error,
)  # fmt: skip
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)


def matching_rows(frame: pd.DataFrame, expression: str) -> pd.DataFrame:
    """The rows of ``frame`` for which ``expression`` is true; where it is unknown, it is not.

    Raises:
        InputError: An expression that cannot be parsed or evaluated, that is no condition, that names an unknown
            column, or that holds anything besides what the module lists.
    """
    checker = _Checker(" ".join(expression.split()), tuple(map(str, frame.columns)))
    checker.check()
    try:
        chosen = frame.eval(checker.text, engine="python")
    except PANDAS_ERRORS as error:
        checker.fail(str(error).splitlines()[0] if str(error) else type(error).__name__, EXAMPLE)
    if not isinstance(chosen, pd.Series) or not pd.api.types.is_bool_dtype(chosen.dtype):
        checker.fail("says of no row whether it is wanted", EXAMPLE)
    return frame[chosen.fillna(False)]


@dataclass(frozen=True)
class _Checker:
    """Refuses the first part of the expression that is not allowed."""

    text: str
    columns: Collection[str]

    def fail(self, problem: str, cure: str) -> NoReturn:
        shown = self.text if len(self.text) <= 120 else f"{self.text[:117]}..."
        raise InputError(f"--query {shown!r}: {problem}; {cure}")

    def check(self) -> None:
        """Check the whole expression."""
        if len(self.text) > MAX_CHARACTERS:
            self.fail(f"is longer than {MAX_CHARACTERS} characters", EXAMPLE)
        try:
            tree = ast.parse(self.text, mode="eval")
            self.node(tree.body)
        except SyntaxError as error:
            self.fail(error.msg, EXAMPLE)
        except (ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, InputError):
                raise
            self.fail("cannot be parsed", EXAMPLE)

    def node(self, node: ast.expr) -> None:
        """Check one node and all below it."""
        match node:
            case ast.Name():
                if node.id not in self.columns:
                    self.fail(f"unknown column {node.id!r}", instead_of(node.id, self.columns, ALL_LISTED))
            case ast.Constant(value=int() | float() | str()):
                pass
            case ast.UnaryOp():
                self.node(node.operand)
            case ast.BoolOp():
                self.nodes(node.values)
            case ast.BinOp() if isinstance(node.op, _OPERATORS) and not (_is_text(node.left) or _is_text(node.right)):
                self.nodes([node.left, node.right])
            case ast.Compare() if all(isinstance(operator, _COMPARISONS) for operator in node.ops):
                self.nodes([node.left, *filter(_is_no_list, node.comparators)])
            case ast.Call(func=ast.Attribute() as method):
                self.call(node, method)
            case _:
                self.forbid(node)

    def nodes(self, nodes: Iterable[ast.expr]) -> None:
        for node in nodes:
            self.node(node)

    def forbid(self, node: ast.AST) -> NoReturn:
        shown = f"`{ast.unparse(node)}`" if isinstance(node, ast.expr) else type(node).__name__
        self.fail(f"{shown} is not allowed", f"use columns, comparisons, and, or, not, {', '.join(METHODS)} and .str")

    def call(self, node: ast.Call, method: ast.Attribute) -> None:
        column, known = method.value, METHODS
        if isinstance(column, ast.Attribute) and column.attr == "str":
            column, known = column.value, TEXT_METHODS
        if method.attr not in known:
            self.fail(f"method {method.attr!r} is not allowed", instead_of(method.attr, known))
        self.nodes([column, *filter(_is_no_list, node.args)])
        for keyword in node.keywords:
            if keyword.arg not in KEYWORDS or not isinstance(keyword.value, ast.Constant):
                self.forbid(node)


def _is_text(node: ast.expr) -> bool:
    """Whether it is a text, which times a large number would fill the memory."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_no_list(node: ast.expr) -> bool:
    """Whether it is no list of constants, which may stand where a column is compared or a method called."""
    return not (isinstance(node, ast.List | ast.Tuple) and all(isinstance(one, ast.Constant) for one in node.elts))
