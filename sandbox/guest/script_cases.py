"""From the calls of a script to cases: which modules are meant, which calls belong together, how inputs are drawn.

The modules are the outermost that take most of the time, with those inside them that the script calls by themselves.
Calls that hand something on are one case, the first of them where there are many.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import compress
from statistics import median

import torch

from .script_calls import together
from .script_training import declaration
from .script_values import PLAIN, Ref, Tensor, parts_of, rebuilt
from .workload import WorkloadProblem

MOST_CASES = 6
MOST_STEPS = 24  # of a sequence: a prompt and 23 tokens after it
MOST_INSTANCES = 8  # of a case, among which inputs are drawn
LEAST_SHARE = 0.02  # of the time that all take
UNUSUAL = 3.0  # times what calls of a method take in the middle
MOST_OF_IT, ENOUGH = 0.9, 0.5  # of it: what is looked for, and what will do
MOST_ROOTS = MOST_CASES
MOST_SHOWN = 4
LEARNING = "in training mode", "with gradients"  # how calls may be made that are no step of training
REF = "ratchet ref "  # begins a text that stands for what an earlier call gave out, or for an object


class Step:
    """One call of a case: the module in the one that is judged and the method (`PATH` or `PATH:METHOD`), and what it is
    given.
    """

    def __init__(self, path, call):
        self.place, self.call = f"{path}:{call.method}" if call.method else path, call

    def signature(self):
        return self.place, tuple((name, _signature(value)) for name, value in self.call.arguments.items())


class Case:
    """Calls, or sequences of calls, of the same shapes."""

    def __init__(self, steps):
        self.instances, self.further = [steps], []

    @property
    def seconds(self):
        """Of one of them, less what only the first call of a process takes."""
        return median(sum(step.call.seconds for step in steps) for steps in self.instances)


class Recording:
    """The cases of a script by their labels, in the order in which they came."""

    def __init__(self, cases, recipe, notes):
        self.cases, self.recipe, self.notes = cases, recipe, notes
        self._numbers = {label: number for number, label in enumerate(cases)}

    @classmethod
    def of(cls, recorder, methods=(), defined=(), recipe=None):
        """`methods` were watched beside the modules themselves; `defined` are names of the other forms that the script
        has. A `recipe` of another process says which modules and cases are judged: by its own clock this one might find
        others. Raises: WorkloadProblem.
        """
        if recorder.trained:
            seen = (
                f"it trains a model, and what a step of it computes has to be declared, as in\n\n{_declared(recorder)}"
            )
            raise WorkloadProblem("trains", seen)
        if not recorder.calls:
            names = ", ".join(defined) or "none of the names a workload needs"
            raise WorkloadProblem("unknown_form", f"it defines {names}, and calls no torch.nn.Module when it is run")
        _keep_positions(recorder.calls)
        roots, notes = _roots(recorder.calls) if recipe is None else (_same_roots(recorder.calls, recipe), [])
        paths = {id(m): path for path, m in together(roots).named_modules()}
        if recorder.elsewhere:
            notes.append("calls of other threads than the first that makes one are left out")
        if recorder.cut_short:
            notes.append(f"only the first {len(recorder.calls)} calls of the script were looked at")
        if recorder.problem is not None:
            notes.append(f"the script ended with an error after {len(recorder.calls)} calls: {recorder.problem}")
        calls = [call for call in recorder.calls if id(call.module) in paths]
        if learning := {word for call in calls for word in compress(LEARNING, call.learns)}:
            how = " and ".join(sorted(learning))
            unlike = "but they are judged in eval mode without gradients: part of what is gained may be had only so"
            notes.append(f"the script makes its calls {how}, {unlike}")
        longest = max(calls, key=lambda call: call.seconds)
        if any(call.autocast != longest.autocast for call in calls):
            notes.append("the script makes its calls under more than one autocast; judged is that of the longest call")
        _link_by_buffers(calls)
        cases = _cases(calls, paths, notes, None if recipe is None else recipe["cases"])
        objects = {ref for case in cases.values() for steps in case.instances for ref in _objects(steps)}
        wrote = {(paths[id(call.module)], name) for call in calls for name in call.wrote}
        recipe = {
            "roots": {name: min(c.number for c in calls if c.module is root) for name, root in roots.items()},
            "buffers": sorted(".".join(filter(None, each)) for each in wrote),
            "objects": [[str(number), *path] for number, path in sorted(objects)],
            "cases": [*cases],
            "methods": [[*method] for method in methods],
            "called": _places(cases.values()),
            "autocast": longest.autocast,
        }
        for call in recorder.calls:
            call.module = None  # a script may make a model for each of its calls
        return cls(cases, recipe, notes)

    def constants(self):
        """Names of arguments that are the same tensor, with the same in it, in every call of a case in which another
        one is not.
        """
        return [name for label, case in self.cases.items() for name in self._constants(label, case)]

    def _constants(self, label, case):
        given = [dict(self._tensors(label, steps)) for steps in (*case.instances, *case.further)]
        if len(given) < 2:
            return []
        names = set.intersection(*(set(each) for each in given))
        fixed = [name for name in given[0] if name in names and len({each[name].identity for each in given}) == 1]
        return fixed if len(fixed) < len(given[0]) else []

    def _tensors(self, label, steps):
        for name, value in self._arguments(label, steps):
            if isinstance(value, Tensor):
                yield name, value

    def _arguments(self, label, steps):
        for index, step in enumerate(steps):
            name = f"{self._numbers[label]}.{index}"
            yield name, step.place
            for argument, value in step.call.arguments.items():
                yield f"{name}.{argument}", value

    def draw(self, label, seed):
        """Fresh arguments of a case: one of its calls, with other tensors."""
        instances = self.cases[label].instances
        steps = instances[seed % len(instances)]
        fresh = _Fresh(seed, {step.call.number: index for index, step in enumerate(steps)})
        return {name: fresh.of(value) for name, value in self._arguments(label, steps)}


def _declared(recorder):
    return declaration(recorder.calls[0]) if recorder.calls else '    build(), inputs(seed) and mode = "training"'


def reference(kind, number, path):
    """A text, because classes of results have ideas of their own about dictionaries."""
    return REF + json.dumps([kind, str(number), *path])


class _Fresh:
    """Arguments like those that were seen. The same tensor is drawn once, however often it was given, and again after
    it was written to.
    """

    def __init__(self, seed, steps):
        self._generator = torch.Generator().manual_seed(seed)
        self._steps, self._drawn = steps, {}

    def of(self, value):
        if isinstance(value, PLAIN):
            return value
        if not isinstance(value, (Tensor, Ref)):
            return rebuilt(value, {key: self.of(item) for key, item in parts_of(value).items()})
        kind, number, *path = value.first
        if kind == "out" and number in self._steps:
            return reference(kind, self._steps[number], path)
        if isinstance(value, Ref):
            return reference(kind, number, path)
        if value.identity not in self._drawn:
            self._drawn[value.identity] = value.looks.draw(self._generator)
        return self._drawn[value.identity]


def _roots(calls):
    """(outermost modules by name, notes of them): those that take most of the time, one of each class.

    Raises: WorkloadProblem where they are too many to judge.
    """
    called = {id(call.module): call.module for call in calls}
    inside = {id(m) for module in called.values() for m in module.modules() if m is not module}
    took = _usual_seconds(calls)
    seconds = {key: sum(took[id(call)] for call in calls if id(call.module) in _ids(m)) for key, m in called.items()}
    outermost = sorted((m for key, m in called.items() if key not in inside), key=lambda m: -seconds[id(m)])
    of_class = defaultdict(list)
    for module in outermost:
        of_class[type(module)].append(module)
    total, found, share = sum(took.values()) or 1.0, {}, 0.0
    shares = {cls: sum(seconds[id(m)] for m in modules) / total for cls, modules in of_class.items()}
    for cls in sorted(shares, key=lambda cls: -shares[cls])[:MOST_ROOTS]:
        if share < MOST_OF_IT:
            name = cls.__name__ if cls.__name__ not in found else f"{cls.__name__}_{len(found)}"
            found[name], share = of_class[cls][0], share + shares[cls]
    if share < ENOUGH:
        raise WorkloadProblem(
            "bad_declaration",
            f"the script calls {len(shares)} classes of modules, and the {MOST_ROOTS} that take longest make up "
            f"{share:.0%} of the time of all; declare build() and inputs(seed) for what is to be faster",
        )
    names = sorted({_shown(found, call) for call in calls} - {""})
    shown = ", ".join(names[:MOST_SHOWN]) + (f" and {len(names) - MOST_SHOWN} more" * (len(names) > MOST_SHOWN))
    return found, [f"judged is {shown}: {share:.0%} of the script's time in modules"]


def _same_roots(calls, recipe):
    if max(recipe["roots"].values()) >= len(calls):
        raise WorkloadProblem("not_deterministic", "another run of the script does not get as far as its modules")
    return {name: calls[number].module for name, number in recipe["roots"].items()}


def _usual_seconds(calls):
    """Of each call, but for what only one of them takes: what a library does first, what another process takes away."""
    by_method = defaultdict(list)
    for call in calls:
        by_method[id(call.module), call.method].append(call.seconds)
    usual = {key: median(seconds) for key, seconds in by_method.items()}
    return {id(call): min(call.seconds, UNUSUAL * usual[id(call.module), call.method]) for call in calls}


def _ids(module):
    return {id(each) for each in module.modules()}


def _shown(roots, call):
    for root in roots.values():
        for path, module in root.named_modules():
            if module is call.module:
                return ".".join(filter(None, (type(root).__name__, path, call.method)))
    return ""


def _link_by_buffers(calls):
    """A call that writes to buffers hands on a state, up to the next call that is like the first."""
    first = before = None
    for call in calls:
        form = _form(call)
        if before is None or not before.wrote or (form == _form(first) != _form(before)):
            first = call
        else:
            call.links.add(before.number)
        before = call


def _form(call):
    return call.method, tuple((name, _signature(value)) for name, value in call.arguments.items())


def _places(cases):
    """Of all that is called, what takes most of the time first."""
    times = defaultdict(float)
    for step in (step for case in cases for steps in case.instances for step in steps):
        times[step.place] += step.call.seconds
    return sorted(times, key=lambda place: -times[place])


def _keep_positions(calls):
    """A number that mostly rises by one from call to call is a position, though it may index an embedding."""
    before, rises = {}, defaultdict(list)
    for call in calls:
        for name, value in call.arguments.items():
            if isinstance(value, Tensor) and value.looks.rows is not None and value.looks.shape.numel() == 1:
                place, number = (id(call.module), name), int(value.looks.same)
                if place in before:
                    rises[place].append(number == before[place] + 1)
                before[place] = number
    for call in calls:
        for name, value in call.arguments.items():
            seen = rises.get((id(call.module), name), ())
            if 2 * sum(seen) > len(seen):
                value.looks.rows = None


def _cases(calls, paths, notes, wanted):
    found, left_out = {}, 0
    sequences = _sequences(calls)
    if (longest := max(map(len, sequences))) > MOST_STEPS:
        notes.append(f"of {longest} calls that hand a state on, the first {MOST_STEPS} are judged")
    for sequence in sequences:
        steps = [Step(paths[id(call.module)], call) for call in sequence[:MOST_STEPS]]
        if not _is_whole(steps):
            left_out += len(sequence)
            continue
        key = tuple(step.signature() for step in steps)
        if key not in found:
            found[key] = Case(steps)
        # an object is had by running the script up to it, so of those that need some there is one
        elif not any(_objects(steps)):
            drawn = len(found[key].instances) < MOST_INSTANCES
            (found[key].instances if drawn else found[key].further).append(steps)
    without = "that are given objects which come out of other modules"
    if not found:
        raise WorkloadProblem("bad_declaration", f"the script makes only calls {without}")
    if left_out:
        notes.append(f"{left_out} calls are left out {without}")
    labelled = _labelled(found.values())
    if wanted is None:
        wanted = _dearest(labelled)
    if len(wanted) < len(labelled):
        notes.append(f"{len(labelled) - len(wanted)} kinds of calls that take little time are left out")
    return {label: case for label, case in labelled.items() if label in wanted}


def _dearest(cases):
    """Labels. By this process' own clock: another may find others."""
    times = {label: case.seconds * len(case.instances) for label, case in cases.items()}
    least = LEAST_SHARE * sum(times.values())
    return {label for label in sorted(times, key=lambda label: -times[label])[:MOST_CASES] if times[label] >= least}


