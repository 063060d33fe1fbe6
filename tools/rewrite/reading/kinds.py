"""What an expression's value depends on: plain values and shapes only, tensors built from those, or data.

    PLAIN   numbers, dtypes, devices, shapes, strings: what a cache key may be made of
    BUILT   a tensor made from PLAIN values alone, by operations known to be pure
    DATA    everything else, and whatever is not understood

It refuses to guess: an operation that is not listed makes DATA, and so does anything random or uninitialised.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import libcst as cst

from tools.rewrite import CannotRewrite
from tools.rewrite.reading.escapes import touched
from tools.rewrite.reading.pure_operations import (
    CONSTANTS,
    FACTORIES,
    FINFO,
    PLAIN_FUNCTIONS,
    PURE,
    PURE_IN_PLACE,
    TENSOR_FACTS,
)
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import (
    assigned,
    bind,
    dotted,
    find_all,
    find_blocks,
    index_values,
    parameters,
    statements,
    target_names,
    walk,
)


class Kind(enum.Enum):
    PLAIN = 1
    BUILT = 2
    DATA = 3


Env = Mapping[str, Kind]

_IMPURE_KEYWORDS = frozenset(["out", "generator", "requires_grad", "pin_memory"])


class Kinds:
    """Kinds of expressions in one file. `plain_attributes` are the attributes of `self` seen to hold plain values."""

    def __init__(self, source: SourceFile, plain_attributes: Sequence[str] = ()) -> None:
        self.source = source
        self.plain_attributes = frozenset(plain_attributes)
        self._visiting: set[str] = set()

    # -- expressions

    def of(self, node: cst.BaseExpression, env: Env) -> Kind:
        if isinstance(node, (cst.Integer, cst.Float, cst.SimpleString, cst.Ellipsis)):
            return Kind.PLAIN
        if isinstance(node, cst.Name):
            return self._name(node.value, env)
        if isinstance(node, cst.Attribute):
            return self._attribute(node, env)
        if isinstance(node, cst.Call):
            return self._call(node, env)
        if isinstance(node, cst.Subscript):
            return self._join([self.of(node.value, env), *self._indices(node, env)])
        if isinstance(node, (cst.Tuple, cst.List)):
            if any(isinstance(e, cst.StarredElement) for e in node.elements):
                return Kind.DATA
            return self._join([self.of(e.value, env) for e in node.elements])
        if isinstance(node, (cst.BinaryOperation, cst.BooleanOperation)):
            return self._join([self.of(node.left, env), self.of(node.right, env)])
        if isinstance(node, cst.UnaryOperation):
            return self.of(node.expression, env)
        if isinstance(node, cst.Comparison):
            return self._join([self.of(node.left, env), *(self.of(c.comparator, env) for c in node.comparisons)])
        if isinstance(node, cst.IfExp):
            if self.of(node.test, env) is not Kind.PLAIN:
                return Kind.DATA
            return self._join([self.of(node.body, env), self.of(node.orelse, env)])
        return Kind.DATA

    def is_leaf(self, node: cst.CSTNode, env: Env) -> bool:
        """Whether this PLAIN expression comes from outside and so belongs into the key: a name, `x.dtype`, `self.a`."""
        if isinstance(node, cst.Name):
            return node.value in env
        if isinstance(node, cst.Attribute):
            name = dotted(node)
            if name.startswith("self."):
                return self.of(node, env) is Kind.PLAIN
            base = name.split(".")[0]
            return node.attr.value in TENSOR_FACTS and base in env and env[base] is Kind.DATA
        if isinstance(node, cst.Subscript):
            return self.is_leaf(node.value, env) and not isinstance(node.value, cst.Name) and self._is_literal(node)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            base = dotted(node.func.value)
            return node.func.attr.value in ("size", "dim") and self._is_data(base, env)
        return False

    def _is_literal(self, node: cst.Subscript) -> bool:
        return not any(find_all(value, cst.Name) for value in index_values(node))

    def _is_data(self, name: str, env: Env) -> bool:
        base = name.split(".")[0]
        return bool(name) and (base == "self" or env.get(base) is Kind.DATA)

    def _join(self, kinds: Sequence[Kind]) -> Kind:
        return max(kinds, key=lambda k: k.value, default=Kind.PLAIN)

    def _name(self, name: str, env: Env) -> Kind:
        if name in env:
            return env[name]
        if name in ("True", "False", "None"):
            return Kind.PLAIN
        value = self.source.top_level_value(name)
        if value is not None and self.of(value, {}) is Kind.PLAIN:
            return Kind.PLAIN
        return Kind.DATA

    def _attribute(self, node: cst.Attribute, env: Env) -> Kind:
        name = dotted(node)
        head, _, rest = name.partition(".")
        if head == "self" and head in env:
            if rest in self.plain_attributes or (node.attr.value in TENSOR_FACTS and rest.count(".") == 1):
                return Kind.PLAIN
            return Kind.DATA
        if head not in env and self.source.qualified(node) in CONSTANTS:
            return Kind.PLAIN
        inner = self.of(node.value, env)
        if node.attr.value in TENSOR_FACTS:
            # the shape of whatever this is; the cache looks at the types of its keys, so a wrong guess costs nothing
            is_tensor = inner is Kind.BUILT or (inner is Kind.DATA and dotted(node.value) in env)
            return Kind.PLAIN if is_tensor else Kind.DATA
        if node.attr.value in FINFO and _is_finfo(node.value):
            return inner
        return inner if inner is Kind.BUILT and node.attr.value in ("T", "mT") else Kind.DATA

    def _indices(self, node: cst.Subscript, env: Env) -> list[Kind]:
        return [self.of(value, env) for value in index_values(node)]

    def _call(self, node: cst.Call, env: Env) -> Kind:
        if any(a.star or (a.keyword is not None and a.keyword.value in _IMPURE_KEYWORDS) for a in node.args):
            return Kind.DATA
        kinds = [self.of(argument.value, env) for argument in node.args]
        joined = self._join(kinds)
        name = dotted(node.func)
        if not name or name.split(".")[0] in env:
            return self._method(node, env, joined)
        qualified = self.source.qualified(node.func)
        if qualified.startswith("math."):
            return joined if joined is Kind.PLAIN else Kind.DATA
        if qualified.startswith("torch."):
            return self._torch(qualified.removeprefix("torch.").removeprefix("nn.functional."), joined, kinds)
        if name in PLAIN_FUNCTIONS and name not in self.source.imports:
            return joined if joined is Kind.PLAIN else Kind.DATA
        return self._function(node, name, joined, kinds) if "." not in name else Kind.DATA

    def _torch(self, name: str, joined: Kind, kinds: Sequence[Kind]) -> Kind:
        if joined is Kind.DATA:
            return Kind.DATA
        if name in ("finfo", "iinfo", "device", "Size"):
            return joined if joined is Kind.PLAIN else Kind.DATA
        if name in FACTORIES:
            return Kind.BUILT
        return Kind.BUILT if name in PURE and Kind.BUILT in kinds else Kind.DATA

    def _method(self, node: cst.Call, env: Env, joined: Kind) -> Kind:
        if not isinstance(node.func, cst.Attribute):
            return Kind.DATA
        method, receiver = node.func.attr.value, self.of(node.func.value, env)
        if method in ("size", "dim") and joined is Kind.PLAIN:
            return Kind.PLAIN if receiver is Kind.BUILT or self._is_data(dotted(node.func.value), env) else Kind.DATA
        if receiver is not Kind.BUILT or joined is Kind.DATA:
            return Kind.DATA
        if method in PURE or (method in PURE_IN_PLACE and not isinstance(node.func.value, cst.Name)):
            return Kind.BUILT
        return Kind.DATA

    def environment(self, function: cst.FunctionDef, until: cst.CSTNode) -> dict[str, Kind]:
        """Kinds of the local names just before a statement of the function."""
        env = {p.name.value: Kind.DATA for p in parameters(function)}
        self._walk(statements(function), until, env, set())
        return env

    def _walk(self, body: Sequence[cst.CSTNode], until: cst.CSTNode, env: dict[str, Kind], mutable: set[str]) -> bool:
        for statement in body:
            if statement is until:
                return True
            if any(node is until for node in walk(statement)):
                return any(self._walk(block.body, until, env, mutable) for block in find_blocks(statement))
            if assigned(statement) is not None and isinstance(statement, cst.SimpleStatementLine):
                self.step(statement.body[0], env, mutable)
            else:
                env.update(dict.fromkeys(self.source.stores(statement) | touched(statement), Kind.DATA))
        return False

    # -- functions of the target

    def _function(self, node: cst.Call, name: str, joined: Kind, kinds: Sequence[Kind]) -> Kind:
        """A call of a function of the target: what it returns, if its body is as pure as the rest."""
        found = self.source.called_function(name) if joined is not Kind.DATA and name not in self._visiting else None
        if found is None:
            return Kind.DATA
        return (self if found[0] is self.source else Kinds(found[0]))._result(found[1], node, kinds)

    def _result(self, function: cst.FunctionDef, node: cst.Call, kinds: Sequence[Kind]) -> Kind:
        name = function.name.value
        try:
            env = dict(zip(bind(function, node), kinds, strict=True))
        except CannotRewrite:
            return Kind.DATA
        for parameter in function.params.params:
            if parameter.name.value not in env:
                env[parameter.name.value] = Kind.PLAIN if parameter.default is not None else Kind.DATA
                if parameter.default is not None and self.of(parameter.default, {}) is not Kind.PLAIN:
                    return Kind.DATA
        self._visiting.add(name)
        try:
            return self.returned(function, env)
        finally:
            self._visiting.discard(name)

    def returned(self, function: cst.FunctionDef, env: dict[str, Kind]) -> Kind:
        """The kind of a function's result; DATA unless every statement of its body is understood."""
        if function.decorators or function.asynchronous or not isinstance(function.body, cst.IndentedBlock):
            return Kind.DATA
        mutable: set[str] = set()
        results = self._run(function.body.body, env, mutable)
        return self._join(results) if results else Kind.DATA

    def _run(self, body: Sequence[cst.CSTNode], env: dict[str, Kind], mutable: set[str]) -> list[Kind]:
        results: list[Kind] = []
        for statement in body:
            if isinstance(statement, cst.If):
                results += self._branches(statement, env, mutable)
                continue
            if not isinstance(statement, cst.SimpleStatementLine):
                return [Kind.DATA]
            for small in statement.body:
                if isinstance(small, cst.Return) and small.value is not None:
                    results.append(self.of(small.value, env))
                elif not self.step(small, env, mutable):
                    return [Kind.DATA]
        return results

    def _branches(self, statement: cst.If, env: dict[str, Kind], mutable: set[str]) -> list[Kind]:
        if self.of(statement.test, env) is not Kind.PLAIN:
            return [Kind.DATA]
        results: list[Kind] = []
        branch: cst.If | cst.Else | None = statement
        while branch is not None:
            if isinstance(branch.body, cst.IndentedBlock):
                results += self._run(branch.body.body, env, mutable)
            else:
                results.append(Kind.DATA)
            branch = branch.orelse if isinstance(branch, cst.If) else None
            if isinstance(branch, cst.If) and self.of(branch.test, env) is not Kind.PLAIN:
                return [Kind.DATA]
        return results

    def step(self, small: cst.BaseSmallStatement, env: dict[str, Kind], mutable: set[str]) -> bool:
        """Take one statement into `env`. False when it is not understood. `mutable`: tensors made in this body."""
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            return self._assign(small.targets[0].target, small.value, env, mutable)
        if isinstance(small, cst.AnnAssign) and small.value is not None:
            return self._assign(small.target, small.value, env, mutable)
        if isinstance(small, cst.AugAssign) and isinstance(small.target, cst.Name):
            name = small.target.value
            before = env.get(name, Kind.DATA)
            if before is Kind.BUILT and name not in mutable:
                return False
            env[name] = self._join([before, self.of(small.value, env)])
            return env[name] is not Kind.DATA
        if isinstance(small, cst.Expr):
            return self._expression(small.value, env, mutable)
        return isinstance(small, cst.Pass)

    def _assign(
        self, target: cst.BaseExpression, value: cst.BaseExpression, env: dict[str, Kind], mutable: set[str]
    ) -> bool:
        kind = self.of(value, env)
        if isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name):
            known = self._join([kind, *self._indices(target, env)])
            return target.value.value in mutable and known is not Kind.DATA
        names = target_names(target)
        if names is None:
            return False
        for name in names:
            env[name] = kind
            mutable.discard(name)
            if self._is_new(value, env):
                mutable.add(name)
        return kind is not Kind.DATA

    def _is_new(self, value: cst.BaseExpression, env: Env) -> bool:
        """Whether this makes a tensor that shares its memory with no other."""
        if not isinstance(value, cst.Call) or self.source.qualified(value.func).removeprefix("torch.") not in FACTORIES:
            return False
        return self._join([self.of(a.value, env) for a in value.args]) is Kind.PLAIN

    def _expression(self, value: cst.BaseExpression, env: Env, mutable: set[str]) -> bool:
        if isinstance(value, (cst.SimpleString, cst.ConcatenatedString)):
            return True
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
            arguments = self._join([self.of(a.value, env) for a in value.args])
            owned = isinstance(value.func.value, cst.Name) and value.func.value.value in mutable
            return owned and value.func.attr.value in PURE_IN_PLACE and arguments is not Kind.DATA
        return False


def _is_finfo(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and dotted(node.func) in ("torch.finfo", "torch.iinfo")
