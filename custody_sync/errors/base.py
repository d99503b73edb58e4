"""The root of every error: a stable code, fields instead of prose, and a message from the docstring."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self


class CustodyError(Exception):
    """custody-sync could not do what was asked."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2
    """The command line's exit status: 2 usage, 3 partial, 4 refused, 5 ledger unavailable."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        super().__init__(self._message())

    def _message(self) -> str:
        line = (type(self).__doc__ or "").strip().split("\n\n")[0]
        said = " ".join(line.split()).format_map(_Blank(self._shown()))
        left = self.fields.get("left")
        return f"{said} Entries may be left in: {', '.join(left)}." if left and "{left}" not in line else said

    def _shown(self) -> dict[str, Any]:
        """Return the fields as the sentence words them."""
        return self.fields

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)

    def leaving(self, stores: list[str]) -> Self:
        """Return this error, saying in which stores something may be left of what it undid."""
        return type(self)(**self.fields, left=stores) if stores else self

    def to_dict(self) -> dict[str, Any]:
        """Return code, message and fields, ready for JSON."""
        return {"code": self.code, "message": str(self), **{k: _plain(v) for k, v in self.fields.items()}}


def again(error: BaseException) -> BaseException:
    """Return an exception of its own for one more caller, so that tracebacks do not pile up."""
    return type(error)(**error.fields) if isinstance(error, CustodyError) else error


class _Blank(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def _rebuild(cls: type[CustodyError], fields: dict[str, Any]) -> CustodyError:
    return cls(**fields)


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value)


class Transient:
    """Mixin: trying again later may succeed."""


class Terminal:
    """Mixin: trying the same again cannot succeed."""


def throw(problem: CustodyError) -> NoReturn:
    """Raise an error of ours without the one it stands for; `from None` would only hide that one."""
    try:
        raise problem
    finally:
        problem.__context__ = None
