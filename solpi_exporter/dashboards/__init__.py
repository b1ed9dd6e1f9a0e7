"""Grafana dashboards as classic JSON, made of plain functions that return dicts; tests hold them against the catalogue.

`queries` writes PromQL, `looks` says what colours mean, `panels` and `tables` make panels, `frame` puts them on a grid
under variables, annotations and links. `files` lists all dashboards.
"""