def _labelled(cases):
    labelled, counts = {}, defaultdict(int)
    for case in cases:
        label = _label(case)
        counts[label] += 1
        labelled[label if counts[label] == 1 else f"{label} #{counts[label]}"] = case
    return labelled


def _sequences(calls):
    """Calls that hand something on, together with those between them."""
    places = {call.number: index for index, call in enumerate(calls)}
    starts = []
    for index, call in enumerate(calls):
        links = [places[number] for number in call.links if number in places]
        while links and starts[-1] > min(links):
            starts.pop()
        if not links:
            starts.append(index)
    return [calls[start:end] for start, end in zip(starts, [*starts[1:], len(calls)], strict=True)]


def _label(case):
    """`input_ids 1x32`, with the number of steps of a sequence."""
    steps = case.instances[0]
    shapes = [
        f"{'' if name.isdigit() else name + ' '}{'x'.join(map(str, value.looks.shape)) or 'number'}"
        for name, value in steps[0].call.arguments.items()
        if isinstance(value, Tensor)
    ]
    label = ", ".join(shapes[:3])[:120] or "call"
    return label if len(steps) == 1 else f"{label}, {len(steps)} steps"


def _signature(value):
    if isinstance(value, Tensor):
        looks = tuple(value.looks.shape), str(value.looks.dtype), str(value.looks.device)
        return (looks, value.first[2:]) if value.first[0] == "out" else looks
    if isinstance(value, Ref):
        return value.first[0], value.first[2:]
    if isinstance(value, PLAIN):
        return type(value).__name__
    return tuple((key, _signature(item)) for key, item in parts_of(value).items())


def _objects(steps):
    """(call, path) of every object that some step is given and no step gave out."""
    for value in _leaves([step.call.arguments for step in steps]):
        if isinstance(value, Ref) and value.first[0] == "arg":
            yield value.first[1], value.first[2:]


def _is_whole(steps):
    """Whether every object that came out of a call came out of one of these."""
    numbers = {step.call.number for step in steps}
    refs = [value for value in _leaves([step.call.arguments for step in steps]) if isinstance(value, Ref)]
    return all(ref.first[0] == "arg" or ref.first[1] in numbers for ref in refs)


def _leaves(value):
    if isinstance(value, (Tensor, Ref, *PLAIN)):
        yield value
        return
    for part in parts_of(value).values():
        yield from _leaves(part)
