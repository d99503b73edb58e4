"""`custody-sync init`: make a ledger and a starter custody.toml; overwrite neither."""

from __future__ import annotations

import getpass
import json as jsonlib
import os
from pathlib import Path

from custody_sync.cli.options import ConfigOption, JsonOption, LedgerOption
from custody_sync.cli.output import Output
from custody_sync.cli.session import run
from custody_sync.errors import LedgerNotFound
from custody_sync.ledger import Ledger
from custody_sync.settings import LEDGER_VARIABLE, config_path, load_settings, resolve_ledger

DEFAULT_LEDGER = "sqlite:///custody.db"

_STARTER = """\
# Settings of custody-sync. A relative ledger path starts at the folder of this file.
{ledger}

# Who acts when a command is given no --actor.
actor = {actor}

# Where the stores come from: a callable in a module beside this file (or an installed one), sync or
# async, that returns the stores or an asynchronous context manager of them.
# factory = "myapp.memory:stores"

# What every write is checked by: validators, or a callable that returns them.
# validators = "myapp.memory:validators"

# The environment variable that holds the key of erased values' digests.
# forget_key_env = "CUSTODY_FORGET_KEY"

# What happens to superseded entries, per store: "remove" (the default) or "keep".
# [superseded]
# archive = "keep"

# How long `custody-sync expire` keeps facts, by pattern of spaces; a space that none matches keeps them.
# [retention]
# org = "P10Y"
# "team:*" = "P90D"
"""


def init(config: ConfigOption = None, ledger: LedgerOption = None, json: JsonOption = False) -> int:
    """Make the ledger and a starter custody.toml.

    The ledger is --ledger, CUSTODY_SYNC_LEDGER, the one an existing custody.toml names, or
    sqlite:///custody.db beside custody.toml. What is there already is left as it is.
    """

    async def work(output: Output) -> int:
        path = config_path(config)
        url = load_settings(config, ledger, missing_ok=True).ledger or resolve_ledger(
            DEFAULT_LEDGER, path.parent
        )
        try:
            opened, created = await Ledger.open(url), False
        except LedgerNotFound:
            opened, created = await Ledger.open(url, create=True), True
        async with opened:
            ledger_id, name = opened.ledger_id, opened.name
        wrote = _write_starter(path, url)
        named = load_settings(path, missing_ok=True, environ={}).ledger == url
        output.line(f"{'Made' if created else 'Found'} ledger {name} with id {ledger_id}.")
        output.line(f"Wrote {path}." if wrote else f"Left {path} as it was.")
        if not named:
            why = "" if _in_a_file(url) else ", since a server's URL may carry a password"
            output.note(
                f"{path} does not name this ledger{why}: set {LEDGER_VARIABLE} to its URL for every command, "
                "or give --ledger."
            )
        output.document(
            {
                "ledger": name,
                "ledger_id": ledger_id,
                "created": created,
                "config": str(path),
                "config_written": wrote,
                "config_names_ledger": named,
            }
        )
        return 0

    return run(work, json=json)


def _write_starter(path: Path, url: str) -> bool:
    if _in_a_file(url):
        scheme, _, place = url.partition(":///")
        inside = Path(place).parent == path.parent
        line = f"ledger = {_toml(scheme + ':///' + (Path(place).name if inside else place))}"
    else:
        # A file of settings is no place for a password.
        line = f"# The ledger's URL comes from {LEDGER_VARIABLE}, since it may carry a password."
    text = _STARTER.format(ledger=line, actor=_toml(f"operator:{_login()}"))
    try:
        with open(path, "x", encoding="utf-8", opener=_private) as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else can write, whatever the umask: it names code that is run."""
    return os.open(path, flags, 0o600)


def _in_a_file(url: str) -> bool:
    return url.partition(":///")[0] in ("sqlite", "jsonl")


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def _toml(text: str) -> str:
    return jsonlib.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
