"""Verification of servers' certificates, in the same way on every version of Python."""

from __future__ import annotations

import ssl


def accept_older_authorities(context: ssl.SSLContext) -> ssl.SSLContext:
    """Change the context to not require the extensions that Python 3.13 and later require by default; return it.

    Many clusters' and companies' own authorities lack them; chain, dates and name are verified all the same.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
