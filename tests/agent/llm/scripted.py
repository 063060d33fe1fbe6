"""Models that say what a test tells them: an HTTP server that speaks chat.completions, fault by fault, and a `Chat`."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent.llm import Message, Turn

HEAD = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}


@dataclass(frozen=True)
class Reply:
    """One answer: a body of JSON with a status, or chunks of a stream, after which the line may drop. Before it comes
    nothing for `after_s`, then nothing but signs of life for `pings_s`.
    """

    status: int = 200
    body: Any = None
    chunks: Sequence[Mapping[str, Any] | str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    drops: bool = False
    after_s: float = 0.0
    pings_s: float = 0.0


def says(text: str, finish: str = "stop", usage: Mapping[str, Any] | None = None, **delta: Any) -> Reply:
    """A whole answer, letter by letter."""
    chunks = [part({"role": "assistant", **delta}), *(part({"content": sign}) for sign in text), part({}, finish)]
    return Reply(chunks=[*chunks, *_told(usage)])


def calls(*made: tuple[str, str], usage: Mapping[str, Any] | None = None) -> Reply:
    """Calls of tools, (name, arguments) each, their arguments in two parts."""
    chunks = []
    for index, (name, arguments) in enumerate(made):
        half = len(arguments) // 2
        first = {"id": f"id{index}", "type": "function", "function": {"name": name, "arguments": arguments[:half]}}
        for call in (first, {"function": {"arguments": arguments[half:]}}):
            chunks.append(part({"tool_calls": [{"index": index, **call}]}))
    return Reply(chunks=[*chunks, part({}, "tool_calls"), *_told(usage)])


def _told(usage: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [] if usage is None else [{**HEAD, "choices": [], "usage": usage}]


def fails(status: int, message: str = "no", code: str = "", **headers: str) -> Reply:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"error": {"message": message, "code": code, "type": "x"}}, headers=headers)


def part(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def took(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    """The usage of an answer."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


PASSES = says('{"reject": false, "reason": ""}', usage=took(0, 0))


@dataclass
class Turns:
    """A `Chat`. Answers with turns, one after the other, or raises; the last one again and again."""

    turns: list[Turn | Exception]
    asked: list[list[Message]] = field(default_factory=list)

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Turn:
        self.asked.append(json.loads(json.dumps(list(messages))))
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        if isinstance(turn, Exception):
            raise turn
        return turn


@dataclass
class Server:
    """`requests` are the bodies that came, `replies` what is still to be answered."""

    replies: list[Reply]
    reviews: list[Reply] = field(default_factory=list)  # of reviewers; without one left, nothing is rejected
    requests: list[dict[str, Any]] = field(default_factory=list)
    reviewed: list[dict[str, Any]] = field(default_factory=list)  # the bodies of reviewers' requests
    keys: list[str] = field(default_factory=list)
    base_url: str = ""


@contextlib.contextmanager
def serving(*replies: Reply) -> Iterator[Server]:
    server = Server(list(replies))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *said: object) -> None:
            """Nobody reads it."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.keys.append(str(self.headers["authorization"]))
            if "Reject it if" in str(body["messages"][0]["content"]):
                server.reviewed.append(body)
                reply = server.reviews.pop(0) if server.reviews else PASSES
            else:
                server.requests.append(body)
                reply = server.replies.pop(0) if server.replies else fails(500, "nothing is left to say")
            time.sleep(reply.after_s)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._answer(reply)

        def _answer(self, reply: Reply) -> None:
            whole = json.dumps(reply.body).encode() if reply.body is not None else b""
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if "content-type" not in reply.headers:
                self.send_header("content-type", "application/json" if whole else "text/event-stream")
            if whole:
                self.send_header("content-length", str(len(whole)))
            elif reply.drops:  # what is promised does not come
                self.send_header("content-length", "100000")
            self.end_headers()
            self.wfile.write(whole)
            until = time.monotonic() + reply.pings_s
            while time.monotonic() < until:
                self.wfile.write(b": still at it\n\n")
                time.sleep(0.02)
            for chunk in reply.chunks:
                self.wfile.write((f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n").encode())
                self.wfile.flush()
            if reply.chunks and not reply.drops:
                self.wfile.write(b"data: [DONE]\n\n")

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.base_url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
