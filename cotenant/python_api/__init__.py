"""The public Python API: what `import cotenant` provides, on pandas. The only package that imports pandas.

    cluster_store   the results of a scan, as DataFrames
    own_usage       forecasts, recommendations and back-tests of your own DataFrame
    simulation      ways to share nodes with batch work, in simulated time
    reclaim         what nodes could have lent, decision by decision
    usage_frame     the format of usage in a DataFrame: reading and checking it
    tables          result tables as DataFrames: types, and units in the names of columns

`cotenant` imports a name from here when it is first used, so that `import cotenant` is fast.
"""
