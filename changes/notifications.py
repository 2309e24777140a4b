"""EDGE: sends the watcher's notifications to a chat (Slack's incoming webhooks) or another receiver of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import structlog

from cotenant.base.chat import escape_slack_text, header, section
from cotenant.base.errors import NotDelivered
from cotenant.base.http.webhook import post
from cotenant.base.settings.sections import NotifySettings
from cotenant.changes.soak.watcher import News

log = structlog.get_logger(__name__)


def payload(cluster: str, news: Sequence[News], settings: NotifySettings) -> dict[str, Any]:
    """Return the JSON document to post, in the configured format."""
    if settings.format == "json":
        head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "ChangeNews", "cluster": cluster}
        return {**head, "news": [asdict(item) for item in news]}
    title = f"cotenant: {escape_slack_text(cluster, 100)}"
    lines = [
        f"{'⚠' if item.bad else '•'} *{escape_slack_text(item.title, 300)}*: {escape_slack_text(item.words, 600)}"
        for item in news
    ]
    return {"text": f"{title}: {escape_slack_text(news[0].title, 300)}", "blocks": [header(title), section(lines)]}


def send(url: str, cluster: str, news: Sequence[News], settings: NotifySettings) -> None:
    """Post the notifications; a failure is only logged."""
    try:
        post(url, json.dumps(payload(cluster, news, settings)).encode(), settings)
    except NotDelivered as error:
        log.warning("a notification was not delivered", err=error.message)
