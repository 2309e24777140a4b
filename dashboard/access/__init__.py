"""Authentication and authorization of each request to the dashboard, before any page, callback or endpoint is reached.

    request -> gate: address as the browser sees it -> person (proxy header, login session, bearer token)
            -> roles -> refused, or passed on with the person in a context variable -> response with security headers

`gate` is the ASGI middleware that joins the others, `login` has the login endpoints, `oidc` talks to the provider.
Pure: `forgery` (CSRF tokens), `front` (addresses behind a proxy), `headers` (security headers of responses). `sessions`
stores who is logged in. Groups are mapped to roles in `cotenant.changes.access.grants`.
"""
