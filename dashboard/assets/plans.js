// Keys of the buttons that say one (data-key), what a button asks for (data-asks), and the focus on what it opens (data-opens).
"use strict";

(function plans() {
  // The frame's own keys come first: they listen at the document, and what they took is prevented.
  window.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.key.length !== 1) return;
    if (window.cotenant.typing(event.target)) return;
    if ([...document.querySelectorAll("[role=dialog]")].some((it) => it.checkVisibility())) return;
    const button = document.querySelector(`button[data-key="${CSS.escape(event.key)}"]:not([disabled])`);
    if (button) { event.preventDefault(); button.click(); }
  });

  // A click on a row is one on its first link, unless it was meant for something else or marks text.
  document.addEventListener("click", (event) => {
    const row = event.target.closest && event.target.closest("tr.opens");
    if (!row || event.target.closest("a, button") || String(window.getSelection())) return;
    row.querySelector("a").click();
  });

  // What a button asks for is put where it stays when the button is drawn anew (data-asks: the store, data-asked: JSON).
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("button[data-asks]");
    if (!button) return;
    const asked = JSON.parse(button.dataset.asked);
    window.dash_clientside.set_props(button.dataset.asks, { data: { ...asked, clicked: Date.now() } });
  });

  // What is opened comes from the server: it gets the focus once it is there, unless the person went elsewhere.
  const WAIT_MS = 10000, LOOK_MS = 40;
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("button[data-opens]");
    if (!button) return;
    const before = document.getElementById(button.dataset.opens), from = document.activeElement, until = Date.now() + WAIT_MS;
    (function look() {
      const there = document.getElementById(button.dataset.opens);
      const now = document.activeElement;
      if (now !== from && now !== document.body && now !== button) return;
      if (there && (there !== before || Date.now() > until - WAIT_MS + 1500)) {
        (there.matches("input, button, [tabindex]") ? there : there.querySelector("input, button") || there).focus();
        return;
      }
      if (Date.now() < until) setTimeout(look, LOOK_MS);
    })();
  });
})();
