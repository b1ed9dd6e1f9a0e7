"""Follows what is written line by line, in files or in the journal: each line once. Knows no engine."""
