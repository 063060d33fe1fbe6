"""What the expressions in a loop over experts are: rows of an expert, its result, its weights. By form, not by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import libcst as cst

from tools.rewrite import CannotRewrite
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import dotted, find_all, index_values, simple_statements, statements, target_names

Kind = Literal["other", "number", "expert", "hits", "rows", "slots", "tokens", "made", "weights", "weighted"]
_CASTS = ("to", "type", "type_as", "float", "half", "bfloat16", "contiguous")


@dataclass(frozen=True)
class Part:
    """One value: what it is, and of which tensors before the loop (their code)."""

    kind: Kind
    chosen: str = ""
    tokens: str = ""
    weights: str = ""
    swapped: bool = False  # of hits: their first dimension is that of the slots


OTHER = Part("other")


class Values:
    """The names of one loop. Raises: CannotRewrite for a loop over something else."""

    def __init__(self, source: SourceFile, function: cst.FunctionDef, loop: cst.For) -> None:
        self.source, self.function, self.experts = source, function, ""
        self._known: dict[str, Part] = {}
        self._header(loop)

    @property
    def bound(self) -> set[str]:
        return set(self._known)

    def _header(self, loop: cst.For) -> None:
        names = target_names(loop.target) or []
        call = loop.iter if isinstance(loop.iter, cst.Call) else None
        made_by = dotted(call.func) if call is not None else ""
        if call is not None and made_by == "enumerate" and len(names) == 2 and len(call.args) == 1:
            self.experts = self.source.code(call.args[0].value)
            self._known = {names[0]: Part("number"), names[1]: Part("expert")}
        elif call is not None and made_by == "range" and len(names) == 1 and len(call.args) == 1:
            self._known = {names[0]: Part("number")}

    # -- statements

    def bind(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        names = target_names(target)
        if names is None:
            raise CannotRewrite("it is assigned to more than a name")
        if len(names) == 1:
            self._known[names[0]] = self.of(value)
        elif len(names) == 2 and (pair := self._places(value)) is not None:
            self._known |= dict(zip(names, pair, strict=True))
        else:
            raise CannotRewrite("a pair that is not understood")
        if any(self._known[name].kind == "other" for name in names):
            raise CannotRewrite(f"what {names[0]} is given is not understood")

    def says_some(self, test: cst.BaseExpression) -> bool | None:
        """True for `rows.numel() > 0`, False for `rows.numel() == 0`, None for what is not about rows."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return False if self._is_count(test.expression) else None
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1 and self._is_count(test.left):
            right = test.comparisons[0]
            if self.source.code(right.comparator) == "0":
                if isinstance(right.operator, cst.Equal):
                    return False
                return True if isinstance(right.operator, (cst.GreaterThan, cst.NotEqual)) else None
        return True if self._is_count(test) else None

    def _is_count(self, node: cst.BaseExpression) -> bool:
        """`len(rows)`, `rows.numel()`, `rows.shape[0]`, `rows.size(0)`, `hits.any()`, `hits.sum()`."""
        code = self.source.code(node)
        for name, part in self._known.items():
            if part.kind in ("rows", "slots", "tokens") and code in (
                f"len({name})",
                f"{name}.numel()",
                f"{name}.shape[0]",
                f"{name}.size(0)",
            ):
                return True
            if part.kind == "hits" and code in (f"{name}.any()", f"{name}.sum()", f"torch.any({name})"):
                return True
        return False

    def rows_of(self, target: cst.BaseExpression) -> str:
        """The code of `out` in `out[rows]`, empty for anything else."""
        if isinstance(target, cst.Subscript) and self._is_rows(index_values(target)):
            return self.source.code(target.value)
        return ""

    def index_add(self, node: cst.BaseExpression) -> tuple[str, cst.BaseExpression]:
        """(`out`, value) of `out.index_add_(0, rows, value)`."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "index_add_":
            given = [argument.value for argument in node.args]
            if len(given) == 3 and self.source.code(given[0]) == "0" and self.of(given[1]).kind == "rows":
                return self.source.code(node.func.value), given[2]
        raise CannotRewrite("a statement that is not understood")

    def calls_expert(self, node: cst.CSTNode) -> bool:
        return any(self.of(call.func).kind == "expert" for call in find_all(node, cst.Call))

    # -- expressions

    def of(self, node: cst.BaseExpression) -> Part:
        if isinstance(node, cst.Name):
            return self._known.get(node.value, OTHER)
        if isinstance(node, cst.Comparison):
            return self._hits(node)
        if isinstance(node, cst.Subscript):
            return self._subscript(node)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
            pair = self.of(node.left), self.of(node.right)
            for made, weights in (pair, pair[::-1]):
                if made.kind == "made" and weights.kind == "weights" and made.chosen == weights.chosen:
                    return replace(made, kind="weighted", weights=weights.weights)
        return OTHER

    def _hits(self, node: cst.Comparison) -> Part:
        """`chosen == number`."""
        if len(node.comparisons) != 1 or not isinstance(node.comparisons[0].operator, cst.Equal):
            return OTHER
        left, right = node.left, node.comparisons[0].comparator
        for chosen, number in ((left, right), (right, left)):
            if self.of(number).kind == "number" and self._is_from_before(chosen):
                return Part("hits", self.source.code(chosen))
        return OTHER

    def _places(self, node: cst.BaseExpression) -> tuple[Part, Part] | None:
        """(rows, slots) of `torch.where(hits)` and its like, in the order of the hits' dimensions."""
        if not isinstance(node, cst.Call):
            return None
        named = [a for a in node.args if a.keyword is not None]
        plain = [a.value for a in node.args if a.keyword is None]
        as_tuple = [self.source.code(a.value) for a in named if a.keyword and a.keyword.value == "as_tuple"] == ["True"]
        name = self.source.qualified(node.func)
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        if (name == "torch.where" and len(plain) == 1 and not named) or (name == "torch.nonzero" and as_tuple):
            hits = self.of(plain[0])
        elif method == "nonzero" and as_tuple and isinstance(node.func, cst.Attribute):
            hits = self.of(node.func.value)
        else:
            return None
        if hits.kind != "hits":
            return None
        rows, slots = replace(hits, kind="rows"), replace(hits, kind="slots")
        return (slots, rows) if hits.swapped else (rows, slots)

    def _subscript(self, node: cst.Subscript) -> Part:
        values = index_values(node)
        if len(values) == 1 and self.of(values[0]).kind == "number":
            return self._numbered(node.value)
        before, inner = self._is_from_before(node.value), self.of(node.value)
        if before and self._is_rows(values):
            return Part("tokens", self._chosen(values), self.source.code(node.value))
        kinds = [self.of(value).kind for value in values]
        if before and kinds[:2] == ["rows", "slots"] and [self.source.code(v) for v in values[2:]] in ([], ["None"]):
            return Part("weights", self._chosen(values), weights=self.source.code(node.value))
        if inner.kind == "weights" and [self.source.code(e.slice) for e in node.slice] == [":", "None"]:
            return inner
        return OTHER

    def _numbered(self, node: cst.BaseExpression) -> Part:
        """`self.experts[number]`, or `mask[number]` of a mask by expert."""
        code = self.source.code(node)
        if code.startswith("self.") and self.experts in ("", code):
            self.experts = code
            return Part("expert")
        if isinstance(node, cst.Name):
            return self._one_hot(node.value)
        return OTHER

    def _one_hot(self, name: str) -> Part:
        """`name = one_hot(chosen, …).permute(2, …)` before the loop."""
        for statement in statements(self.function):
            for line in simple_statements(statement, cst.Assign):
                if [self.source.code(t.target) for t in line.targets] != [name]:
                    continue
                value = line.value
                if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
                    return OTHER
                turned = [self.source.code(a.value) for a in value.args]
                inner = value.func.value
                if value.func.attr.value != "permute" or turned not in (["2", "1", "0"], ["2", "0", "1"]):
                    return OTHER
                if isinstance(inner, cst.Call) and self.source.qualified(inner.func).endswith("one_hot"):
                    return Part("hits", self.source.code(inner.args[0].value), swapped=turned == ["2", "1", "0"])
        return OTHER

    def _call(self, node: cst.Call) -> Part:
        if self.of(node.func).kind == "expert" and len(node.args) == 1:
            given = self.of(node.args[0].value)
            return replace(given, kind="made") if given.kind == "tokens" else OTHER
        if not isinstance(node.func, cst.Attribute):
            return OTHER
        inner, method = node.func.value, node.func.attr.value
        values = [argument.value for argument in node.args]
        if method == "index_select" and len(values) == 2 and self._is_from_before(inner):
            rows = self.of(values[1])
            if self.source.code(values[0]) == "0" and rows.kind == "rows":
                return Part("tokens", rows.chosen, self.source.code(inner))
        part = self.of(inner)
        if method in _CASTS and part.kind in ("tokens", "made", "weights", "weighted"):
            return part
        if method in ("reshape", "view") and part.kind == "tokens" and self.source.code(values[0]) == "-1":
            return part
        if method == "unsqueeze" and part.kind == "weights" and self.source.code(values[0]) in ("-1", "1"):
            return part
        return OTHER

    def _is_rows(self, values: list[cst.BaseExpression]) -> bool:
        """`[rows]`, `[rows, :]`, `[None, rows]`."""
        kept = [v for v in values if self.source.code(v) not in ("None", "...")]
        return len(kept) == 1 and self.of(kept[0]).kind == "rows"

    def _chosen(self, values: list[cst.BaseExpression]) -> str:
        return next(self.of(value).chosen for value in values if self.of(value).kind == "rows")

    def _is_from_before(self, node: cst.BaseExpression) -> bool:
        """Whether nothing that the loop binds is in it."""
        return not {name.value for name in find_all(node, cst.Name)} & self.bound
