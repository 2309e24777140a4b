"""Reservations that work with a stock kube-scheduler: placeholder pods reserve capacity, and owners take it over.

A hand-over ("swap") gives an owner pod a placeholder's capacity. `view` has the inputs and `decide` the whole decision:
it advances hand-overs (`swap`), starts new ones (`assign`), and maintains every Reservation (`lifecycle`, `status`).
`guard` records hand-overs; `placeholder` and `owner` build the writes. Only `controller` does input and output.
"""
