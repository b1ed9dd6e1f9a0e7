"""The landing page's facts: a snapshot of the board as figures for people, made when somebody asks.

By the rules of the exposition: what fails loses its gauges and keeps its totals, of two sources the earlier is shown,
and None is not known.
"""
