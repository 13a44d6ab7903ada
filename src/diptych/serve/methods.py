"""How an address may be asked: HEAD wherever GET may, and who asks otherwise is told of all ways."""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Heads:
    """Answers HEAD as GET, without the body; the routes, and what is told of them, need not know."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def bodiless(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        asked = {**scope, "method": "GET"}  # a copy: the server looks at its own for whether there will be a body
        try:
            await self._app(asked, receive, bodiless)
        finally:
            if "route" in asked:  # the figures are by route
                scope["route"] = asked["route"]


def allowed(request: Request) -> str:
    """The methods of all routes at the request's address, for the header Allow."""
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))
