"""Conditions that a user writes in a space file, parsed to a safe subset of Python and evaluated on columns.

Allowed: names, integers, quoted text in comparisons, ``+ - * // %``, comparisons (chained too), ``and``,
``or``, ``not``, ``in`` and ``not in`` a literal list, parentheses, and ``min``, ``max``, ``cdiv``,
``next_pow2``. Python runs none of it: the syntax tree becomes a tree of NumPy calls, and anything else in it is
an error.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, NoReturn

import numpy as np

from kernels.errors import InputError
from kernels.wording import instead_of

Kind = Literal["integer", "text", "condition"]
Compute = Callable[[Mapping[str, Any]], Any]
MAX_DEPTH = 40  # of nesting; far from Python's recursion limit
MAX_CHARACTERS = 500
MAX_SIZE = 1 << 62  # of a number: next_pow2 doubles one at most
ALLOWED = (
    "use only names, whole numbers, quoted text in comparisons, + - * // %, comparisons, and, or, not, "
    "in [...], min, max, cdiv, next_pow2"
)
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
}
_BOUNDS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.add, ast.Mult: operator.mul,
}  # fmt: skip  # of the size of a result, from the sizes of its operands
_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_EQUALITY: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {ast.Eq: np.equal, ast.NotEq: np.not_equal}


@dataclass(frozen=True)
class Expression:
    """A checked condition.

    Args:
        where: ``file:line``, for messages.
        names: What it reads.
        normal_text: The condition with uniform spaces, quotes and parentheses.
    """

    text: str
    where: str
    names: frozenset[str]
    normal_text: str
    _value: Compute = field(repr=False, compare=False)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Whether the condition holds: a NumPy bool, or an array [points] if a value is a column.

        Integers are computed with 64 bits, of which a sum or product may use 62. Both sides of ``and`` and ``or`` are
        always computed.

        Args:
            values: An integer, a text, or a column [points] of either, at least for each of ``names``.

        Raises:
            InputError: A divisor is 0, or a number can pass 2**62.
        """
        return self._value({name: _column(values[name]) for name in self.names})


def parse_expression(text: str, names: Mapping[str, Kind], where: str) -> Expression:
    """The condition that ``text`` states.

    Args:
        names: What it may read, with the kind of each.

    Raises:
        InputError: Not Python, outside of the allowed subset, an unknown name, or no condition.
    """
    parser = _Parser(text, names, where)
    if len(text) > MAX_CHARACTERS:
        parser.fail(f"is longer than {MAX_CHARACTERS} characters", "split it at its `and`")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "cannot be parsed"
        parser.fail(f"is not an expression ({reason})", ALLOWED)
    term = parser.term(tree)
    if term.kind != "condition":
        parser.fail("is no condition", "compare it with something, for example `... <= K`")
    return Expression(text, where, frozenset(parser.read), ast.unparse(tree), term.value)


def _column(value: Any) -> Any:
    column = np.asarray(value)
    return column.astype(np.int64) if column.dtype.kind in "iu" else column


def _largest_size(value: Any) -> int:
    """The largest magnitude in ``value``, as an integer without bounds."""
    return max(abs(int(np.max(value))), abs(int(np.min(value)))) if np.size(value) else 0


def _next_pow2(value: Any) -> Any:
    """Smallest power of two that is at least ``value`` and 1, exact on 64-bit integers."""
    bits = np.maximum(value, 1) - 1
    for shift in (1, 2, 4, 8, 16, 32):
        bits = bits | (bits >> shift)
    return bits + 1


@dataclass(frozen=True)
class _Function:
    call: Callable[..., Any]
    least: int  # number of arguments
    most: int


_FUNCTIONS: Mapping[str, _Function] = {
    "min": _Function(lambda *values: reduce(np.minimum, values), 2, 99),
    "max": _Function(lambda *values: reduce(np.maximum, values), 2, 99),
    "cdiv": _Function(lambda value, divisor: -np.floor_divide(-value, divisor), 2, 2),
    "next_pow2": _Function(_next_pow2, 1, 1),
}


