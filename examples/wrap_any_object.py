"""Any object that can be searched, added to and deleted from, guarded; and a tool of it for an agent.

Runs offline; the index is a dict in memory, in place of whatever you have.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from custody_sync.faces.tool import recall_tool, tool_schema
from custody_sync.faces.wrap import wrap
from custody_sync.testing.embedding import WordEmbedder

embed = WordEmbedder(64)


class Index:
    """The index of your application: it knows vectors, and nothing of who said what and when."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[str, dict[str, object]]] = {}
        self.numbers = itertools.count(1)

    def query(self, text: str, top: int) -> list[tuple[int, str, float, dict[str, object]]]:
        """Return the nearest rows: id, text, score, metadata."""
        asked = embed(text)
        scored = [
            (number, body, sum(a * b for a, b in zip(asked, embed(body), strict=True)), metadata)
            for number, (body, metadata) in self.rows.items()
        ]
        return sorted(scored, key=lambda row: -row[2])[:top]

    def upsert(self, text: str, metadata: dict[str, object]) -> int:
        """Keep a text and return its number."""
        number = next(self.numbers)
        self.rows[number] = (text, metadata)
        return number

    def fetch(self, number: int) -> tuple[int, str] | None:
        """Return one row, or None."""
        return (number, self.rows[number][0]) if number in self.rows else None

    def remove(self, number: int) -> None:
        """Drop a text."""
        del self.rows[number]


def main() -> None:
    """Tell the story."""
    index = Index()
    with tempfile.TemporaryDirectory() as folder:
        # The line that changes.
        memory = wrap(
            search=index.query,
            add=index.upsert,
            delete=index.remove,
            get=index.fetch,
            ledger=f"sqlite:///{Path(folder) / 'custody.db'}",
        )
        with memory:
            user = memory.within("user:42").acting_as("agent:chat")

            # Everything after it works as before, and is on record.
            home = user.add("I live in Lyon", {"turn": 3})
            phone = user.add("My phone number is 555-0144")
            print("found:", user.search("where do I live", k=1))

            # A change says what it replaces; what it replaced is never found again.
            user.add("I live in Paris", {"turn": 9}, supersedes=home)
            print("found:", [found.text for found in user.search("I live in Lyon", k=5)])

            # A delete is a verified erasure, earlier versions included.
            print("deleted and seen gone:", user.delete(phone))
            assert [body for body, _ in index.rows.values()] == ["I live in Paris"]

            # Whatever else got into the index is left out.
            index.upsert("I live in Rome", {})
            assert [found.text for found in user.search("I live in Rome", k=5)] == ["I live in Paris"]

            # For an agent: it may ask, and neither where nor when.
            tool = recall_tool(memory.custody, spaces=["user:42"], k=3)
            print("schema:", tool_schema(tool)["parameters"]["properties"])
            print(tool("where does the user live"))


if __name__ == "__main__":
    main()
