"""The mistakes in Python: where one can be made, and what the line looks like with it."""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_OPPOSITES: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_FOR_PEOPLE: Final = ("__repr__", "__str__")


Plant = Callable[[], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Site:
    """One place at which one mistake can be made."""

    operator: str
    function: str
    """Qualified name; empty outside of functions, where a line runs once, when the module is loaded."""
    statement: ast.stmt
    first: int
    last: int
    plant: Plant
    """Changes the tree, and returns what changes it back."""
    removed: bool = False


def sites(tree: ast.Module) -> Iterator[Site]:
    """In the same order for the same source, so that a place can be found again in a new tree."""
    yield from _Walk().body(tree, "body")


def line_of(statement: ast.stmt) -> str:
    """The statement as one line, without what stands indented under it."""
    bare = copy.copy(statement)
    for name in ("body", "orelse", "finalbody", "handlers"):
        if hasattr(bare, name):
            setattr(bare, name, [])
    return " ".join(ast.unparse(bare).split())


class _Walk:
    def __init__(self) -> None:
        self._names: list[str] = []
        self._inside = 0
        self._statement: ast.stmt = ast.Pass()

    def _site(self, operator: str, node: ast.AST, plant: Plant, removed: bool = False) -> Site:
        function = ".".join(self._names) if self._inside else ""
        where = self._statement if removed else node
        first = getattr(where, "lineno", self._statement.lineno)
        last = getattr(where, "end_lineno", None) or first
        return Site(operator, function, self._statement, first, last, plant, removed)

    # -- statements --------------------------------------------------------------------------------------

    def body(self, owner: ast.AST, field: str) -> Iterator[Site]:
        for index, statement in enumerate(getattr(owner, field)):
            outer, self._statement = self._statement, statement
            yield from self._in_statement(statement, getattr(owner, field), index)
            self._statement = outer

    def _in_statement(self, node: ast.stmt, siblings: list[ast.stmt], index: int) -> Iterator[Site]:
        if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom) or _is_told(node) or _is_for_types(node):
            return
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield from self._definition(node)
            return
        if _can_go(node):
            yield self._site("remove", node, _setter(siblings, index, _pass(node)), removed=True)
        if isinstance(node, ast.Break | ast.Continue):
            other = ast.Continue if isinstance(node, ast.Break) else ast.Break
            new = ast.copy_location(other(), node)
            yield self._site("loop", node, _setter(siblings, index, new))
        if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield self._site("return", node, _setter(node, "value", ast.Constant(None)))
        if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
            yield self._site("arithmetic", node, _setter(node, "op", _ARITHMETIC[type(node.op)]()))
        if isinstance(node, ast.If | ast.While):
            yield from self._condition(node, "test")
        if not isinstance(node, ast.Raise):  # what an error says is for people
            yield from self._fields(node)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Site]:
        if node.name in _FOR_PEOPLE:
            return
        if isinstance(node, ast.ClassDef):
            self._names.append(node.name)
            yield from self.body(node, "body")
        else:
            for defaults in (node.args.defaults, node.args.kw_defaults):
                for index, default in enumerate(defaults):
                    yield from self._expression(default, defaults, index)
            self._names.append(node.name)
            self._inside += 1
            yield from self.body(node, "body")
            self._inside -= 1
        self._names.pop()

    def _fields(self, node: ast.AST) -> Iterator[Site]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "format_spec"):
                continue
            if isinstance(node, ast.AnnAssign) and not self._inside and self._names and name == "value":
                continue  # the field of a dataclass
            if isinstance(value, list):
                if value and isinstance(value[0], ast.stmt):
                    yield from self.body(node, name)
                else:
                    for index, part in enumerate(value):
                        yield from self._expression(part, value, index)
            elif isinstance(value, ast.AST):
                yield from self._expression(value, node, name)

    # -- expressions -------------------------------------------------------------------------------------

    def _expression(self, node: Any, owner: Any, place: Any) -> Iterator[Site]:
        if not isinstance(node, ast.AST):
            return
        if isinstance(node, ast.ExceptHandler):
            yield from self.body(node, "body")
            return
        if isinstance(node, ast.match_case):
            yield from self.body(node, "body")
            return
        if _is_type(node) or _is_warning(node) or (isinstance(node, ast.keyword) and node.arg == "strict"):
            return
        yield from self._own(node, owner, place)
        if isinstance(node, ast.Call) and _name(node.func) in ("isinstance", "issubclass"):
            yield from self._expression(node.args[0], node.args, 0)
            return
        yield from self._fields(node)

    def _own(self, node: ast.AST, owner: Any, place: Any) -> Iterator[Site]:
        match node:
            case ast.Compare():
                for index, operator in enumerate(node.ops):
                    swapped = _COMPARISONS[type(operator)]()
                    yield self._site("compare", node, _setter(node.ops, index, swapped))
            case ast.BoolOp():
                other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                yield self._site("and/or", node, _setter(node, "op", other))
            case ast.UnaryOp(op=ast.Not()):
                yield self._site("not", node, _setter(owner, place, node.operand))
            case ast.IfExp():
                yield from self._condition(node, "test")
            case ast.comprehension():
                for index in range(len(node.ifs)):
                    yield from self._condition(node.ifs, index)
            case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node):
                yield self._site("arithmetic", node, _setter(node, "op", _ARITHMETIC[type(node.op)]()))
            case ast.Constant(value=bool()):
                yield self._site("true/false", node, _setter(node, "value", not node.value))
            case ast.Constant(value=int()):
                yield self._site("number", node, _setter(node, "value", int(str(node.value)) + 1))

    def _condition(self, owner: Any, place: Any) -> Iterator[Site]:
        test = _get(owner, place)
        # Those are turned round by their own operator.
        if isinstance(test, ast.Constant | ast.UnaryOp) or (
            isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _OPPOSITES)
        ):
            return
        turned = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
        yield self._site("condition", test, _setter(owner, place, turned))


def _setter(owner: Any, place: Any, value: Any) -> Plant:
    def plant() -> Callable[[], None]:
        old = _get(owner, place)
        _set(owner, place, value)
        return lambda: _set(owner, place, old)

    return plant


def _set(owner: Any, place: Any, value: Any) -> None:
    if isinstance(owner, list):
        owner[place] = value
    else:
        setattr(owner, place, value)


def _get(owner: Any, place: Any) -> Any:
    return owner[place] if isinstance(owner, list) else getattr(owner, place)


def _pass(node: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Pass(), node)


def _can_go(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom)
    return isinstance(node, ast.Raise | ast.AugAssign)


def _is_told(node: ast.stmt) -> bool:
    """A log line."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _root(node.value) in ("log", "_log")


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_warning(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _root(node) == "warnings"


def _is_type(node: ast.AST) -> bool:
    """`A | None` and `list[int]` say what something is, and do nothing."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id in ("dict", "list", "set", "tuple")
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and _name(node.right)[:1].isupper()


def _is_text(node: ast.BinOp) -> bool:
    text = (ast.JoinedStr, ast.Constant)
    return any(isinstance(side, text) and not isinstance(getattr(side, "value", ""), int | float)
               for side in (node.left, node.right))  # fmt: skip


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _root(call: ast.Call) -> str:
    inner: ast.AST = call.func
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return _name(inner)
