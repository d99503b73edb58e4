"""What goes wrong in the stand-in for Zep, and how its errors look on the wire."""

from __future__ import annotations

from dataclasses import dataclass

import httpx


class Problem(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, text: str | None = None, **headers: str) -> None:
        super().__init__(code)
        body = {"error": {"code": code, "message": f"what was asked: {code}", "request_id": "req-1"}}
        self.response = httpx.Response(status, json=body, headers=headers)
        if text is not None:
            self.response = httpx.Response(status, text=text, headers=headers)


@dataclass(slots=True)
class Troubles:
    """How the service misbehaves; counts are of requests, and may be infinite."""

    throttled: float = 0
    reset: float = 0
    fails_after: float = 0
    lost_reply: float = 0
    empty_body: float = 0
    search_fails: float = 0
    skips: float = 0
    lag: float = 0
    repeats: bool = False
    lying_delete: bool = False
    pending: bool = False
    then_throttled: bool = False
    """Once the next write has been answered, every request is turned away."""
    retry_after: str = "0"
    throttled_text: str = "Rate limit exceeded for FREE plan"
    deletes_end: str = "succeeded"
    """How a delete's task ends: succeeded, partial or failed."""


def take(troubles: Troubles, name: str) -> bool:
    """Tell whether a trouble strikes this time, and count it."""
    left: float = getattr(troubles, name)
    if left <= 0:
        return False
    setattr(troubles, name, left - 1)
    return True
