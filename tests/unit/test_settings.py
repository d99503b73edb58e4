"""custody.toml, the environment and options: who wins, what is refused, what paths mean."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody_sync.errors import InvalidInput, MissingExtra
from custody_sync.ledger import Ledger
from custody_sync.settings import Settings, load_settings, load_validators, open_stores, resolve_ledger


@pytest.fixture(autouse=True)
def _own_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("memory_of_"):
            del sys.modules[name]


def _write(folder: Path, text: str) -> Path:
    path = folder / "custody.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _load(folder: Path, **environ: str) -> Settings:
    return load_settings(cwd=folder, environ=environ)


def test_nothing_configured_leaves_the_ledger_open(tmp_path: Path) -> None:
    """Without file, environment and option there are settings, and asking for the ledger says what to do."""
    settings = _load(tmp_path)
    assert settings.config is None
    with pytest.raises(InvalidInput, match=r"--ledger.*custody-sync init"):
        settings.ledger_url()


def test_a_full_file_is_read(tmp_path: Path) -> None:
    """Every documented key arrives."""
    path = _write(
        tmp_path,
        'ledger = "sqlite:///custody.db"\nfactory = "myapp.memory:stores"\nactor = "operator:x"\n'
        'validators = "myapp.memory:validators"\nforget_key_env = "KEY"\n[superseded]\narchive = "keep"\n'
        '[retention]\norg = "P2Y"\n"team:*" = "P90D"\n',
    )
    settings = _load(tmp_path)
    assert settings.config == path
    assert settings.ledger_url() == f"sqlite:///{tmp_path}/custody.db"
    assert (settings.factory, settings.actor) == ("myapp.memory:stores", "operator:x")
    assert settings.validators == "myapp.memory:validators"
    assert settings.superseded == {"archive": "keep"}
    assert settings.retention == {"org": "P2Y", "team:*": "P90D"}
    assert settings.forget_key({"KEY": "secret"}) == b"secret"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('org = "PT"', "retention.org: 'PT' is no duration"),
        ("org = 90", "retention.org: must be a text such as P90D, not int"),
        ('"" = "P1D"', "must not be empty or blank"),
        ('"a*b" = "P1D"', "has a * that is not its end"),
        ('org.eu = "P1D"', "must be a text such as P90D, not dict"),
    ],
)
def test_c11_retention_is_checked_when_loaded(tmp_path: Path, line: str, said: str) -> None:
    """C11: a wrong window refuses the whole file, in one sentence that names file and window."""
    path = _write(tmp_path, f'ledger = "sqlite:///custody.db"\n[retention]\nuser = "P1D"\n{line}\n')
    with pytest.raises(InvalidInput) as caught:
        _load(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_windows_are_no_error(tmp_path: Path) -> None:
    """An empty table says nothing."""
    _write(tmp_path, "[retention]\n")
    assert _load(tmp_path).retention == {}


def test_option_beats_environment_beats_file(tmp_path: Path) -> None:
    """The nearer a ledger was named, the more it counts."""
    _write(tmp_path, 'ledger = "sqlite:///file.db"\n')
    environ = {"CUSTODY_SYNC_LEDGER": "sqlite:///variable.db"}
    assert _load(tmp_path).ledger == f"sqlite:///{tmp_path}/file.db"
    assert _load(tmp_path, **environ).ledger == f"sqlite:///{tmp_path}/variable.db"
    chosen = load_settings(ledger="sqlite:///option.db", cwd=tmp_path, environ=environ)
    assert chosen.ledger == f"sqlite:///{tmp_path}/option.db"


def test_a_relative_ledger_in_the_file_starts_at_the_file(tmp_path: Path) -> None:
    """custody.toml means the same ledger from anywhere; an option starts where one stands."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    path = _write(home, 'ledger = "sqlite:///data/custody.db"\n')
    environ = {"CUSTODY_SYNC_CONFIG": str(path)}
    assert load_settings(cwd=elsewhere, environ=environ).ledger == f"sqlite:///{home}/data/custody.db"
    chosen = load_settings(ledger="sqlite:///custody.db", cwd=elsewhere, environ=environ)
    assert chosen.ledger == f"sqlite:///{elsewhere}/custody.db"


@pytest.mark.parametrize("name", ["50% off", "a#b", "what?", "x%41y", "with space", "~tilde"])
def test_a_path_means_itself(tmp_path: Path, name: str) -> None:
    """Characters that are special in URLs and shells are part of the name."""
    assert resolve_ledger(f"sqlite:///{name}/c.db", tmp_path) == f"sqlite:///{tmp_path}/{name}/c.db"


