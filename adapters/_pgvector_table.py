"""How an entry lies in a table that was there before us: which of its columns are what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from custody_sync.adapters._scopes import Scoping
from custody_sync.errors import InvalidInput
from custody_sync.model import Fact

LABEL_KEYS = ("source", "v", "ledger_id", "fact_id", "space", "stored_at", "custody")
NEEDED_KEYS = ("ledger_id", "fact_id", "space", "stored_at", "custody")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingTable:
    """Which columns of an existing table hold what; checked against the database at the first use.

    Nothing of the table is changed: no column, no index, no row that is not ours. Where it has more
    columns than are named here, they get their defaults, or what `others` says.
    """

    id: str
    """A unique column: text, uuid (both filled by us), or a number that the database gives."""
    embedding: str
    text: str | None = None
    """A text column, unless the text lies in the label's JSON."""
    text_key: str | None = None
    """The key in the JSON of `label` under which the text lies, as Mem0's `data` does."""
    label: str | None = None
    """A jsonb column that takes the label's keys beside whatever else the application keeps there."""
    label_columns: Mapping[str, str] | None = None
    """Instead of `label`: a column for each of ledger_id, fact_id, space, stored_at and custody."""
    scope_column: str | None = None
    """A column such as `tenant` or `collection_id` that every row has to have."""
    scope: Scoping = "{space}"
    """What stands in `scope_column`: a fixed value, a template, or a function of the fact."""
    created_at: str | None = None
    """A timestamptz column with the time a row was made."""
    others: Callable[[Fact], Mapping[str, Any]] | None = None
    """Values of further columns; a mapping under the name of `label` adds keys to its JSON."""
    schema: str | None = None

    def __post_init__(self) -> None:
        """Refuse a mapping that cannot be meant, before any database is asked."""
        if (self.label is None) is (self.label_columns is None):
            raise _invalid("name either label, one jsonb column, or label_columns")
        if (self.text is None) is (self.text_key is None):
            raise _invalid("name either text, a column, or text_key, a key in the label's JSON")
        if self.text_key is not None and (self.label is None or self.text_key in LABEL_KEYS):
            raise _invalid("text_key needs label, and a key that the label does not use itself")
        if self.label_columns is not None:
            missing = sorted(set(NEEDED_KEYS) - set(self.label_columns))
            unknown = sorted(set(self.label_columns) - set(LABEL_KEYS))
            if missing or unknown:
                said = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)}"
                raise _invalid(f"label_columns {said}; it takes {', '.join(LABEL_KEYS)}")
        named: list[object] = list(self.columns.values())
        if any(not isinstance(name, str) or not name for name in named):
            raise _invalid("a column's name is a text that is not empty")
        if any("%" in str(name) for name in (*named, self.schema, self.text_key)):
            raise _invalid("a name with % in it cannot be used: psycopg reads % as a place for a value")
        if len(set(named)) < len(named):
            raise _invalid("one column is named for two things")

    @property
    def columns(self) -> dict[str, str]:
        """What each named column is for, by purpose."""
        single = {
            "id": self.id,
            "embedding": self.embedding,
            "text": self.text,
            "label": self.label,
            "scope_column": self.scope_column,
            "created_at": self.created_at,
        }
        flat = {f"label_columns[{key}]": name for key, name in (self.label_columns or {}).items()}
        return {purpose: name for purpose, name in single.items() if name is not None} | flat


def _invalid(problem: str) -> InvalidInput:
    return InvalidInput(field="existing", problem=problem)
