"""What `custody.toml` and the environment say: which ledger, which stores, who acts.

A relative ledger path in `custody.toml` starts at the folder of that file, wherever the command
runs; one given by option or by `CUSTODY_SYNC_LEDGER` starts at the current folder. A path is
taken as it is written: `%`, `#`, `?` and `~` mean themselves.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

from custody_sync.errors import CustodyError, InvalidInput
from custody_sync.ports import Store, Validator
from custody_sync.rawfiles import opened
from custody_sync.retention import read_windows
from custody_sync.throttling import Pace

CONFIG_NAME = "custody.toml"
CONFIG_VARIABLE = "CUSTODY_SYNC_CONFIG"
LEDGER_VARIABLE = "CUSTODY_SYNC_LEDGER"

Superseded: TypeAlias = "Literal['remove', 'keep']"

_KEYS = {
    "ledger": str,
    "factory": str,
    "validators": str,
    "actor": str,
    "forget_key_env": str,
    "superseded": dict,
    "retention": dict,
    "stores": dict,
}
_FILE_SCHEMES = ("sqlite:///", "jsonl:///")
_VARIABLE = re.compile("[A-Z_][A-Z0-9_]*")
_LARGEST = 1_000_000
"""Bytes of a file of settings; a device has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One installation's choices, with the ledger's path made absolute."""

    folder: Path
    """Where `custody.toml` lies, or the current folder without one; the modules it names may be here."""
    config: Path | None = None
    ledger: str | None = field(default=None, repr=False)
    factory: str | None = None
    validators: str | None = None
    actor: str | None = None
    forget_key_env: str | None = None
    superseded: Mapping[str, Superseded] = field(default_factory=dict)
    retention: Mapping[str, str] = field(default_factory=dict)
    """How long facts are kept, by pattern of spaces; see `custody_sync.retention`."""

    paces: Mapping[str, Pace] = field(default_factory=dict)
    """How many calls a store may get, by its name; the tables `[stores.NAME]`."""

    def ledger_url(self) -> str:
        """Return the ledger's URL, or say in one sentence how to name one."""
        if self.ledger is None:
            raise InvalidInput(
                field="ledger",
                problem=f"give --ledger, set {LEDGER_VARIABLE} or run `custody-sync init` first",
            )
        return self.ledger

    def forget_key(self, environ: Mapping[str, str] = os.environ) -> bytes | None:
        """Return the key of erased values' digests from the variable that `forget_key_env` names.

        A named variable that is not set is an error: an erasure would silently keep no digest.
        """
        if self.forget_key_env is None:
            return None
        key = environ.get(self.forget_key_env, "")
        if not key:
            # What is no name of a variable may be the key itself.
            named = (
                f" {self.forget_key_env}" if _VARIABLE.fullmatch(self.forget_key_env) else " that it names"
            )
            raise InvalidInput(field="forget_key_env", problem=f"the variable{named} is not set")
        return os.fsencode(key)


