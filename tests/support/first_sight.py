"""What a page says on first sight, above the fold, and how many figures that is.

A figure is a number in the page's own words; a moment is one. Pictures (charts, grids, tables and lists of rows, marks
of a slider) count as one thing to look at and not by their cells; nor do names of objects, whose digits stand beside
letters, nor the frame around the page.
"""

from __future__ import annotations

from typing import Any, Final

from playwright.sync_api import Page

LAPTOP: Final = {"width": 1366, "height": 768}
MOST_FIGURES: Final = 15
MOST_OF_HOME: Final = 12
MOST_OF_A_SENTENCE: Final = 3
_SAID: Final = """() => {
  const apart = 'svg, [role=img], .ag-root-wrapper, table, .scroll, .worst, .mantine-Slider-root, kbd, code, '
    + '.steering, .skip-link, [hidden]';
  const figure = /(?<![\\p{L}\\d_./-])[−+-]?\\d[\\d,]*(?:[.:]\\d+)?(?![\\p{L}_/]|-\\p{L})/gu;
  const moment = /\\b[A-Z][a-z]{2} \\d\\d [A-Z][a-z]{2}(?: \\d\\d:\\d\\d(?::\\d\\d)?)?(?: UTC)?/g;
  const said = [];
  const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const holder = node.parentElement;
    if (!node.data.trim() || holder.closest(apart)) continue;
    if (!holder.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (!box.width || !box.height || box.top >= innerHeight || box.bottom <= 0) continue;
    const whole = holder.closest('p, li, h1, h2, h3, summary, figcaption') || holder;
    said.push({ text: node.data, whole, count: (node.data.replace(moment, ' 1 ').match(figure) || []).length });
  }
  const sentences = new Map();
  for (const it of said) {
    const before = sentences.get(it.whole) || { text: '', count: 0 };
    sentences.set(it.whole, { text: before.text + it.text, count: before.count + it.count });
  }
  return [...sentences.values()].filter((it) => it.count);
}"""


def sayings(page: Page) -> list[dict[str, Any]]:
    """Return the texts above the fold that have figures, and how many: [{"text": ..., "count": ...}]."""
    sentences: list[dict[str, Any]] = page.evaluate(_SAID)
    return sentences


def unfold(page: Page, what: str = ".home-more") -> None:
    """Open what Home keeps behind its headings, or the groups of a list's filters (".facet")."""
    page.locator(what).first.wait_for()
    page.evaluate("(what) => document.querySelectorAll(what).forEach((it) => { it.open = true; })", what)
