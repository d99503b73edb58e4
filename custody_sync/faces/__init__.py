"""Interfaces that people already call, with a ledger under them.

Each is loaded from its own module, which names what has to be installed: `custody_sync.faces.langgraph`,
`custody_sync.faces.langchain`, `custody_sync.faces.mem0`, `custody_sync.faces.wrap`; and `tool`, a recall for
agents.
"""
