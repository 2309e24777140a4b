"""Colocation resources: what each node can lend to batch and mid pods, with every term of the formula. Pure.

    strategy (who set what) ─┐
    facts (the Node object) ─┼─► columns ─► formulas ─► publish (writes), explain (text)
    pods (50,000 at once)   ─┘

`state.ColocationState` joins them for a watched cluster, `inventory` for stored history; `zones` splits over zones.
Source of formulas and defaults: koord-manager, `slo-controller/noderesource/plugins/{batchresource,midresource}`.
"""
