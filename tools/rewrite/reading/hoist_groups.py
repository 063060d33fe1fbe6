"""Find, in one function, the statements and expressions that build tensors from plain values alone.

It refuses what somebody could change in place later: what the function changes itself, returns or stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from tools.rewrite.reading.escapes import escaping, touched
from tools.rewrite.reading.kinds import Env, Kind, Kinds
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import assigned, find_all, find_blocks, simple_statements

_OPERATIONS = (cst.Call, cst.BinaryOperation, cst.Subscript)


@dataclass
class Group:
    """Statements (or one expression) that can be built once, and the lines they stand on."""

    statements: list[cst.SimpleStatementLine]
    names: list[str]
    lines: tuple[int, ...]
    env: Env
    expression: cst.BaseExpression | None = None
    removable: list[cst.SimpleStatementLine] = field(default_factory=list)

    @property
    def title(self) -> str:
        return ", ".join(self.names) if self.names else "an expression"


class Finder:
    """One walk over the statements of a function, blocks inside it included."""

    def __init__(self, source: SourceFile, function: cst.FunctionDef, kinds: Kinds) -> None:
        self.source, self.function, self.kinds = source, function, kinds

    def groups(self, body: Any, env: dict[str, Kind]) -> list[Group]:
        built: dict[int, list[str]] = {}  # statement index -> names it makes
        needs: dict[int, set[int]] = {}
        defined: dict[str, int] = {}
        mutable: set[str] = set()
        envs: list[dict[str, Kind]] = []
        frontier: dict[int, int] = {}  # statement index -> where it is first used
        found: list[Group] = []
        for index, statement in enumerate(body):
            envs.append(dict(env))
            if self._is_built(statement, env, mutable):
                loaded = self.source.loads(statement) | touched(statement)
                needs[index] = {defined[n] for n in loaded if n in defined}
                built[index] = sorted(self.source.stores(statement) or touched(statement), key=_order(statement))
                defined.update(dict.fromkeys(built[index], index))
                continue
            for name in sorted(self.source.loads(statement)):
                if name in defined:
                    frontier.setdefault(defined[name], index)
            found += self._inside(statement, env)
            for name in self.source.stores(statement):
                defined.pop(name, None)
        for chosen in self._merge(frontier, built, needs):
            group = self._group(body, chosen, built, needs, envs, frontier)
            if group is not None:
                found.append(group)
        return sorted(found, key=lambda g: g.lines)

    def _is_built(self, statement: cst.CSTNode, env: dict[str, Kind], mutable: set[str]) -> bool:
        """Take a statement into `env`; whether it only builds tensors."""
        value = assigned(statement)
        if value is not None:
            kind = self.kinds.of(value[1], env)
            assert isinstance(statement, cst.SimpleStatementLine)
            self.kinds.step(statement.body[0], env, mutable)
            return kind is Kind.BUILT
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
            small, changed = statement.body[0], touched(statement)
            if changed and all(env.get(n) is Kind.BUILT for n in changed):
                if self.kinds.step(small, env, mutable):
                    return True
                env.update(dict.fromkeys(changed, Kind.DATA))
        env.update(dict.fromkeys(self.source.stores(statement), Kind.DATA))
        return False

    def _merge(
        self, frontier: dict[int, int], built: dict[int, list[str]], needs: dict[int, set[int]]
    ) -> list[set[int]]:
        """Frontier statements that share work and are used only after the last of them belong together."""
        merged: list[set[int]] = []
        for index in sorted(frontier):
            for other in merged:
                shared = _closure(index, needs) & set().union(*(_closure(o, needs) for o in other))
                if shared and all(frontier[o] > index for o in other):
                    other.add(index)
                    break
            else:
                merged.append({index})
        return merged

    def _group(
        self,
        body: Any,
        chosen: set[int],
        built: dict[int, list[str]],
        needs: dict[int, set[int]],
        envs: list[dict[str, Kind]],
        frontier: dict[int, int],
    ) -> Group | None:
        indices = sorted(set().union(*(_closure(i, needs) for i in chosen)))
        names = list(dict.fromkeys(n for i in sorted(chosen) for n in built[i]))
        last = indices[-1]
        inside = [body[i] for i in indices]
        if not _has_call(inside) or self._is_unsafe(names, set(map(id, inside))):
            return None
        leaves = {n for s in inside for n in self.source.loads(s) if envs[last].get(n) is not Kind.BUILT}
        between = [body[i] for i in range(indices[0], last) if i not in indices]
        if leaves & {n for s in between for n in self.source.stores(s)}:
            return None
        # statements of the slice that something outside of it still reads must stay
        gone = [i for i in indices[:-1] if i in chosen or (i not in frontier and self._only_for(i, indices, needs))]
        first_line, last_line = self.source.lines(inside[0])[0], self.source.lines(inside[-1])[1]
        return Group(inside, names, (first_line, last_line), envs[last], removable=[body[i] for i in gone])

    def _only_for(self, index: int, indices: list[int], needs: dict[int, set[int]]) -> bool:
        return all(user in indices for user, wanted in needs.items() if index in wanted)

    def _is_unsafe(self, names: list[str], inside: set[int]) -> bool:
        """Whether somebody could change the tensor in place: here, or after it was handed out."""
        return bool(set(names) & escaping(self.function.body, inside))

    def _inside(self, statement: cst.CSTNode, env: dict[str, Kind]) -> list[Group]:
        """Groups in the blocks of a compound statement, or expressions within a simple one."""
        if isinstance(statement, cst.SimpleStatementLine):
            return [self._inline(e, env) for e in self._expressions(statement, env)]
        found: list[Group] = []
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            return found
        for block in find_blocks(statement):
            inner = dict(env)
            inner.update(dict.fromkeys(self.source.stores(statement), Kind.DATA))
            found += self.groups(block.body, inner)
        return found

    def _expressions(self, statement: cst.CSTNode, env: Env) -> list[cst.BaseExpression]:
        """The largest expressions that are built from shapes, none of them merely a name."""
        leaves = bool(simple_statements(statement, cst.Return)) or any(
            isinstance(t.target, (cst.Attribute, cst.Subscript)) for t in find_all(statement, cst.AssignTarget)
        )
        keep_bare = leaves or self._is_unsafe(sorted(self.source.stores(statement)), set())
        found: list[cst.BaseExpression] = []
        stack: list[tuple[cst.CSTNode, bool]] = [(child, True) for child in statement.children]
        while stack:
            node, bare = stack.pop()
            if isinstance(node, (cst.Lambda, cst.BaseComp)):
                continue  # it runs later, or many times
            if isinstance(node, _OPERATIONS) and self.kinds.of(node, env) is Kind.BUILT:
                # a bare one is what the statement returns, stores or binds: whoever gets it may change it
                if _has_call([node]) and not (bare and keep_bare):
                    found.append(node)
                continue
            bare = bare and not isinstance(node, (*_OPERATIONS, cst.Attribute, cst.UnaryOperation, cst.Comparison))
            stack += [(child, bare) for child in node.children]
        return found

    def _inline(self, expression: cst.BaseExpression, env: Env) -> Group:
        return Group([], [], self.source.lines(expression), dict(env), expression=expression)


def _closure(index: int, needs: dict[int, set[int]]) -> set[int]:
    found, stack = set(), [index]
    while stack:
        if (i := stack.pop()) not in found:
            found.add(i)
            stack += needs[i]
    return found


def _order(statement: cst.CSTNode) -> Any:
    value = assigned(statement)
    names = value[0] if value is not None else []
    return lambda name: names.index(name) if name in names else 0


def _has_call(nodes: list[Any]) -> bool:
    return any(find_all(node, cst.Call) for node in nodes)
