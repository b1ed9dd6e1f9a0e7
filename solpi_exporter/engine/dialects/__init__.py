"""What engines' logs say, by engine: a file each, and one table of them all in `table.py`."""
