"""Single changes of a source file that its tests should notice, found in its syntax tree.

Text for people (docstrings, log calls, messages of errors, f-strings, strings of three words), types, names of encodings and
asserts are left alone.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
LOGS = ("log", "logging", "warnings")
TYPES = ("int", "str", "bytes", "float", "bool", "list", "dict", "tuple", "set", "memoryview", "bytearray", "None")

Change = tuple[ast.expr | ast.stmt, str, str, str]
"""What is replaced, the function it is in, the kind of change, and the new text."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the text between two places is replaced."""

    file: str
    """Below src/rocketline."""
    function: str
    """Its qualified name; empty for what runs on import."""
    line: int
    start: int
    """In bytes, from the beginning of the file."""
    end: int
    kind: str
    before: str
    after: str
    same: int
    """How many equal changes stand above it in the same function."""

    @property
    def key(self) -> str:
        """Stays the same while the lines around it change."""
        return f"{self.file}|{self.function}|{self.kind}|{self.before}|{self.after}|{self.same}"

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.file}:{self.line} {self.function or 'on import'}: {self.kind}, `{before}` -> `{after}`"

    def planted(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for node, function, kind, after in _changes(ast.parse(source), "", False):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before = source[start:end].decode()
        same = seen[function, kind, before, after]
        seen[function, kind, before, after] += 1
        found.append(Mutant(file, function, node.lineno, start, end, kind, before, after, same))
    return found


def _changes(node: ast.AST, name: str, inside: bool) -> Iterator[Change]:
    """The changes of a node and of all below it; `name` is that of the class or function around it."""
    if isinstance(node, ast.stmt | ast.expr):
        for kind, after in _own_changes(node):
            yield node, name if inside else "", kind, after
    for child in _children(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            joint = ".<locals>." if inside else "." if name else ""
            is_function = not isinstance(child, ast.ClassDef)
            yield from _changes(child, f"{name}{joint}{child.name}", inside or is_function)
        elif isinstance(child, ast.If | ast.While | ast.IfExp) and isinstance(
            child.test, ast.Name | ast.Attribute | ast.Call
        ):
            if ast.unparse(child.test) != "TYPE_CHECKING":
                yield child.test, name if inside else "", "condition", f"(not {ast.unparse(child.test)})"
                yield from _changes(child, name, inside)
        else:
            yield from _changes(child, name, inside)


def _children(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Raise() | ast.Delete() | ast.Expr(value=ast.Constant()):
            return []
        case ast.Call(func=ast.Attribute(value=ast.Name(id=called))) if called in LOGS:
            return []
        case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "NewType")):
            return []
        case ast.Call(func=ast.Attribute(attr="encode" | "decode") as called):
            return [called, *(argument for argument in node.args if not isinstance(argument, ast.Constant))]
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return []
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            defaults = [default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None]
            return [*defaults, *node.body]
        case ast.ClassDef():
            return [*node.body]
        case ast.AnnAssign() | ast.AugAssign():
            return [node.value] if node.value is not None else []
    return list(ast.iter_child_nodes(node))


def _own_changes(node: ast.stmt | ast.expr) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]) | ast.AugAssign() | ast.Delete():
            yield "statement removed", "pass"
        case ast.Expr(value=ast.Call() | ast.Await() as value) if not isinstance(value, ast.Call) or _children(value):
            yield "call removed", "pass"
        case ast.Raise():
            yield "raise removed", "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return value", "return None"
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for at, operator in enumerate(ops):
                changed = [*ops[:at], COMPARISONS[type(operator)](), *ops[at + 1 :]]
                yield "comparison", f"({ast.unparse(ast.Compare(left, changed, comparators))})"
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and, or", f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not removed", f"({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC and not _is_type(node):
            yield "arithmetic", f"({ast.unparse(ast.BinOp(left, ARITHMETIC[type(sign)](), right))})"
        case ast.Constant(value=bool(value)):
            yield "constant", str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", repr(value + 1)
        case ast.Constant(value=str(value)) if value and len(value.split()) < 3:
            yield "constant", repr(value + "~")
        case ast.Constant(value=bytes(value)) if value and len(value.split()) < 3:
            yield "constant", repr(value + b"~")


def _is_type(node: ast.BinOp) -> bool:
    """Whether it is `A | B` of types."""
    last = ast.unparse(node.right).rpartition(".")[2].partition("[")[0]
    return isinstance(node.op, ast.BitOr) and (last in TYPES or (last[:1].isupper() and not last.isupper()))