@dataclass(frozen=True)
class _Term:
    """A part of the expression: what it yields, and how to compute it from the columns."""

    kind: Kind
    value: Compute


class _Parser:
    """Turns syntax nodes into terms; fails at the first node that is not allowed."""

    def __init__(self, text: str, names: Mapping[str, Kind], where: str) -> None:
        self.text = " ".join(text.split())
        self.names = names
        self.where = where
        self.read: set[str] = set()
        self.depth = 0

    def fail(self, problem: str, cure: str) -> NoReturn:
        shown = self.text if len(self.text) <= 120 else f"{self.text[:117]}..."
        raise InputError(f"{self.where}: constraint {shown!r} {problem}; {cure}")

    def forbid(self, node: ast.AST) -> NoReturn:
        what = _WORDS.get(type(node), f"`{type(node).__name__}`")
        self.fail(f"uses {what}, which is not allowed", ALLOWED)

    def term(self, node: ast.AST) -> _Term:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            self.forbid(node)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"is nested more than {MAX_DEPTH} deep", "split it into several constraints")
        term = handler(self, node)
        self.depth -= 1
        return term

    def value(self, kind: Kind, node: ast.expr) -> Compute:
        """Value of a node that must yield ``kind``."""
        term = self.term(node)
        if term.kind != kind:
            self.fail(f"has the {term.kind} `{ast.unparse(node)}` where a {kind} must be", ALLOWED)
        return term.value

    def divisor(self, node: ast.expr) -> Compute:
        value, shown = self.value("integer", node), ast.unparse(node)

        def checked(columns: Mapping[str, Any]) -> Any:
            divisor = value(columns)
            if not np.all(divisor):
                self.fail(f"divides by {shown}, which can be 0", f"write max(1, {shown})")
            return divisor

        return checked

    def constant(self, node: ast.Constant) -> _Term:
        constant = node.value
        if isinstance(constant, str):
            return _Term("text", lambda columns: constant)
        if type(constant) is not int:
            self.fail(f"uses the value {constant!r}, which is not allowed", ALLOWED)
        if abs(constant) >= 1 << 31:
            self.fail(f"holds the number {constant}", "use numbers below 2**31")
        number = np.int64(constant)
        return _Term("integer", lambda columns: number)

    def name(self, node: ast.Name) -> _Term:
        name = node.id
        if name not in self.names:
            self.fail(f"names {name!r}, which is unknown", instead_of(name, self.names))
        self.read.add(name)
        return _Term(self.names[name], lambda columns: columns[name])

    def arithmetic(self, node: ast.BinOp) -> _Term:
        compute = _ARITHMETIC.get(type(node.op))
        if compute is None:
            self.forbid(node.op)
        divides = isinstance(node.op, ast.FloorDiv | ast.Mod)
        left = self.value("integer", node.left)
        right = self.divisor(node.right) if divides else self.value("integer", node.right)
        within = compute if divides else self.within(compute, _BOUNDS[type(node.op)], ast.unparse(node))
        return _Term("integer", lambda columns: within(left(columns), right(columns)))

    def within(
        self, compute: Callable[[Any, Any], Any], bound: Callable[[int, int], int], shown: str
    ) -> Callable[[Any, Any], Any]:
        """``compute`` that fails where its result could pass 64 bits, and would silently be another number."""

        def checked(left: Any, right: Any) -> Any:
            if bound(_largest_size(left), _largest_size(right)) > MAX_SIZE:
                self.fail(f"has {shown}, which can pass 2**62", "compare smaller numbers: divide before multiplying")
            return compute(left, right)

        return checked

    def unary(self, node: ast.UnaryOp) -> _Term:
        if isinstance(node.op, ast.Not):
            condition = self.value("condition", node.operand)
            return _Term("condition", lambda columns: np.logical_not(condition(columns)))
        if not isinstance(node.op, ast.USub):
            self.forbid(node.op)
        number = self.value("integer", node.operand)
        return _Term("integer", lambda columns: np.negative(number(columns)))

    def logic(self, node: ast.BoolOp) -> _Term:
        combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        parts = [self.value("condition", part) for part in node.values]
        return _Term("condition", lambda columns: reduce(combine, [part(columns) for part in parts]))

    def comparison(self, node: ast.Compare) -> _Term:
        operands = [node.left, *node.comparators]
        links = [self.link(operands[i], op, operands[i + 1]) for i, op in enumerate(node.ops)]
        return _Term("condition", lambda columns: reduce(np.logical_and, [link(columns) for link in links]))

    def link(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Compute:
        """Value of one comparison of a chain."""
        first = self.term(left)
        if isinstance(op, ast.In | ast.NotIn):
            kind, members = self.members(right)
            self.comparable(first.kind, kind, left, right)
            negate = isinstance(op, ast.NotIn)
            return lambda columns: np.isin(first.value(columns), members, invert=negate)
        compare = _ORDER.get(type(op)) or _EQUALITY.get(type(op))
        if compare is None:
            self.forbid(op)
        second = self.term(right)
        self.comparable(first.kind, second.kind, left, right)
        if first.kind == "text" and type(op) in _ORDER:
            self.fail(f"orders the text `{ast.unparse(left)}`", "compare text with == or != or in")
        return lambda columns: compare(first.value(columns), second.value(columns))

    def comparable(self, first: Kind, second: Kind, left: ast.expr, right: ast.expr) -> None:
        if first != second or first == "condition":
            sides = f"the {first} `{ast.unparse(left)}` with the {second} `{ast.unparse(right)}`"
            self.fail(f"compares {sides}", "compare whole numbers with whole numbers, text with text")

    def members(self, node: ast.expr) -> tuple[Kind, Any]:
        """Kind and values of the literal list after ``in``."""
        try:
            values = ast.literal_eval(node) if isinstance(node, ast.List | ast.Tuple) else ()
        except ValueError:
            values = ()
        kinds = {type(value) for value in values}
        if kinds not in ({int}, {str}):
            cure = "write a literal list of whole numbers, or of quoted texts: [1, 2, 4]"
            self.fail(f"looks into `{ast.unparse(node)}`", cure)
        return ("integer" if kinds == {int} else "text"), np.asarray(values)

    def call(self, node: ast.Call) -> _Term:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
            self.fail(f"calls `{ast.unparse(node.func)}`, which is not allowed", ALLOWED)
        function = _FUNCTIONS[node.func.id]
        if node.keywords or not function.least <= len(node.args) <= function.most:
            count = f"{function.least}{' or more' if function.most > function.least else ''}"
            self.fail(f"has the call `{ast.unparse(node)}`", f"give {node.func.id} {count} unnamed arguments")
        values = [self.value("integer", argument) for argument in node.args]
        if node.func.id == "cdiv":
            values[1] = self.divisor(node.args[1])
        return _Term("integer", lambda columns: function.call(*[value(columns) for value in values]))


_HANDLERS: Mapping[type[ast.AST], Callable[[_Parser, Any], _Term]] = {
    ast.Constant: _Parser.constant,
    ast.Name: _Parser.name,
    ast.BinOp: _Parser.arithmetic,
    ast.UnaryOp: _Parser.unary,
    ast.BoolOp: _Parser.logic,
    ast.Compare: _Parser.comparison,
    ast.Call: _Parser.call,
}
_WORDS: Mapping[type[ast.AST], str] = {
    ast.Attribute: "an attribute (x.y)",
    ast.Subscript: "a subscript (x[y])",
    ast.Lambda: "a lambda",
    ast.IfExp: "a conditional (x if y else z)",
    ast.List: "a list outside of `in`",
    ast.Tuple: "a tuple outside of `in`",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment (:=)",
    ast.Div: "/ (write //)",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "& (write and)",
    ast.BitOr: "| (write or)",
    ast.BitXor: "^",
    ast.MatMult: "@",
    ast.Invert: "~ (write not)",
    ast.UAdd: "a unary +",
    ast.Is: "is (write ==)",
    ast.IsNot: "is not (write !=)",
}
