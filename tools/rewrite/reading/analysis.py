"""What the expressions of a function depend on: plain values and shapes only, tensors built from those, or data.

    PLAIN   numbers, dtypes, devices, shapes, strings: what a cache key may be made of
    BUILT   a tensor made from PLAIN values alone, by operations known to be pure
    DATA    everything else: whatever is not understood or listed, random or uninitialised

One pass over the statements gives the kind of every name before each of them. What is changed in place, handed out or
shares memory is in `memory`, where a name got its value in `flow`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from tools.rewrite import CannotRewrite
from tools.rewrite.reading.memory import touched
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
    words,
)

FACTORIES = words("""
    arange full ones zeros eye linspace logspace tensor as_tensor tril_indices triu_indices scalar_tensor
""")
# pure both as torch.f(x) and as x.f(), and with a result whose size depends on no values
PURE = words("""
    abs add argsort bitwise_and bitwise_not bitwise_or bool broadcast_to cat ceil chunk clamp clone concat contiguous
    cos cosh cuda cumsum deg2rad diag diagonal div double einsum eq exp exp2 expand expand_as flatten flip float floor
    floor_divide fmod gather ge gt half index_select int le log log10 log2 logical_and logical_not logical_or long lt
    masked_fill matmul max maximum mean meshgrid min minimum mul narrow ne neg ones_like outer permute pow prod
    reciprocal remainder repeat repeat_interleave reshape roll round rsqrt sigmoid sign sin sinh softmax split sqrt
    square squeeze stack sub sum swapaxes t tan tanh to transpose tril triu type type_as unbind unflatten unsqueeze
    view view_as where zeros_like full_like bfloat16
""")
# in-place operations that are fine on a tensor made in the same place
PURE_IN_PLACE = words("add_ sub_ mul_ div_ pow_ triu_ tril_ masked_fill_ fill_ cos_ sin_ exp_ neg_ zero_")
PLAIN_FUNCTIONS = frozenset(
    ["int", "float", "bool", "abs", "min", "max", "round", "len", "sum", "range", "slice", "tuple", "pow", "divmod"]
)
_TENSOR_FACTS = frozenset(["shape", "dtype", "device", "ndim"])
_FINFO = frozenset(["min", "max", "eps", "tiny", "smallest_normal", "bits"])
_TORCH_VALUES = """
    float32 float float64 double float16 half bfloat16 int8 int16 short int32 int int64 long uint8 bool pi inf e
    strided contiguous_format preserve_format channels_last
