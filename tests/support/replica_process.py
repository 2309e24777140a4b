"""One replica of the dashboard in a process of its own; it imports little, so that it starts soon."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import msgspec
import uvicorn
from fastapi import FastAPI

from cotenant.base.process.clock import FixedClock
from cotenant.base.store import Store
from cotenant.changes.access.configured_service import change_service_of
from cotenant.dashboard.app import create_app, server_config
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from cotenant.settings import Settings


def serve(
    settings: bytes, store_url: str, cluster: str, end_seconds: float, port: int, environ: Mapping[str, str]
) -> None:
    """The process."""
    os.environ.update(environ)
    app = app_of(msgspec.json.decode(settings, type=Settings), Store(store_url, cluster), end_seconds)
    listener = socket.create_server(("127.0.0.1", port))
    uvicorn.Server(server_config(app)).run(sockets=[listener])


def app_of(settings: Settings, store: Store, end_seconds: float) -> FastAPI:
    """The replica's application."""
    context = DashboardContext(
        actions=settings.actions, access=settings.access, changes=change_service_of(settings, store)
    )
    return create_app(StoreSource(store, settings.dashboard), settings.dashboard, FixedClock(end_seconds), context)
