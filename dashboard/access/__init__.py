"""Who uses the dashboard, and whether a request may go on: before any page, callback or endpoint is reached.

    request -> gate: address as the browser sees it -> who it is (proxy header, session of a login, bearer token)
            -> roles -> refused, or on with the person in a context variable -> answer with its headers

`gate` is the ASGI middleware that joins the rest, `login` has the addresses of a login, `oidc` speaks to the provider.
Pure: `grants` (groups to roles), `forgery` (tokens against forged requests), `front` (addresses behind a proxy),
`headers` (what an answer carries). `sessions` holds who is logged in.
"""