@pytest.mark.parametrize("url", ["SQLITE:///a.db", "SQLite:///a.db"])
async def test_a_scheme_may_be_in_capitals(tmp_path: Path, url: str) -> None:
    """As in any URL."""
    resolved = resolve_ledger(url, tmp_path)
    assert resolved == f"sqlite:///{tmp_path}/a.db"
    async with await Ledger.open(resolved.replace("sqlite", "SQLITE"), create=True, witness=False) as ledger:
        assert (await ledger.head()).seq == 0


@pytest.mark.parametrize("url", ["postgress://u:pw@h/d", "postgresql:/h/d", "custody.db"])
async def test_a_mistyped_url_is_told_every_form(url: str) -> None:
    """The sentence shows what a URL of each storage looks like, and nothing of this one."""
    with pytest.raises(InvalidInput) as raised:
        await Ledger.open(url)
    said = str(raised.value)
    for form in ("sqlite:///custody.db", "jsonl:///custody.jsonl", "postgresql://user@host/database"):
        assert form in said
    assert "pw" not in said


@pytest.mark.parametrize("url", ["postgresql://host/db", "sqlite://x/led", "sqlite:///", "nonsense"])
def test_what_is_no_file_ledger_stays_as_it_is(tmp_path: Path, url: str) -> None:
    """Only the ledger judges other URLs."""
    assert resolve_ledger(url, tmp_path) == url


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """A mistyped CUSTODY_SYNC_CONFIG must not fall back to no settings."""
    with pytest.raises(InvalidInput, match=r"custdy.toml: No such file or directory\.$"):
        _load(tmp_path, CUSTODY_SYNC_CONFIG=str(tmp_path / "custdy.toml"))


def test_parent_folders_are_not_searched(tmp_path: Path) -> None:
    """Settings further up are somebody else's."""
    _write(tmp_path, 'ledger = "sqlite:///custody.db"\n')
    below = tmp_path / "below"
    below.mkdir()
    assert _load(below).ledger is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("leger = 'x'\n", "unknown key 'leger'"),
        ("ledger = 7\n", "ledger is a string"),
        ("ledger = ' '\n", "ledger is a string"),
        ("superseded = 'keep'\n", "superseded is a table"),
        ("[superseded]\na = 'hold'\n", "superseded.a"),
        ("actor = true\n", "actor is a string"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, text: str, said: str) -> None:
    """An unknown key or a wrong type is refused by its name, never ignored."""
    _write(tmp_path, text)
    with pytest.raises(InvalidInput, match=said):
        _load(tmp_path)


def test_broken_toml_tells_the_place_and_not_the_text(tmp_path: Path) -> None:
    """A parser's message may quote a secret; only the place is passed on, in every form of the error."""
    _write(tmp_path, 'ledger = "postgresql://svc:pw-7Q@db.invalid/led\n')
    with pytest.raises(InvalidInput, match=r"not valid TOML.*line 1") as caught:
        _load(tmp_path)
    error = caught.value
    told = "".join(traceback.format_exception(error)) + repr(error) + str(error.to_dict())
    assert "pw-7Q" not in told
    assert caught.value.__context__ is None


def test_settings_do_not_show_the_ledger_url(tmp_path: Path) -> None:
    """A URL may carry a password, and a repr ends up in logs."""
    assert "pw-7Q" not in repr(load_settings(ledger="postgresql://svc:pw-7Q@h/l", cwd=tmp_path, environ={}))


def test_a_forget_key_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """An erasure must not silently keep no digest because a variable was forgotten."""
    _write(tmp_path, 'forget_key_env = "CUSTODY_FORGET_KEY"\n')
    with pytest.raises(InvalidInput, match="CUSTODY_FORGET_KEY is not set"):
        _load(tmp_path).forget_key({})


async def _stores(folder: Path, module: str, code: str, attribute: str = "stores") -> list[object]:
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    _write(folder, f'factory = "{module}:{attribute}"\n')
    async with open_stores(_load(folder)) as stores:
        return list(stores)


_FACTORIES = {
    "plain": "def stores():\n    return ['a', 'b']\n",
    "asynchronous": "async def stores():\n    return ('a', 'b')\n",
    "manager": (
        "from contextlib import asynccontextmanager\nclosed = []\n"
        "@asynccontextmanager\nasync def stores():\n    yield ['a', 'b']\n    closed.append(1)\n"
    ),
    "late": (
        "from contextlib import asynccontextmanager\n@asynccontextmanager\nasync def made():\n"
        "    yield ['a', 'b']\nasync def stores():\n    return made()\n"
    ),
}


