// Ctrl-K: the dialog that searches everything. Arrows walk its lines, Enter in the field takes the first.
"use strict";

(() => {
  const dialog = () => document.getElementById("palette-found");
  const field = () => document.getElementById("palette-field");
  const lines = () => [...dialog().querySelectorAll(".palette-line")];
  const open = () => {
    window.dash_clientside.set_props("palette", { opened: true });
    // it slides in: the field takes the focus once it is in sight
    const wait = setInterval(() => {
      const box = field();
      if (box && box.checkVisibility()) { clearInterval(wait); box.focus(); box.select(); }
    }, 30);
    setTimeout(() => clearInterval(wait), 3000);
  };
  const close = () => window.dash_clientside.set_props("palette", { opened: false });

  window.dash_clientside = Object.assign({}, window.dash_clientside);
  window.dash_clientside.cotenant = Object.assign({}, window.dash_clientside.cotenant, {
    paletteOpened(clicks) { if (clicks) open(); },

    // The tab names what is open, so that several tabs can be told apart.
    titled(title) { if (title) document.title = title; },
  });

  async function copy(line) {
    const words = line.querySelector(".dim"), before = words.textContent;
    try {
      await navigator.clipboard.writeText(line.dataset.copies);
      words.textContent = "copied";
    } catch (refused) { // only secure pages may use the clipboard
      words.textContent = "select and copy it: " + line.dataset.copies;
    }
    setTimeout(() => { words.textContent = before; }, 2000);
  }

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
      return;
    }
    const here = event.target;
    if (!dialog() || !here.closest || !(here === field() || here.closest("#palette-found"))) return;
    const all = lines(), at = all.indexOf(here);
    if (event.key === "ArrowDown" && all.length) { event.preventDefault(); all[Math.min(at + 1, all.length - 1)].focus(); }
    else if (event.key === "ArrowUp") { event.preventDefault(); (at > 0 ? all[at - 1] : field()).focus(); }
    else if (event.key === "Enter" && here === field()) {
      event.preventDefault();
      // what was typed last may still be on its way: the first line is taken once it is of it
      const typed = here.value, started = Date.now();
      const take = setInterval(() => {
        const found = dialog().querySelector("[data-for]");
        if ((found && found.dataset.for === typed) || Date.now() - started > 3000) {
          clearInterval(take);
          const first = lines()[0];
          if (first) first.click();
        }
      }, 20);
    }
  });

  document.addEventListener("click", (event) => {
    const line = event.target.closest && event.target.closest(".palette-line");
    if (!line) return;
    if (line.dataset.copies) copy(line);
    else if (!event.ctrlKey && !event.metaKey) close();
  });
})();
