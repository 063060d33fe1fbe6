"""The MCP server of a run, on stdio or on loopback with a token. The only file that imports mcp.

It runs in its own thread and hands every call to the desk of the run. Does not listen on anything but loopback.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from agent import __version__
from agent.errors import WrongUsage
from agent.outside.desk import ADDRESS_FILE, Desk
from tools.registry import Answer, Tool

HOST = "127.0.0.1"
GRACE_S = 3.0  # for an answer to get through, and for a client to hang up
TOKEN_VARIABLE = "RATCHET_MCP_TOKEN"
_WAIT = types.Tool(
    name="wait",
    description="Wait for the answer to a call that was still being worked on. Call it again until the answer comes.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
)


def made(desk: Desk, tools: Sequence[Tool], instructions: str) -> Server[Any]:
    """A server that offers these tools, each call of which goes to the desk."""
    listed = [
        types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters()) for tool in tools
    ]

    async def on_list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[*listed, _WAIT])

    async def on_call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}

        def ask() -> Answer:
            return desk.wait() if params.name == _WAIT.name else desk.ask(params.name, arguments)

        answer = await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)
        # no structured content, in which what the target says would stand without marks
        return types.CallToolResult(content=[types.TextContent(text=answer.text)], is_error=not answer.worked)

    return Server(
        "ratchet",
        version=__version__,
        instructions=instructions,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


@dataclass
class Serving:
    """A server in a thread. `hang_up` of the desk is called when it is over."""

    desk: Desk
    server: Server[Any]
    _http: uvicorn.Server | None = None
    _started: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def on_stdio(self) -> None:
        async def serve() -> None:
            async with stdio_server() as (reading, writing):
                await self.server.run(reading, writing, self.server.create_initialization_options())

        self._start(lambda: anyio.run(serve))

    def listen(self, port: int) -> socket.socket:
        """Raises: WrongUsage when the port cannot be had."""
        try:
            return socket.create_server((HOST, port))
        except (OSError, OverflowError) as error:
            raise WrongUsage(f"--port {port} cannot be had: {error}", hint="0 takes a free one.") from error

    def on_http(self, listening: socket.socket, run_dir: Path) -> str:
        """Returns the address; with the token it lies in the run's folder."""
        token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(32)
        address = f"http://{HOST}:{listening.getsockname()[1]}/mcp"
        file = run_dir / ADDRESS_FILE
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(json.dumps({"url": address, "token": token}) + "\n")
        app = _WithToken(self.server.streamable_http_app(host=HOST, session_idle_timeout=None), token)
        http = self._http = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        self._start(lambda: http.run(sockets=[listening]))
        return address

    def _start(self, serve: Any) -> None:
        def run() -> None:
            try:
                serve()
            finally:
                self.over.set()
                self.desk.hang_up()

        self._started = True
        threading.Thread(target=run, name="mcp", daemon=True).start()

    def stop(self, patience_s: float) -> None:
        """End it when the client has fetched its last answer, or has gone away, or had so much time."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not self.desk.all_fetched and not self.over.wait(0.2):
            pass
        if self._started and patience_s:
            self.over.wait(GRACE_S)
        if self._http is not None:
            self._http.should_exit = True
            self.over.wait(GRACE_S)


class _WithToken:
    """ASGI: requests without the token are refused."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b"the token of this run is asked for\n"})
                return
        await self._app(scope, receive, send)
