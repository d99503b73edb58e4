"""The adapters: one module per store, each importing its vendor only when it is used."""
