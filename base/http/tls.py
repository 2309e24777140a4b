"""How certificates of servers are verified: alike on every version of Python."""

from __future__ import annotations

import ssl


def accept_older_authorities(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the context, which no longer asks for the extensions that Python 3.13 and later ask for by default.

    Many clusters' and companies' own authorities lack them; chain, dates and name are verified all the same.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
