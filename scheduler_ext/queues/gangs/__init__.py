"""Gangs, whose pods are placed together or not at all: members, state, status and report. Pure."""
