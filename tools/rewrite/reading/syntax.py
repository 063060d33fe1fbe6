"""Plain questions about pieces of syntax: what is below a node, which names a statement binds or imports.

It knows nothing of a file or its positions, and looks at no meaning beyond a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

import libcst as cst

from tools.rewrite import CannotRewrite

Statement = cst.BaseStatement | cst.SimpleStatementLine
_Node = TypeVar("_Node", bound=cst.CSTNode)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@lru_cache(maxsize=1 << 18)
def _children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    return tuple(node.children)  # libcst finds them again each time, by a visit


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and everything below it, in source order."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(_children(node)))


def find_all(node: cst.CSTNode, kind: type[_Node]) -> list[_Node]:
    return [n for n in walk(node) if isinstance(n, kind)]


def holds(node: cst.CSTNode, inner: cst.CSTNode) -> bool:
    return any(each is inner for each in walk(node))


def methods(owner: cst.ClassDef) -> list[cst.FunctionDef]:
    return [n for n in owner.body.body if isinstance(n, cst.FunctionDef)]


def statements(node: cst.FunctionDef | cst.ClassDef) -> Sequence[cst.BaseStatement]:
    """The statements of a body. Raises: CannotRewrite for one on the line of the `def` or `class`."""
    if not isinstance(node.body, cst.IndentedBlock):
        kind = "class" if isinstance(node, cst.ClassDef) else "def"
        raise CannotRewrite(f"the body of {node.name.value} is on the line of its {kind}")
    return node.body.body


def is_docstring(statement: cst.CSTNode) -> bool:
    found = simple_statements(statement, cst.Expr)
    return bool(found) and isinstance(found[0].value, (cst.SimpleString, cst.ConcatenatedString))


def after_docstring(function: cst.FunctionDef) -> cst.BaseStatement:
    """The first statement that does something; the docstring where it stands alone. Raises: as `statements`."""
    body = statements(function)
    return body[1] if is_docstring(body[0]) and len(body) > 1 else body[0]


def simple_statements(statement: cst.CSTNode, kind: type[_Node]) -> list[_Node]:
    """The small statements of one line, or after a colon, that are of a kind."""
    if not isinstance(statement, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
        return []
    return [s for s in statement.body if isinstance(s, kind)]


def find_blocks(statement: cst.CSTNode) -> list[cst.IndentedBlock]:
    """The blocks of a compound statement, `else` included, without those of statements inside them."""
    blocks: list[cst.IndentedBlock] = []
    stack = list(statement.children)
    while stack:
        node = stack.pop()
        if isinstance(node, cst.IndentedBlock):
            blocks.append(node)
        elif isinstance(node, (cst.If, cst.Else, cst.ExceptHandler, cst.Finally)):
            stack += node.children
    return blocks


def base_name(node: cst.CSTNode) -> str:
    """`x` of `x`, `x[0]`, `x.view(-1)[1:]`."""
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""


def imported_names(statement: cst.CSTNode) -> set[str]:
    """Names a top-level import binds; a star import binds names that nobody knows, so it counts for none."""
    found = set()
    for node in find_all(statement, cst.ImportAlias):
        if node.asname is not None and isinstance(node.asname.name, cst.Name):
            found.add(node.asname.name.value)
        else:
            found.add(dotted(node.name).split(".")[0])
    return found


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` of a chain of attributes; empty for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr.value}" if before else ""
    return ""


def import_table(module: cst.Module) -> dict[str, str]:
    """What each name imported at the top level stands for; a relative import begins with its dots."""
    table: dict[str, str] = {}
    for statement in module.body:
        for node in simple_statements(statement, cst.Import):
            for alias in node.names:
                head = alias.evaluated_name.split(".")[0]
                table[alias.evaluated_alias or head] = alias.evaluated_name if alias.evaluated_alias else head
        for source in simple_statements(statement, cst.ImportFrom):
            origin = "." * len(source.relative) + (f"{dotted(source.module)}." if source.module is not None else "")
            for alias in () if isinstance(source.names, cst.ImportStar) else source.names:
                table[alias.evaluated_alias or alias.evaluated_name] = f"{origin}{alias.evaluated_name}"
    return table


def parameters(function: cst.FunctionDef) -> list[cst.Param]:
    p = function.params
    stars = [s for s in (p.star_arg, p.star_kwarg) if isinstance(s, cst.Param)]
    return [*p.posonly_params, *p.params, *p.kwonly_params, *stars]


def bind(function: cst.FunctionDef, call: cst.Call) -> list[str]:
    """The parameter that each argument of a call goes to, in the order of the call. Raises: CannotRewrite."""
    parameters = [p.name.value for p in function.params.params]
    if function.params.kwonly_params or isinstance(function.params.star_arg, cst.Param) or function.params.star_kwarg:
        raise CannotRewrite(f"{function.name.value} takes more than plain parameters")
    names = []
    for position, argument in enumerate(call.args):
        if argument.star or (argument.keyword is None and position >= len(parameters)):
            raise CannotRewrite(f"the call of {function.name.value} is not understood")
        names.append(argument.keyword.value if argument.keyword is not None else parameters[position])
    if len(set(names)) != len(names) or not set(names) <= set(parameters):
        raise CannotRewrite(f"the call of {function.name.value} is not understood")
    return names


def target_names(target: cst.BaseExpression) -> list[str] | None:
    """The names an assignment binds, when it binds only names."""
    if isinstance(target, cst.Name):
        return [target.value]
    if isinstance(target, (cst.Tuple, cst.List)) and all(isinstance(e.value, cst.Name) for e in target.elements):
        if any(isinstance(e, cst.StarredElement) for e in target.elements):
            return None
        return [cst.ensure_type(e.value, cst.Name).value for e in target.elements]
    return None


def assigned(statement: cst.CSTNode) -> tuple[list[str], cst.BaseExpression] | None:
    """(names, value) of a line that is one plain assignment to names."""
    match statement:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=target)], value=value)]):
            names = target_names(target)
            return (names, value) if names else None
        case cst.SimpleStatementLine(
            body=[cst.AnnAssign(target=cst.Name(value=name), value=cst.BaseExpression() as value)]
        ):
            return [name], value
    return None


def index_values(node: cst.Subscript) -> list[cst.BaseExpression]:
    values: list[cst.BaseExpression] = []
    for element in node.slice:
        if isinstance(element.slice, cst.Index):
            values.append(element.slice.value)
        elif isinstance(element.slice, cst.Slice):
            values += [v for v in (element.slice.lower, element.slice.upper, element.slice.step) if v is not None]
    return values


def names_in(node: cst.CSTNode) -> set[str]:
    """Every identifier below, attribute names included: more than is read, never less."""
    return {n.value for n in find_all(node, cst.Name)}


class FreshNames:
    """Names that are not taken, each given once."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def __call__(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
