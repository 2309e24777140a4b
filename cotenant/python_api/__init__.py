"""The public Python API: what `import cotenant` gives, on pandas. The only place that imports pandas.

    cluster_store   what a scan stored, as DataFrames
    own_usage       forecasts, recommendations and back-tests of a DataFrame of one's own
    simulation      ways to share nodes with batch work, in simulated time
    reclaim         what nodes could have lent, decision by decision
    usage_frame     the one form of usage in a DataFrame: reading it, and what is wrong with it
    tables          result tables as DataFrames: types, and units in the names of columns

`cotenant` itself looks its names up here when they are first used, so that `import cotenant` costs nothing.
"""
