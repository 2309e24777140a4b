"""Recommendations, findings, savings and the tables of a scan: the vocabulary that other rooms read."""
