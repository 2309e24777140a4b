"""The grammar by which pages, the REST API and commands filter, sort and group tables."""
