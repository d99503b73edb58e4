"""The stores on the engines they are really used with, which `make live` starts."""
