"""The soak: for as many hours as are given, all that a run of CI is too short for; `make soak HOURS=1`."""
