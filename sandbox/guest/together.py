"""Calls of several threads at once, and what came of them."""

from __future__ import annotations

import contextlib
import random
import sys
import threading

import torch

from . import tensors

PATIENCE_S = 0.005  # for a turn, which does not come while the other waits for what this one holds


def run(calls, rounds, with_gradients):
    """What each of these two got in so many rounds, called by a thread of its own: its first answer and one that
    differs from it, or the same again. Raises: what a call raises.
    """
    found, raised, turns = [None] * len(calls), [], _Turns()
    begin = threading.Barrier(len(calls), turns.begin)

    def go_on(number, call):
        try:
            answers = []
            with torch.set_grad_enabled(with_gradients):  # each thread has its own
                for index in range(rounds):
                    begin.wait()
                    with turns.taken(number, always=index % 2 == 0):
                        answers.append(call())
            first = answers[0]
            found[number] = first, next((each for each in answers if not _are_same(each, first)), first)
        except BaseException as error:  # told in the thread that asked
            raised.append(error)
            begin.abort()

    threads = [threading.Thread(target=go_on, args=each, daemon=True) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
    return tuple(found)


class _Turns:
    """Two threads, of which one goes on at a time, until a function that is not Python's has returned: left to
    themselves, they would seldom meet. Turns that `always` change find what both write at the same place of a call;
    those by chance, what is written at another.
    """

    def __init__(self):
        self.turns, self.busy = [threading.Event(), threading.Event()], [False, False]
        self.coin = random.Random()  # not the one of the process, which is the model's

    def begin(self):
        self.busy = [True, True]
        for turn in self.turns:
            turn.clear()

    @contextlib.contextmanager
    def taken(self, number, always):
        def after_each(frame, event, argument):
            if event == "c_return" and self.busy[1 - number] and (always or self.coin.random() < 0.5):
                self._hand_over(number)
                self.turns[number].wait(PATIENCE_S)

        if number:
            self.turns[number].wait(PATIENCE_S)
        sys.setprofile(after_each)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.busy[number] = False
            self._hand_over(number)

    def _hand_over(self, number):
        self.turns[number].clear()
        self.turns[1 - number].set()


def _are_same(one, other):
    (_, ones), (_, others) = tensors.flatten(one), tensors.flatten(other)
    return len(ones) == len(others) and all(map(torch.equal, ones, others))
