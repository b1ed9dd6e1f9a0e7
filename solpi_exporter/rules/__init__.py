"""Prometheus rules: what is recorded, what alerts, and the limits, as tables from which `files.py` makes rule files."""