def load_settings(
    config: str | os.PathLike[str] | None = None,
    ledger: str | None = None,
    *,
    missing_ok: bool = False,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Settings:
    """Read `custody.toml` and lay option and environment over it; the option wins, then the environment.

    Without `config` and `CUSTODY_SYNC_CONFIG`, `custody.toml` in the current folder is read if it
    is there; parent folders are never searched, so that a run never picks up a stranger's file.
    A named file that is missing is an error unless `missing_ok`.
    """
    here = Path.cwd() if cwd is None else cwd
    path = config_path(config, environ=environ, cwd=here)
    named = config is not None or bool(environ.get(CONFIG_VARIABLE))
    # Of a name that no file can have, `Path.is_file` raises.
    found = os.path.isfile(path)
    table = _read_table(path) if found or (named and not missing_ok) else {}
    override = ledger if ledger is not None else environ.get(LEDGER_VARIABLE) or None
    url = resolve_ledger(override, here) if override is not None else None
    if url is None and "ledger" in table:
        url = resolve_ledger(table["ledger"], path.parent)
    return Settings(
        folder=path.parent,
        config=path if found else None,
        ledger=url,
        factory=table.get("factory"),
        validators=table.get("validators"),
        actor=table.get("actor"),
        forget_key_env=table.get("forget_key_env"),
        superseded=table.get("superseded", {}),
        retention=table.get("retention", {}),
        paces={store: read_pace(store, pace) for store, pace in table.get("stores", {}).items()},
    )


def config_path(
    config: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Path:
    """Return where the settings are, or would be, as an absolute path."""
    here = Path.cwd() if cwd is None else cwd
    return Path(os.path.abspath(here / (config or environ.get(CONFIG_VARIABLE) or CONFIG_NAME)))


def resolve_ledger(url: str, base: Path) -> str:
    """Make the path of a file ledger absolute, starting at `base`; any other URL stays as it is."""
    name, separator, rest = url.partition("://")
    url = f"{name.lower()}{separator}{rest}" if separator else url
    for scheme in _FILE_SCHEMES:
        path = url.removeprefix(scheme)
        if path != url and path:
            return scheme + os.path.abspath(base / path)
    return url


def _read_table(path: Path) -> dict[str, Any]:
    try:
        with opened(path) as file:
            raw = file.read(_LARGEST + 1)
    except OSError as error:
        raise InvalidInput(field=str(path), problem=error.strerror or type(error).__name__) from None
    except ValueError:
        raise InvalidInput(field=ascii(str(path)), problem="no file can have that name") from None
    if len(raw) > _LARGEST:
        raise InvalidInput(field=str(path), problem="is too large for settings")
    table: dict[str, Any] | None = None
    place = ""
    try:
        table = tomllib.loads(raw.decode("utf-8-sig"))
    except (RecursionError, ValueError) as error:
        # Not only the parser's own: it leaves numbers of any length, and any nesting, to Python.
        place = _place(error)
    if table is None:
        # The parser's error carries the text, which may hold a secret: it must not hang on ours as context.
        raise InvalidInput(field=str(path), problem=f"not valid TOML{place}")
    _check(table, path)
    return table


def _place(error: Exception) -> str:
    start = str(error).rfind("(at ")
    return " " + str(error)[start:] if start >= 0 else ""


def _check(table: Mapping[str, Any], path: Path) -> None:
    for key, value in table.items():
        if key not in _KEYS:
            raise InvalidInput(field=str(path), problem=f"unknown key {key!r}; known are {', '.join(_KEYS)}")
        wanted = _KEYS[key]
        if not isinstance(value, wanted) or (wanted is str and not value.strip()):
            what = "a table" if wanted is dict else "a string that is not empty"
            raise InvalidInput(field=str(path), problem=f"{key} is {what}")
    for store, policy in table.get("superseded", {}).items():
        if policy not in ("remove", "keep"):
            raise InvalidInput(field=str(path), problem=f"superseded.{store} is 'remove' or 'keep'")
    try:
        if table.get("retention"):
            read_windows(table["retention"], "retention")
        for store, pace in table.get("stores", {}).items():
            read_pace(store, pace)
    except InvalidInput as error:
        problem = str(error).rstrip(".")
    else:
        return
    raise InvalidInput(field=str(path), problem=problem)


def read_pace(store: str, table: object) -> Pace:
    """Return a store's pace as `[stores.NAME]` states it.

    Raises:
        InvalidInput: names the key that is none, or its value that cannot be.
    """
    if not isinstance(table, dict):
        raise InvalidInput(field=f"stores.{store}", problem="is a table with concurrency and per_second")
    for key in table:
        if key not in ("concurrency", "per_second"):
            problem = f"unknown key {key!r}; known are concurrency and per_second"
            raise InvalidInput(field=f"stores.{store}", problem=problem)
    problem = ""
    try:
        return Pace(**table)
    except InvalidInput as error:
        problem = str(error).rstrip(".")
    raise InvalidInput(field=f"stores.{store}", problem=problem)


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Sequence[Store]]:
    """Make the stores that `factory` names, and close them afterwards if it is a context manager.

    The factory is a callable, sync or async, that returns the stores or an asynchronous context
    manager of them. What it raises is told as type and place only: its text may quote a password.
    """
    if settings.factory is None:
        yield ()
        return
    factory = import_target(settings.folder, "factory", settings.factory)
    if not callable(factory):
        raise InvalidInput(field="factory", problem=f"{settings.factory} is not callable")
    async with AsyncExitStack() as stack:
        made: Any = None
        failed: InvalidInput | None = None
        try:
            made = factory()
            if inspect.isawaitable(made):
                made = await made
            if hasattr(made, "__aenter__"):
                made = await stack.enter_async_context(made)
        except CustodyError:
            raise
        except Exception as error:
            failed = _failed("factory", settings.factory, error)
        if failed is not None:
            raise failed
        yield _listed("factory", f"{settings.factory} returned", made, "stores")


async def load_validators(settings: Settings) -> Sequence[Validator]:
    """Return the validators that `validators` names: a sequence of them, or a callable that gives one.

    The callable takes no arguments and may be async. What it raises is told as type and place only.
    """
    target = settings.validators
    if target is None:
        return ()
    made: Any = import_target(settings.folder, "validators", target)
    said = f"{target} is"
    if callable(made) and not hasattr(made, "__iter__"):
        _check_argumentless(target, made)
        said, failed = f"{target} returned", None
        try:
            made = made()
            if inspect.isawaitable(made):
                made = await made
        except CustodyError:
            raise
        except Exception as error:
            failed = _failed("validators", target, error)
        if failed is not None:
            raise failed
    validators = _listed("validators", said, made, "validators")
    for validator in validators:
        if not callable(validator):
            problem = f"{target} has a {type(validator).__name__} among its validators; each is a callable"
            raise InvalidInput(field="validators", problem=problem)
    return validators


def _check_argumentless(target: str, made: Callable[..., Any]) -> None:
    try:
        inspect.signature(made).bind()
    except TypeError:
        problem = f"{target} takes arguments; name a list of validators, or a callable that returns one"
        raise InvalidInput(field="validators", problem=problem) from None
    except ValueError:
        # Some builtins do not say what they take; calling them will.
        return


def import_target(where: Path, key: str, target: str) -> Any:
    """Return what `module:name` names; the module may lie in the folder. `key` is whose value it is."""
    module, _, attribute = target.partition(":")
    if not module or not attribute.isidentifier():
        # As in a duration, what is a URL is not repeated.
        said = "a URL" if "://" in target else repr(target)
        raise InvalidInput(field=key, problem=f"{said} is not of the form 'module:name'")
    folder = str(where)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    failed: InvalidInput | None = None
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        problem = f"there is no module {error.name} (looked in {folder} too)"
        failed = InvalidInput(field=key, problem=problem)
    except CustodyError:
        raise
    except Exception as error:
        if isinstance(error, AttributeError) and module in sys.modules:
            failed = InvalidInput(field=key, problem=f"module {module} has no {attribute}")
        else:
            failed = _failed(key, target, error)
    raise failed


def _listed(key: str, said: str, made: Any, what: str) -> Sequence[Any]:
    if isinstance(made, str | bytes | Mapping) or not hasattr(made, "__iter__"):
        raise InvalidInput(field=key, problem=f"{said} {type(made).__name__}, not a list of {what}")
    return list(made)


def _failed(key: str, target: str, error: Exception) -> InvalidInput:
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = f" at {Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last is not None else ""
    return InvalidInput(field=key, problem=f"{target} failed with {type(error).__name__}{place}")


__all__ = [
    "CONFIG_NAME",
    "CONFIG_VARIABLE",
    "LEDGER_VARIABLE",
    "Settings",
    "Superseded",
    "config_path",
    "import_target",
    "load_settings",
    "load_validators",
    "open_stores",
    "read_pace",
    "resolve_ledger",
]
