"""A page that is drawn anew all the time, as rounds do it now and then, while somebody clicks on it."""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Page

PAUSE_MS: Final = 200
"""Between the last answer of one drawing and the next: a busy machine is not asked faster than it answers, and a button
stands as long as Playwright waits for it to keep still, two frames, and still is a new one at every click."""
_DRAW: Final = """([props, pauseMs]) => {
  const fetched = window.fetch;
  let open = 0;
  window.redraws = 0;
  window.fetch = (...args) => { open += 1; return fetched(...args).finally(() => { open -= 1; }); };
  setInterval(() => {
    if (open) return;
    window.redraws += 1;
    for (const [id, prop] of props) {
      const value = prop === "n_intervals" ? 1e6 + window.redraws : `drawing ${window.redraws}`;
      window.dash_clientside.set_props(id, { [prop]: value });
    }
  }, pauseMs);
}"""


def redraw_always(page: Page, *properties: tuple[str, str]) -> None:
    """Change these (id, property), by which the page draws parts of itself anew, from now to the next address.

    Drawing goes on when it returns.
    """
    page.evaluate(_DRAW, [[list(property_pair) for property_pair in properties], PAUSE_MS])
    page.wait_for_function("window.redraws > 1")
