"""Reservations that hold on a stock kube-scheduler: bound placeholders, and a guarded hand-over to the owners.

`view` is what is known, `decide` the whole decision: it advances hand-overs (`swap`), starts new ones (`assign`), and
takes every Reservation through its life (`lifecycle`, `status`). `guard` is the record of hand-overs, `placeholder` and
`owner` build what is written. All pure; the manager's feature `reservations` is the edge.
"""
