"""The command `custody-sync`: one file per noun, results on stdout, everything else on stderr."""
