"""The serving engine: its log followed line by line, its /metrics read, both told in one vocabulary."""
