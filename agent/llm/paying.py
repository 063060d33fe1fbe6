"""Ask a model on an account: what an answer may take is reserved before, and what it took is booked, whole or not.

Refuses to trust a guess: until an endpoint has told what a text takes, a token is taken to be one character of it,
which no tokenizer falls below.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.llm import Chat, Lost, Message, ModelError, Turn
from agent.llm.account import Account

FEWEST_CHARACTERS = 2.0  # a token, in digits and signs: what nobody tells is rather guessed too high


@dataclass
class Payer:
    """Of one conversation, each request of which says again what those before it said."""

    chat: Chat
    account: Account
    purpose: str
    """Under which it is booked."""
    dollars: float | None = 0.0
    """What all of it has cost until now; None where that is not known."""
    _characters: int = 0  # of the last prompt that the endpoint told the tokens of
    _tokens: int = 0

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> tuple[Turn, int]:
        """The answer, and the tokens that all of it took. Raises: BudgetReached, ModelError."""
        characters = len(json.dumps([*messages, *tools]))
        guess = self._prompt(characters, FEWEST_CHARACTERS)
        with self.account.granted(self._prompt(characters, 1.0)) as most_tokens:
            begun = time.monotonic()
            try:
                turn = self.chat.ask(messages, tools, most_tokens)
            except ModelError as error:
                self._book_lost(error.lost, guess)
                raise
            lost = self._book_lost(turn.lost, guess)
            told = turn.usage
            said = len(json.dumps([turn.reasoning, turn.as_message()]))
            guess += int(said / FEWEST_CHARACTERS)
            self._cost(self.account.add(self.purpose, told, time.monotonic() - begun, guess))
        if told.prompt is not None:
            self._characters, self._tokens = characters, told.prompt
        both = None if told.prompt is None or told.completion is None else told.prompt + told.completion
        return turn, lost + (guess if both is None else both)

    def _prompt(self, characters: int, of_a_token: float) -> int:
        """Tokens: what was told of the most of it, and the rest by its length. What got shorter is not believed to."""
        return self._tokens + int(max(0, characters - self._characters) / of_a_token)

    def _book_lost(self, lost: Lost, prompt: int) -> int:
        if not lost.answers:
            return 0
        heard = int(lost.heard / FEWEST_CHARACTERS)
        self._cost(self.account.add_lost(self.purpose, lost.answers, lost.answers * prompt, heard))
        return lost.answers * prompt + heard

    def _cost(self, dollars: float | None) -> None:
        self.dollars = None if self.dollars is None or dollars is None else self.dollars + dollars
