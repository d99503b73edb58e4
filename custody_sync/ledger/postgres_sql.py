"""The statements of the Postgres storage, out of its .sql files, for one schema."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

DEFAULT_SCHEMA = "custody_sync"
_NAME = "-- name: "


def read_script(file: str, schema: str) -> str:
    """Return a script of ours with its schema's name put in."""
    script = resources.files("custody_sync.ledger").joinpath("sql", "postgres", file).read_text("utf-8")
    return script.replace(f"{DEFAULT_SCHEMA}.", f"{schema}.")


@lru_cache(maxsize=64)
def statements(file: str, schema: str) -> dict[str, str]:
    """Return the statements of a script by the names that stand above them."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in read_script(file, schema).splitlines():
        if line.startswith(_NAME):
            current = found.setdefault(line.removeprefix(_NAME).strip(), [])
        elif line.strip() and not line.startswith("--"):
            current.append(line.strip())
    return {name: " ".join(lines) for name, lines in found.items()}


def fill(statement: str, **parts: str) -> bytes:
    """Put constant parts into a statement; every value is bound when it is executed."""
    for name, part in parts.items():
        statement = statement.replace(f"{{{name}}}", part)
    return statement.encode()
