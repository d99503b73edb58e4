"""Mutation testing: one change of the code at a time, and tests that have to notice it."""
