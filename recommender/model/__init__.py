"""Recommendations, findings, savings and the result tables of a scan: the vocabulary that other rooms read."""
