"""Every page in windows of people's sizes: what is cut, scrolls sideways, or is a fault by axe or for the console."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize
from playwright.sync_api import TimeoutError as NotInTime

PATIENCE_MS: Final = 120_000
SIDEWAYS: Final = """() => {
    const root = document.documentElement, value = e => e.offsetWidth && e.scrollWidth > e.clientWidth + 1;
    const cut = [...document.querySelectorAll('h1, h2, .stat-value')].filter(value).map(e => `cut: ${e.textContent}`);
    return root.scrollWidth > root.clientWidth ? [`page: ${root.scrollWidth}`, ...cut] : cut; }"""
"""A page wider than the screen beside its scrollbar, and headlines that lose their end."""
MISFITS: Final = """() => {
    const root = document.documentElement, misfits = [];
    const say = (what, e) => misfits.push(`${what}: ${e.id || e.className} ${e.textContent.slice(0, 40)}`);
    const drawn = selector => [...document.querySelectorAll(selector)].filter(e => e.offsetWidth && e.offsetHeight);
    if (root.scrollWidth > root.clientWidth) misfits.push(`page: ${root.scrollWidth} of ${root.clientWidth}`);
    if (drawn('.list-page').length && root.scrollHeight > root.clientHeight)
        misfits.push(`scrollbar beside the list's: ${root.scrollHeight} of ${root.clientHeight}`);
    for (const e of drawn('.list-among .ag-body-vertical-scroll-viewport')) say("scrollbar beside the page's", e);
    for (const e of drawn('.facets *')) {
        const scrolls = /auto|scroll/.test(getComputedStyle(e).overflowY);
        if (scrolls && e.scrollHeight > e.clientHeight) say('scrollbar', e);
    }
    for (const e of drawn('.facets')) if (e.scrollWidth > e.clientWidth) say('scrolls sideways', e);
    for (const e of drawn('.ag-horizontal-left-spacer'))
        if (/auto|scroll/.test(getComputedStyle(e).overflowX)) say('scrollbar', e);
    for (const e of drawn('.scroll'))
        if (e.scrollHeight > e.clientHeight && e.scrollHeight < e.clientHeight + 12) say('scrolls by a few pixels', e);
    for (const e of drawn('.scroll:has(> .facts)'))
        if (e.scrollWidth > e.clientWidth + 1) say('columns outside', e);
    const whole = ['h1', 'h2', 'h3', '.stat-label', '.stat-value', '.ag-pinned-left-cols-container .ag-cell',
        '.ag-cell .chip', '.panel li', '.worst a'];
    for (const e of drawn(whole.join()))
        if (e.scrollWidth > e.clientWidth + 1 && !e.closest('.visually-hidden')) say('cut', e);
    for (const grid of drawn('.list-page .grid-frame')) {
        const [box, rows] = [grid, grid.querySelector('.ag-body-viewport')].map(e => e.getBoundingClientRect());
        const pinned = grid.querySelector('.ag-pinned-left-header').getBoundingClientRect();
        if (pinned.width > box.width / 2 + 1) misfits.push(`pinned: ${pinned.width} of ${box.width}`);
        for (const e of grid.querySelectorAll('.ag-header-cell[aria-sort]:not([aria-sort=none])'))
            if (e.getBoundingClientRect().right > box.right + 1) say('sorted column outside', e);
        const loaded = [...grid.querySelectorAll('.ag-pinned-left-cols-container .ag-row')];
        const bottom = Math.min(rows.bottom, innerHeight) + 1;
        const seen = loaded.filter(e => e.getBoundingClientRect().bottom <= bottom).length;
        if (seen < Math.min(10, loaded.length)) misfits.push(`rows in sight: ${seen}`);
    }
    for (const bar of drawn('.chips')) {
        const box = bar.getBoundingClientRect();
        for (const e of bar.children) {
            const it = e.getBoundingClientRect(), cut = it.right > box.right + 1 || it.bottom > box.bottom + 1;
            if (it.top < box.bottom && cut) say('cut', e);
        }
    }
    return misfits; }"""
"""What a laptop's window with scrollbars has no room for, in words."""
READY: Final = """() => {
    const every = (selector, part) => [...document.querySelectorAll(selector)]
        .every(it => !it.offsetWidth || it.querySelector(part));
    const loading = '[aria-busy=true], #page .skeleton, .waiting, .grid .ag-row:not([row-id]) .ag-cell:empty';
    const still = document.getAnimations().every(one => one.playState !== 'running');
    return document.querySelector('#page h1') && !document.querySelector(loading) && still
        && every('.grid-frame', '.ag-row[row-id], .ag-overlay-no-rows-wrapper')
        && every('.js-plotly-plot', '.main-svg'); }"""
"""Nothing loads, slides or fades; charts are drawn."""


@dataclass(frozen=True, slots=True)
class Window:
    """The inside of a browser's window, in pixels, and the theme that its person has chosen."""

    width: int
    height: int
    theme: Literal["light", "dark"]

    @property
    def is_narrow(self) -> bool:
        """Whether it is a telephone's, on which a list may show fewer columns and rows."""
        return self.width < 600

    def __str__(self) -> str:
        return f"{self.width} x {self.height} {self.theme}"


WINDOWS: Final = (Window(1366, 768, "light"), Window(1440, 900, "dark"), Window(390, 844, "light"))


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a page in a window. kind: axe, console or fit."""

    window: Window
    path: str
    kind: Literal["axe", "console", "fit"]
    what: str

    def __str__(self) -> str:
        return f"{self.window}, /{self.path}: {self.kind}: {self.what}"


def visit(browser: Browser, window: Window, url: str) -> Page:
    """A first visit in such a window, without the tour of a demo."""
    size: ViewportSize = {"width": window.width, "height": window.height}
    context = browser.new_context(color_scheme=window.theme, viewport=size, locale="en-US", bypass_csp=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    page.wait_for_function(READY)
    return page


def faults_of(page: Page, window: Window, paths: Iterable[str], axe: str) -> Iterator[Fault]:
    """Open one path after the other beside the page's own address; an error of the console is one fault."""
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: errors.append(str(error)))
    origin = "/".join(page.url.split("/")[:3])
    for path in paths:
        page.goto(f"{origin}/{path}")
        try:
            page.wait_for_function(READY)
        except NotInTime:
            yield Fault(window, path, "fit", f"not drawn within {PATIENCE_MS // 1000} s")
            continue
        for what in unfit(page, window):
            yield Fault(window, path, "fit", what)
        for what in serious(page, axe):
            yield Fault(window, path, "axe", what)
        yield from (Fault(window, path, "console", text) for text in errors)
        errors.clear()


def unfit(page: Page, window: Window) -> list[str]:
    """What the window has no room for once charts and lists have had their time to fit themselves."""
    script = SIDEWAYS if window.is_narrow else MISFITS
    texts: list[str] = page.evaluate(script)
    for _ in range(20):
        if not texts:
            break
        page.wait_for_timeout(250)
        texts = page.evaluate(script)
    return texts


def serious(page: Page, axe: str) -> list[str]:
    """Name and first places of the serious and critical faults that axe finds on the whole page."""
    page.evaluate(axe)
    axe_violations: list[Any] = page.evaluate("async () => (await axe.run()).violations")
    grave = [axe_violation for axe_violation in axe_violations if axe_violation["impact"] in ("serious", "critical")]
    return [
        f"{axe_violation['id']}: {[node['html'][:160] for node in axe_violation['nodes'][:3]]}"
        for axe_violation in grave
    ]
