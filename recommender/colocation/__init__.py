"""Colocation resources: what each node can lend to pods of Koordinator's priority bands batch and mid. Pure.

    strategy (who set what) ─┐
    facts (the Node object) ─┼─► columns ─► formulas ─► publish (writes), explain (text)
    pods (50,000 at once)   ─┘

`state.ColocationState` joins them for a watched cluster, `inventory` for stored history; `zones` splits over zones.
Source of formulas and defaults: koord-manager, `slo-controller/noderesource/plugins/{batchresource,midresource}`.
"""
