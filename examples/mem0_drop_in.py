"""An assistant that remembers through Mem0, with a ledger under it: one line changes.

Runs offline: Mem0's own library on a local Qdrant, with word counts in place of its embedding model. The
assistant calls what it called before; what it deletes is gone and stays gone, whatever an index still has.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from custody_sync.errors import InvalidInput
from custody_sync.faces.mem0 import Memory, as_memory
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64
ADA = {"user_id": "ada"}


class Words:
    """What Mem0 asks of an embedding model."""

    def __init__(self) -> None:
        self._embed = WordEmbedder(DIMENSIONS)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """Return the vector of a text."""
        return self._embed(text)


def plain_mem0(folder: Path) -> Any:
    """Return Mem0 as an application would have it; both switches are read when it is imported."""
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ["MEM0_DIR"] = str(folder / "mem0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mem0 = importlib.import_module("mem0")
    where = {
        "collection_name": "memories",
        "embedding_model_dims": DIMENSIONS,
        "path": str(folder / "qdrant"),
    }
    memory = mem0.Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": {**where, "on_disk": True}},
            "embedder": {"provider": "openai", "config": {"api_key": "unused"}},
            "llm": {"provider": "openai", "config": {"api_key": "unused"}},
            "history_db_path": ":memory:",
        }
    )
    memory.embedding_model = Words()
    return memory


def assistant(memory: Any) -> str:
    """Do what an assistant does; nothing in here knows of a ledger."""
    added = memory.add("Ada drinks her coffee black", **ADA, infer=False, metadata={"topic": "drinks"})
    memory.add("Ada lives in Lyon", **ADA, infer=False, metadata={"topic": "home"})
    coffee = str(added["results"][0]["id"])
    memory.update(coffee, "Ada drinks tea now")
    found = memory.search("what does Ada drink", filters={**ADA, "topic": "drinks"})
    print("found:  ", [one["memory"] for one in found["results"]])
    assert [one["memory"] for one in found["results"]] == ["Ada drinks tea now"]
    print("history:", [(row["event"], row["new_memory"]) for row in memory.history(coffee)])
    return coffee


def main() -> None:
    """Run the assistant on Mem0 with a ledger under it, then forget, and look what is left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = plain_mem0(folder)
        old = plain.add("Ada has a cat", **ADA, infer=False)["results"][0]["id"]

        # The line that changes; before it was `memory = plain`.
        memory = Memory.over(plain, f"sqlite:///{folder}/custody.db", actor="assistant")

        tea = assistant(memory)

        # What was there before is served once somebody answers for it, under the id it had.
        memory.custody.adopt("mem0", actor="ops:lin", space=as_memory, provenance="attested", dry_run=False)
        assert (memory.get(old) or {})["memory"] == "Ada has a cat"

        memory.delete(tea)
        assert memory.get(tea) is None
        assert "tea" not in str(memory.search("tea", filters=ADA)) + str(plain.get_all(filters=ADA))
        assert not any(row["old_memory"] or row["new_memory"] for row in memory.history(tea))
        print("deleted:", [row["event"] for row in memory.history(tea)], "and no text of it")

        for nobody in ("", None):
            try:
                memory.delete_all(user_id=nobody)
            except InvalidInput as refusal:
                print("refused:", refusal)
        assert len(memory.get_all(filters=ADA)["results"]) == 2

        memory.delete_all(**ADA)
        assert plain.get_all(filters=ADA)["results"] == []
        print("left:   ", memory.get_all(filters=ADA)["results"])
        memory.close()
        plain.close()
        plain.vector_store.client.close()


if __name__ == "__main__":
    main()
