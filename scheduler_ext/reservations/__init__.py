"""Reservations that work with a stock kube-scheduler: placeholder pods reserve capacity, and owners take it over.

`view` has the inputs and `decide` the whole decision: it advances hand-overs (`swap`), starts new ones (`assign`), and
maintains every Reservation (`lifecycle`, `status`). `guard` is the record of hand-overs; `placeholder` and `owner`
build the writes. All of these are pure; the manager's feature `reservations` is the edge.
"""
