"""Decisions of controllers: from objects and results to writes. Pure."""