"""
# attributes of modules that are plain values
_CONSTANTS = {f"torch.{name}" for name in _TORCH_VALUES.split()} | {
    f"math.{n}" for n in ("pi", "e", "inf", "tau", "nan")
}
_IMPURE_KEYWORDS = frozenset(["out", "generator", "requires_grad", "pin_memory"])


class Kind(enum.IntEnum):
    PLAIN = 1
    BUILT = 2
    DATA = 3


Env = Mapping[str, Kind]


@dataclass(frozen=True)
class Fact:
    """Of one statement: the kinds of names before it, and whether it does nothing but build tensors."""

    kinds: Env
    builds: bool


class Analysis:
    """One function of a file. `plain_attributes` and `plain_parameters` are the attributes of its `self` and those of
    its arguments that were seen to hold plain values.
    """

    def __init__(
        self,
        source: SourceFile,
        function: cst.FunctionDef,
        plain_attributes: Sequence[str] = (),
        plain_parameters: Sequence[str] = (),
        calling: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self.source, self.function = source, function
        self._plain_attributes = frozenset(plain_attributes)
        self._plain_parameters = frozenset(plain_parameters)
        self._calling = calling  # (path, name) of the functions whose calls led here

    @cached_property
    def facts(self) -> dict[cst.CSTNode, Fact]:
        """Of all statements, those of blocks included; what a block binds is DATA where it begins."""
        found: dict[cst.CSTNode, Fact] = {}

        def take(body: Sequence[cst.CSTNode], env: dict[str, Kind]) -> None:
            mutable: set[str] = set()
            for statement in body:
                before = dict(env)
                found[statement] = Fact(before, self._builds(statement, env, mutable))
                bound = dict.fromkeys(self.source.stores(statement), Kind.DATA)
                if not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                    for block in find_blocks(statement):
                        take(block.body, before | bound)

        given = [p.name.value for p in parameters(self.function)]
        # a wrong guess costs nothing: the cache looks at the types of its keys
        take(statements(self.function), {n: Kind.PLAIN if n in self._plain_parameters else Kind.DATA for n in given})
        return found

    def _builds(self, statement: cst.CSTNode, env: dict[str, Kind], mutable: set[str]) -> bool:
        """Take a statement into `env`; whether it only builds tensors."""
        value = assigned(statement)
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
            changed = touched(statement)
            if value is not None:
                kind = self.kind(value[1], env)
                self._step(statement.body[0], env, mutable)
                return kind is Kind.BUILT
            if changed and all(env.get(n) is Kind.BUILT for n in changed):
                if self._step(statement.body[0], env, mutable):
                    return True
                env.update(dict.fromkeys(changed, Kind.DATA))
        env.update(dict.fromkeys(self.source.stores(statement), Kind.DATA))
        return False

    # -- expressions

    def kind(self, node: cst.BaseExpression, env: Env) -> Kind:
        match node:
            case cst.Integer() | cst.Float() | cst.SimpleString() | cst.Ellipsis():
                return Kind.PLAIN
            case cst.Name():
                return self._name(node.value, env)
            case cst.Attribute():
                return self._attribute(node, env)
            case cst.Call():
                return self._call(node, env)
            case cst.IfExp() if self.kind(node.test, env) is not Kind.PLAIN:
                return Kind.DATA
        operands = _operands(node)
        return Kind.DATA if operands is None else self._join(operands, env)

    def _join(self, nodes: Iterable[cst.BaseExpression], env: Env) -> Kind:
        return max((self.kind(node, env) for node in nodes), default=Kind.PLAIN)

    def is_leaf(self, node: cst.CSTNode, env: Env) -> bool:
        """Whether this PLAIN expression comes from outside and so belongs into the key: a name, `x.dtype`, `self.a`."""
        if isinstance(node, cst.Name):
            return node.value in env
        if isinstance(node, cst.Attribute):
            name = dotted(node)
            if name.startswith("self."):
                return self.kind(node, env) is Kind.PLAIN
            return node.attr.value in _TENSOR_FACTS and _may_be_given(name.split(".")[0], env)
        if isinstance(node, cst.Subscript):
            literal = not any(find_all(value, cst.Name) for value in index_values(node))
            return literal and not isinstance(node.value, cst.Name) and self.is_leaf(node.value, env)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            return node.func.attr.value in ("size", "dim") and _is_data(dotted(node.func.value), env)
        return False

    def _name(self, name: str, env: Env) -> Kind:
        if name in env:
            return env[name]
        value = self.source.top_level_value(name)
        plain = name in ("True", "False", "None") or (value is not None and self.kind(value, {}) is Kind.PLAIN)
        return Kind.PLAIN if plain else Kind.DATA

    def _attribute(self, node: cst.Attribute, env: Env) -> Kind:
        name, attribute = dotted(node), node.attr.value
        head, _, rest = name.partition(".")
        if head == "self" and head in env:
            plain = rest in self._plain_attributes or (attribute in _TENSOR_FACTS and rest.count(".") == 1)
            return Kind.PLAIN if plain else Kind.DATA
        if head not in env and self.source.qualified(node) in _CONSTANTS:
            return Kind.PLAIN
        inner = self.kind(node.value, env)
        if attribute in _TENSOR_FACTS:
            is_tensor = inner is Kind.BUILT or dotted(node.value) in env  # the shape of whatever this is
            return Kind.PLAIN if is_tensor else Kind.DATA
        of_finfo = isinstance(node.value, cst.Call) and dotted(node.value.func) in ("torch.finfo", "torch.iinfo")
        if attribute in _FINFO and of_finfo:
            return inner
        return inner if inner is Kind.BUILT and attribute in ("T", "mT") else Kind.DATA

    def _call(self, node: cst.Call, env: Env) -> Kind:
        if any(a.star or (a.keyword is not None and a.keyword.value in _IMPURE_KEYWORDS) for a in node.args):
            return Kind.DATA
        kinds = [self.kind(argument.value, env) for argument in node.args]
        joined, name = max(kinds, default=Kind.PLAIN), dotted(node.func)
        if not name or name.split(".")[0] in env:
            return self._method(node.func, env, joined) if isinstance(node.func, cst.Attribute) else Kind.DATA
        if joined is Kind.DATA:
            return Kind.DATA
        qualified = self.source.qualified(node.func)
        if qualified.startswith("torch."):
            operation = qualified.removeprefix("torch.").removeprefix("nn.functional.")
            if operation in ("finfo", "iinfo", "device", "Size"):
                return joined if joined is Kind.PLAIN else Kind.DATA
            built = operation in FACTORIES or (operation in PURE and Kind.BUILT in kinds)
            return Kind.BUILT if built else Kind.DATA
        if qualified.startswith("math.") or (name in PLAIN_FUNCTIONS and name not in self.source.imports):
            return joined if joined is Kind.PLAIN else Kind.DATA
        return self._function(node, name, kinds) if "." not in name else Kind.DATA

    def _method(self, function: cst.Attribute, env: Env, joined: Kind) -> Kind:
        method, receiver = function.attr.value, self.kind(function.value, env)
        if method in ("size", "dim") and joined is Kind.PLAIN:
            return Kind.PLAIN if receiver is Kind.BUILT or _is_data(dotted(function.value), env) else Kind.DATA
        pure = method in PURE or (method in PURE_IN_PLACE and not isinstance(function.value, cst.Name))
        return Kind.BUILT if pure and receiver is Kind.BUILT and joined is not Kind.DATA else Kind.DATA

    # -- functions of the target

    def _function(self, node: cst.Call, name: str, kinds: Sequence[Kind]) -> Kind:
        """A call of a function of the target: what it returns, if its body is as pure as the rest."""
        found = self.source.called_function(name)
        if found is None or (place := (found[0].path, found[1].name.value)) in self._calling:
            return Kind.DATA
        plain = self._plain_attributes if found[0] is self.source else ()
        return Analysis(*found, tuple(plain), calling=self._calling | {place})._returned(node, kinds)

    def _returned(self, node: cst.Call, kinds: Sequence[Kind]) -> Kind:
        """The kind of what a call gives; DATA unless every statement of the body is understood."""
        function = self.function
        try:
            env = dict(zip(bind(function, node), kinds, strict=True))
        except CannotRewrite:
            return Kind.DATA
        for parameter in function.params.params:
            if parameter.name.value not in env:
                if parameter.default is None or self.kind(parameter.default, {}) is not Kind.PLAIN:
                    return Kind.DATA
                env[parameter.name.value] = Kind.PLAIN
        if function.decorators or function.asynchronous or not isinstance(function.body, cst.IndentedBlock):
            return Kind.DATA
        return max(self._run(function.body, env, set()), default=Kind.DATA)

    def _run(self, body: cst.BaseSuite, env: dict[str, Kind], mutable: set[str]) -> list[Kind]:
        """The kinds of what a block returns."""
        results: list[Kind] = []
        for statement in body.body if isinstance(body, cst.IndentedBlock) else [body]:
            if isinstance(statement, cst.If):
                results += self._branches(statement, env, mutable)
                continue
            if not isinstance(statement, cst.SimpleStatementLine):
                return [Kind.DATA]
            for small in statement.body:
                if isinstance(small, cst.Return) and small.value is not None:
                    results.append(self.kind(small.value, env))
                elif not self._step(small, env, mutable):
                    return [Kind.DATA]
        return results

    def _branches(self, statement: cst.If, env: dict[str, Kind], mutable: set[str]) -> list[Kind]:
        if self.kind(statement.test, env) is not Kind.PLAIN:
            return [Kind.DATA]
        results, other = self._run(statement.body, env, mutable), statement.orelse
        if isinstance(other, cst.If):
            return results + self._branches(other, env, mutable)
        return results + (self._run(other.body, env, mutable) if other is not None else [])

    # -- statements

    def _step(self, small: cst.BaseSmallStatement, env: dict[str, Kind], mutable: set[str]) -> bool:
        """Take one statement into `env`. False when it is not understood. `mutable`: tensors made in this body."""
        match small:
            case cst.Assign(targets=[cst.AssignTarget(target=target)], value=value):
                return self._assign(target, value, env, mutable)
            case cst.AnnAssign(target=target, value=cst.BaseExpression() as value):
                return self._assign(target, value, env, mutable)
            case cst.AugAssign(target=cst.Name(value=name), value=value):
                before = env.get(name, Kind.DATA)
                if before is Kind.BUILT and name not in mutable:
                    return False
                env[name] = max(before, self.kind(value, env))
                return env[name] is not Kind.DATA
            case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()) | cst.Pass():
                return True
            case cst.Expr(value=cst.Call(func=cst.Attribute(value=cst.Name(value=name), attr=method)) as call):
                known = self._join([a.value for a in call.args], env) is not Kind.DATA
                return known and name in mutable and method.value in PURE_IN_PLACE
        return False

    def _assign(
        self, target: cst.BaseExpression, value: cst.BaseExpression, env: dict[str, Kind], mutable: set[str]
    ) -> bool:
        kind = self.kind(value, env)
        if isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name):
            known = max(kind, self._join(index_values(target), env))
            return target.value.value in mutable and known is not Kind.DATA
        names = target_names(target)
        for name in names or ():
            env[name] = kind
            mutable.discard(name)
            if self._is_new(value, env):
                mutable.add(name)
        return names is not None and kind is not Kind.DATA

    def _is_new(self, value: cst.BaseExpression, env: Env) -> bool:
        """Whether this makes a tensor that shares its memory with no other."""
        if not isinstance(value, cst.Call) or self.source.qualified(value.func).removeprefix("torch.") not in FACTORIES:
            return False
        return self._join([a.value for a in value.args], env) is Kind.PLAIN


def _is_data(name: str, env: Env) -> bool:
    base = name.split(".")[0]
    return base == "self" or _may_be_given(base, env)


def _may_be_given(name: str, env: Env) -> bool:
    """Whether it may be a tensor that was not built here, perhaps in another call."""
    return env.get(name, Kind.BUILT) is not Kind.BUILT


def _operands(node: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """What the value of an expression is made of; None for what is not understood."""
    match node:
        case cst.Subscript():
            return [node.value, *index_values(node)]
        case cst.Tuple() | cst.List():
            starred = any(isinstance(e, cst.StarredElement) for e in node.elements)
            return None if starred else [e.value for e in node.elements]
        case cst.BinaryOperation() | cst.BooleanOperation():
            return [node.left, node.right]
        case cst.UnaryOperation():
            return [node.expression]
        case cst.Comparison():
            return [node.left, *(c.comparator for c in node.comparisons)]
        case cst.IfExp():
            return [node.body, node.orelse]
    return None
