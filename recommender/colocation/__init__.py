"""Colocation resources: what every node can lend to batch and mid pods, every term kept. Pure.

    strategy (who set what) ─┐
    facts (the Node object) ─┼─► columns ─► formulas ─► publish (writes), explain (words)
    pods (50,000 at once)   ─┘

`state.Colocation` joins them for a cluster that is watched, `inventory` for stored history, `numa` splits over zones.
Source of formulas and defaults: koord-manager, `slo-controller/noderesource/plugins/{batchresource,midresource}`.
"""
