"""Gangs: jobs whose pods are placed together or not at all: their members, state, status and report. Pure."""
