"""The URL of a Postgres ledger: what is ours in it, what is libpq's, and what may be said of it.

libpq reads a URL whose password has a stray `@`, `/` or `%` as something else, and names parts of the
password in its complaints. So whatever is not plainly a URL is refused here, and nothing of it is repeated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from custody_sync.errors import InvalidInput
from custody_sync.ledger.postgres_sql import DEFAULT_SCHEMA

CONNECT_TIMEOUT = 10
USUAL_PORT = "5432"
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_PORT = re.compile(r"\d*(,\d*)*")
_HOST = re.compile(r"[/@]\S*|[\w.,:-]*")
_DATABASE = re.compile(r"[^\s=:@/]*")
_NUMBER = re.compile(r"-?\d{1,9}", re.ASCII)
_NUMBERS = {
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
}
"""What libpq reads as numbers, and complains about only when it connects."""
_SHAPE = (
    "a Postgres ledger URL is postgresql://user:password@host:port/database; "
    "in user and password write @ as %40, / as %2F, : as %3A and % as %25"
)
# What libpq does by default is to wait for ever for a peer that is gone.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "custody-sync",
}


@dataclass(frozen=True, slots=True)
class Location:
    """Where a ledger is: a schema of a database, and how to connect to it."""

    name: str
    """What errors call it: scheme, host and database, port and schema where they are not the usual ones."""
    schema: str
    vacuum: bool
    parameters: dict[str, Any]
    """For libpq; they hold the password."""

    @classmethod
    def parse(cls, url: str) -> Location:
        """Read a URL.

        Raises:
            InvalidInput: says what a URL looks like, and nothing of this one.
        """
        url, schema, vacuum = _take_ours(url)
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            given = {}
        host, database = str(given.get("host", "")), str(given.get("dbname", ""))
        port = str(given.get("port", ""))
        if not (given and _PORT.fullmatch(port) and _HOST.fullmatch(host) and _DATABASE.fullmatch(database)):
            raise InvalidInput(field="ledger", problem=_SHAPE)
        for option in _NUMBERS & given.keys():
            if not _NUMBER.fullmatch(str(given[option])):
                raise InvalidInput(field="ledger", problem=f"{option} must be a whole number")
        # Two servers of one host are two places, and a mark names the place that a ledger was moved to.
        plain = f"[{host}]" if host.count(":") > 1 and "," not in host else host
        server = f"{plain}:{port}" if port.strip(",") and set(port.split(",")) != {USUAL_PORT} else host
        name = f"postgresql://{server}/{database}"
        if schema != DEFAULT_SCHEMA:
            name = f"{name}?schema={schema}"
        # Without UTF-8 a text could not be written, whatever the environment says.
        parameters = {**_DEFAULTS, **given, "client_encoding": "UTF8"}
        return cls(name if name.isprintable() else ascii(name), schema, vacuum, parameters)

    @property
    def patience(self) -> float:
        """Seconds to wait for a connection before a call says that the ledger cannot be reached."""
        given = int(self.parameters["connect_timeout"])
        return given if given > 0 else CONNECT_TIMEOUT

    def __repr__(self) -> str:
        return f"Location({self.name})"


def _take_ours(url: str) -> tuple[str, str, bool]:
    """Return the URL as libpq may have it, the schema's name, and whether a forget vacuums."""
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@") if "@" in rest.partition("?")[0] else ("", "", rest)
    if "/" in user or "@" in user or "@" in place.partition("?")[0]:
        raise InvalidInput(field="ledger", problem=_SHAPE)
    place, _, query = place.partition("?")
    ours = {"schema": DEFAULT_SCHEMA, "vacuum": "true"}
    theirs: list[str] = []
    for option in filter(None, query.split("&")):
        key, _, value = option.partition("=")
        if key in ours:
            ours[key] = value
        else:
            theirs.append(option)
    if not _SCHEMA.fullmatch(ours["schema"]):
        problem = "schema must be a plain identifier: a-z, 0-9 and _, beginning with neither a digit nor pg_"
        raise InvalidInput(field="ledger", problem=problem)
    if ours["vacuum"] not in ("true", "false"):
        raise InvalidInput(field="ledger", problem="vacuum must be true or false")
    left = f"?{'&'.join(theirs)}" if theirs else ""
    # libpq knows both schemes; nothing else gets here.
    return f"{scheme}://{user}{at}{place}{left}", ours["schema"], ours["vacuum"] == "true"