@pytest.mark.parametrize("form", _FACTORIES)
async def test_a_factory_has_four_forms(tmp_path: Path, form: str) -> None:
    """Sync, async, a context manager, and an async function that returns one all give their stores."""
    assert await _stores(tmp_path, f"memory_of_{form}", _FACTORIES[form]) == ["a", "b"]


async def test_a_context_manager_is_left_again(tmp_path: Path) -> None:
    """What a factory opens it may close, after the last use."""
    await _stores(tmp_path, "memory_of_closing", _FACTORIES["manager"])
    assert sys.modules["memory_of_closing"].closed == [1]


async def test_no_factory_means_no_stores(tmp_path: Path) -> None:
    """The ledger can be used alone."""
    async with open_stores(_load(tmp_path)) as stores:
        assert list(stores) == []


@pytest.mark.parametrize(
    ("code", "attribute", "said"),
    [
        ("x = 1\n", "stores", "has no stores"),
        ("stores = 3\n", "stores", "is not callable"),
        ("def stores():\n    return 'pgvector'\n", "stores", "returned str"),
        ("def stores():\n    return 5\n", "stores", "returned int"),
        ("import no_such_vendor\n", "stores", "no module no_such_vendor"),
        (
            "def stores():\n    raise ValueError('pw-7Q')\n",
            "stores",
            r"failed with ValueError at memory_of_\w+.py:2",
        ),
        ("raise OSError('pw-7Q')\n", "stores", r"failed with OSError at memory_of_\w+.py:1"),
        ("x = 1\n", "not an identifier", "of the form"),
    ],
)
async def test_a_factory_that_fails_is_told_by_place(
    tmp_path: Path, code: str, attribute: str, said: str, request: pytest.FixtureRequest
) -> None:
    """Each failure is one sentence, and what the factory raised is never quoted: it may hold a password."""
    module = f"memory_of_{abs(hash(request.node.name))}"
    with pytest.raises(InvalidInput, match=said) as caught:
        await _stores(tmp_path, module, code, attribute)
    assert "pw-7Q" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


async def test_a_missing_extra_in_a_factory_keeps_its_sentence(tmp_path: Path) -> None:
    """Our own errors already are one sentence."""
    code = (
        "from custody_sync.errors import MissingExtra\n"
        "def stores():\n    raise MissingExtra(feature='store x', extra='mem0')\n"
    )
    with pytest.raises(MissingExtra, match=r"custody-sync\[mem0\]"):
        await _stores(tmp_path, "memory_of_extra", code)


async def _validators(folder: Path, module: str, code: str) -> list[object]:
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    _write(folder, f'validators = "{module}:validators"\n')
    return list(await load_validators(_load(folder)))


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ("sequence", "validators = (len, repr)\n"),
        ("plain", "def validators():\n    return [len, repr]\n"),
        ("asynchronous", "async def validators():\n    return [len, repr]\n"),
    ],
)
async def test_validators_have_three_forms(tmp_path: Path, form: str, code: str) -> None:
    """A sequence, a callable and an async callable all give the validators, in their order."""
    assert await _validators(tmp_path, f"memory_of_validators_{form}", code) == [len, repr]


async def test_no_validators_are_none(tmp_path: Path) -> None:
    """Without the key nothing is imported."""
    assert list(await load_validators(_load(tmp_path))) == []


@pytest.mark.parametrize(
    ("form", "code", "said"),
    [
        ("single", "async def validators(fact, view):\n    return fact\n", "takes arguments; name a list"),
        ("text", "validators = 'redact'\n", "is str, not a list of validators"),
        ("number", "def validators():\n    return 5\n", "returned int, not a list"),
        ("member", "validators = ['redact']\n", "has a str among its validators"),
        ("absent", "x = 1\n", "has no validators"),
        (
            "raising",
            "def validators():\n    raise ValueError('pw-7Q')\n",
            r"failed with ValueError at memory_of_\w+.py:2",
        ),
    ],
)
async def test_wrong_validators_are_told_by_place(tmp_path: Path, form: str, code: str, said: str) -> None:
    """Each failure is one sentence about the key, and quotes nothing that the module raised."""
    with pytest.raises(InvalidInput, match=f"^validators: .*{said}") as caught:
        await _validators(tmp_path, f"memory_of_wrong_validators_{form}", code)
    assert "pw-7Q" not in "".join(traceback.format_exception(caught.value))
