"""The exporter as a systemd service: the unit and its settings as texts (`unit.py`), and how they get onto a host."""
