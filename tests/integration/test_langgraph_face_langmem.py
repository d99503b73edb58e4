"""LangMem's own tools work on the LangGraph face unchanged, called, awaited and in a graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from custody_sync.faces.langgraph import CustodyStore
from custody_sync.testing.embedding import WordEmbedder

langmem = pytest.importorskip(
    "langmem", reason="langmem brings the clients of two model vendors; where it is installed this runs"
)
pytestmark = pytest.mark.filterwarnings("ignore")  # langmem's and its dependencies' own
NAMESPACE = ("memories", "{langgraph_user_id}")
WHO: Any = {"configurable": {"langgraph_user_id": "u-1"}}


def over(folder: Path) -> CustodyStore:
    """Return a face over an indexed store in memory."""
    raw = InMemoryStore(index={"dims": 64, "embed": WordEmbedder(64).many})
    return CustodyStore.over(raw, f"sqlite:///{folder / 'custody.db'}", actor="agent:langmem")


def test_the_tools_create_find_update_and_delete(tmp_path: Path) -> None:
    """What the agent remembers is a fact, what it updates a correction, what it deletes is erased."""
    with over(tmp_path) as store:
        manage = langmem.create_manage_memory_tool(namespace=NAMESPACE, store=store)
        search = langmem.create_search_memory_tool(namespace=NAMESPACE, store=store)

        def found(query: str) -> list[Any]:
            return [
                row["value"]["content"] for row in json.loads(search.invoke({"query": query}, config=WHO))
            ]

        said = manage.invoke({"content": "Ann likes green tea", "action": "create"}, config=WHO)
        key = said.split()[-1]
        assert found("green tea") == ["Ann likes green tea"]
        manage.invoke({"content": "Ann likes coffee", "action": "update", "id": key}, config=WHO)
        assert found("green tea") == ["Ann likes coffee"]
        (card,) = store.custody.card(f"memories/u-1/{key}", "item")  # type: ignore[misc]  # it is a Coordinator
        assert [link.fact.value for link in card.chain] == [
            {"content": "Ann likes green tea"},
            {"content": "Ann likes coffee"},
        ]
        manage.invoke({"action": "delete", "id": key}, config=WHO)
        assert found("green tea") == []


async def test_the_tools_are_awaited_and_keep_users_apart(tmp_path: Path) -> None:
    """In a loop the same tools work, and each user's memories are in a space of their own."""
    async with over(tmp_path) as store:
        manage = langmem.create_manage_memory_tool(namespace=NAMESPACE, store=store)
        search = langmem.create_search_memory_tool(namespace=NAMESPACE, store=store)
        await manage.ainvoke({"content": "Ann likes tea", "action": "create"}, config=WHO)
        other = {"configurable": {"langgraph_user_id": "u-2"}}
        assert len(json.loads(await search.ainvoke({"query": "tea"}, config=WHO))) == 1
        assert json.loads(await search.ainvoke({"query": "tea"}, config=other)) == []
        assert await store.alist_namespaces() == [("memories", "u-1")]


def test_the_tools_find_the_face_in_a_graph(tmp_path: Path) -> None:
    """A graph that is compiled with the face hands it to tools that were made without a store."""
    graphs = pytest.importorskip("langgraph.graph", reason="the graph itself needs the langgraph package")
    from langchain_core.messages import AIMessage
    from langgraph.prebuilt import ToolNode

    manage = langmem.create_manage_memory_tool(namespace=NAMESPACE)
    search = langmem.create_search_memory_tool(namespace=NAMESPACE)
    with over(tmp_path) as store:
        graph = graphs.StateGraph(graphs.MessagesState)
        graph.add_node("tools", ToolNode([manage, search]))
        graph.add_edge(graphs.START, "tools")
        app = graph.compile(store=store)

        def call(name: str, **args: Any) -> str:
            message = AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}])
            return str(app.invoke({"messages": [message]}, WHO)["messages"][-1].content)

        assert call("manage_memory", content="Ann likes tea", action="create").startswith("created")
        assert "Ann likes tea" in call("search_memory", query="tea")
