"""Stores by name: deferred, refused by one sentence, never silently replaced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from custody_sync import registry
from custody_sync.errors import InvalidStore, MissingExtra


class Own:
    """A store class of somebody else."""


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(registry._registered)
    monkeypatch.delenv(registry.LOAD_PLUGINS, raising=False)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def test_known_stores_stand_in_alphabetical_order() -> None:
    """The list of ours is alphabetical, so that a new one has one place."""
    assert list(registry.known_stores) == sorted(registry.known_stores)


def test_every_known_store_loads_and_names_its_extra() -> None:
    """Each name leads to a class that can be imported here, where all extras are installed."""
    for name, known in registry.known_stores.items():
        assert callable(registry.store_class(name))
        assert f"custody-sync[{known.extra}]" in known.install


def test_views_are_read_only() -> None:
    """Neither view can be changed from outside."""
    with pytest.raises(TypeError):
        registry.registered_stores["own"] = Own  # type: ignore[index]  # that is the test
    with pytest.raises(TypeError):
        del registry.known_stores["pgvector"]  # type: ignore[attr-defined]  # that is the test


def test_a_registered_class_is_found_and_listed() -> None:
    """What a program registers is known at once, also through the view taken before."""
    view = registry.registered_stores
    registry.register_store("own", Own)
    assert registry.store_class("own") is Own
    assert view["own"] is Own
    assert "own" in registry.store_names()


def test_a_target_is_imported_only_when_asked_for() -> None:
    """A `module:Class` that does not exist can be registered; asking for it says which module is missing."""
    registry.register_store("later", "no_such_package.memory:Store")
    with pytest.raises(InvalidStore, match="there is no module no_such_package"):
        registry.store_class("later")


@pytest.mark.parametrize("name", ["own", "pgvector"])
def test_a_taken_name_needs_clobber(name: str) -> None:
    """A name that is taken, by us or by another program, is replaced only on purpose."""
    registry.register_store("own", "somebody.memory:Store")
    with pytest.raises(InvalidStore, match="clobber=True"):
        registry.register_store(name, Own)
    registry.register_store(name, Own, clobber=True)
    assert registry.store_class(name) is Own


def test_registering_the_same_again_is_no_conflict() -> None:
    """A module that is imported twice registers twice without an error."""
    registry.register_store("own", Own)
    registry.register_store("own", Own)
    assert registry.store_class("own") is Own


@pytest.mark.parametrize("name", ["", "Own", "own store", "own\n", "9own", "../own"])
def test_a_name_that_no_option_could_carry_is_refused(name: str) -> None:
    """Names are lower-case words."""
    with pytest.raises(InvalidStore):
        registry.register_store(name, Own)


@pytest.mark.parametrize("target", ["module", ":Class", "module:", "module:Class.inner", 7])
def test_a_thing_that_is_no_class_is_refused(target: object) -> None:
    """Only a callable or a `module:Class` makes a store."""
    with pytest.raises(InvalidStore, match="module:Class"):
        registry.register_store("own", target)  # type: ignore[arg-type]  # that is the test


def test_an_unknown_name_lists_the_known_ones() -> None:
    """A misspelt name is answered with the names there are."""
    with pytest.raises(InvalidStore, match="langgraph, letta, mem0, pgvector"):
        registry.store_class("pgvektor")


def test_a_missing_vendor_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that cannot import its vendor says what to install, with the whole extra."""

    def without_vendor(name: str) -> object:
        raise ModuleNotFoundError(name="psycopg")

    monkeypatch.setattr(registry.importlib, "import_module", without_vendor)
    with pytest.raises(MissingExtra) as caught:
        registry.store_class("pgvector")
    assert "pip install 'custody-sync[pgvector]'" in str(caught.value)


def test_entry_points_are_known_and_can_be_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other packages' stores are found by entry point, unless the environment names the allowed ones."""
    point = EntryPoint("other", "custody_sync.errors:InvalidStore", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert registry.store_class("other") is InvalidStore
    monkeypatch.setenv(registry.LOAD_PLUGINS, "another")
    assert "other" not in registry.store_names()
    monkeypatch.setenv(registry.LOAD_PLUGINS, "another, other")
    assert "other" in registry.store_names()


def test_listing_names_imports_no_store() -> None:
    """Names cost no vendor and no adapter."""
    code = (
        "import sys; from custody_sync.registry import store_names; store_names(); "
        "print([m for m in sys.modules if m.split('.')[0] in ('psycopg', 'langgraph', 'pgvector')"
        " or m.startswith('custody_sync.adapters')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
