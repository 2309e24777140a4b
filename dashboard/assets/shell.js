// The frame's behaviour in the browser: the URL as the one place of state, keyboard, search box, theme.
"use strict";

window.cotenant = Object.assign(window.cotenant || {}, {
  base: () => document.documentElement.dataset.base || "/",

  // The page below the base path: "", "workloads", "recommendations".
  page: () => location.pathname.slice(window.cotenant.base().length).replace(/\/+$/, ""),

  // Go to an address inside the dashboard without a reload; dcc.Location hears the event.
  go(href, replace) {
    history[replace ? "replaceState" : "pushState"]({}, "", href);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  },

  // To another cluster: the same page with the same filters there.
  toCluster(event) {
    const link = event.target.closest && event.target.closest("a.cluster-link");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const page = link.pathname.includes("/clusters/") ? window.cotenant.page() + location.search : "";
    location.assign(link.pathname + page);
  },

  // The present query string with one key set (or removed, when the value is empty).
  withParam(key, value) {
    const params = new URLSearchParams(location.search);
    params.delete(key);
    if (value) params.append(key, value);
    const text = params.toString();
    return location.pathname + (text ? "?" + text : "");
  },

  // The API of a grid by its name; none while the grid is not ready, which the component answers with an error.
  apiOf(name) {
    try {
      return window.dash_ag_grid ? window.dash_ag_grid.getApi("grid-" + name) : null;
    } catch (notReady) {
      return null;
    }
  },

  // The grid of the page, if it has one, and its row with the focus.
  grid() {
    const frame = document.querySelector(".grid-frame");
    const api = frame && window.cotenant.apiOf(frame.id.slice("frame-".length));
    const cell = api && api.getFocusedCell();
    return { api, name: frame && frame.id.slice("frame-".length), row: cell ? cell.rowIndex : -1 };
  },

  // j and k: the next and the previous row.
  step(by) {
    const { api, row } = window.cotenant.grid();
    if (!api) return;
    const next = Math.max(0, Math.min(api.getDisplayedRowCount() - 1, row + by));
    if (api.getGridOption("pagination")) api.paginationGoToPage(Math.floor(next / api.paginationGetPageSize()));
    api.ensureIndexVisible(next);
    api.setFocusedCell(next, window.cotenant.columnsOf(api)[0]);
  },

  // x: select the row, or no longer.
  select() {
    const { api, row } = window.cotenant.grid();
    const node = api && row >= 0 ? api.getDisplayedRowAtIndex(row) : null;
    if (node && node.data) node.setSelected(!node.isSelected(), false, "spaceKey");
  },

  async copyLink(button) {
    try {
      await navigator.clipboard.writeText(location.href);
    } catch (refused) { // only secure pages may use the clipboard
      const box = Object.assign(document.createElement("textarea"), { value: location.href });
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy link"; }, 1500);
  },

  // Whether keys write into what has the focus; a box that was ticked takes none but the space.
  typing: (target) => target.closest
    && target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable=true]"),
});

window.dash_clientside = Object.assign({}, window.dash_clientside);
window.dash_clientside.cotenant = Object.assign({}, window.dash_clientside.cotenant, {
  // Search box -> URL. From the overview a search leads to the workloads. What came from a URL is not sent back to it:
  // by then another one may have been opened.
  search(value) {
    const text = (value || "").trim(), ct = window.cotenant;
    if (!ct.typed || text === (new URLSearchParams(location.search).get("q") || "")) return;
    if (ct.page() === "" || ct.page().includes("/")) { // a page about all or about one thing has no list
      if (text) ct.go(ct.base() + "workloads?" + new URLSearchParams({ q: text }));
    } else {
      ct.go(ct.withParam("q", text), true);
    }
  },

  // URL -> search box.
  searched(search) {
    const text = new URLSearchParams(search || "").get("q") || "";
    const box = document.getElementById("search");
    if (box && box.value.trim() === text) return window.dash_clientside.no_update;
    window.cotenant.typed = false;
    return text;
  },

  // A page that shows nothing but why it is empty is asked for again with every look for newer results.
  again(ticks) {
    const page = document.getElementById("page");
    const bare = page && page.querySelector(".empty") && !page.querySelector(".panel, .grid-frame, .stats");
    return bare ? ticks : window.dash_clientside.no_update;
  },

  menu: (opened, navbar) => ({ ...navbar, collapsed: { ...(navbar.collapsed || {}), mobile: !opened } }),

  help(clicks) {
    if (clicks) window.dash_clientside.set_props("help", { opened: true });
  },

  display(clicks) {
    if (clicks) window.dash_clientside.set_props("display", { opened: true });
  },

  // Units and time zone of tables, charts and headline numbers.
  written(units, zone) {
    const ct = window.cotenant;
    if (ct.units === units && ct.zone === zone) return;
    Object.assign(ct, { units, zone });
    ct.texts();
    ct.redrawCharts();
    ct.redraw();
  },

  // The drawer of a recommendation opens at once; what it explains comes from the server.
  drawer(search, shown, waiting) {
    const open = new URLSearchParams(search || "").get("open") || "", same = window.dash_clientside.no_update;
    const name = open.split("/").length === 4 ? open : "";
    return name === (shown || "") ? [same, same, same] : [name ? waiting : [], Boolean(name), name];
  },

  // A closed drawer leaves the URL.
  closed(opened) {
    if (!opened && new URLSearchParams(location.search).has("open"))
      window.cotenant.go(window.cotenant.withParam("open", ""));
  },

  // A dot of the nodes' chart leads to its node.
  openNode(click) {
    const point = click && click.points && click.points[0];
    if (point) window.cotenant.go(window.cotenant.withExtent("nodes/" + encodeURIComponent(point.customdata)));
  },

  // The switch of a workload's page -> URL, and back.
  show(value) {
    const ct = window.cotenant;
    if (value && value !== (new URLSearchParams(location.search).get("show") || "cpu"))
      ct.go(ct.withParam("show", value === "cpu" ? "" : value), true);
  },
  shown: (search) => (new URLSearchParams(search || "").get("show") === "memory" ? "memory" : "cpu"),

  // The form of the batch page -> URL; what stands in it already is left alone.
  job(...values) {
    const ct = window.cotenant, params = new URLSearchParams(location.search);
    if (ct.page() !== "batch") return;
    const keys = ["cores", "gib", "hours", "deadline"], given = keys.map((key) => params.get(key));
    keys.forEach((key, i) => { if (values[i] !== "" && values[i] !== null && values[i] !== undefined) params.set(key, values[i]); });
    if (keys.some((key, i) => params.get(key) !== given[i])) ct.go(location.pathname + "?" + params, true);
  },

  // A bar of the waste ranking leads to the namespace's workloads.
  drill(click) {
    const point = click && click.points && click.points[0];
    if (point) window.cotenant.go(window.cotenant.withExtent("workloads", { ns: point.customdata }));
  },
});

document.addEventListener("click", window.cotenant.toCluster);

// Whether what stands in the search box was typed there.
document.addEventListener("input", (event) => { if (event.target.id === "search") window.cotenant.typed = true; });

document.addEventListener("click", (event) => {
  const button = event.target.closest && event.target.closest("#copy-link");
  if (button) window.cotenant.copyLink(button);
});

// What opens over the page closes like any menu: by Escape or a click elsewhere.
const MENUS = "details:is(.chooser, .above-bar, .sums, .page-head .more)[open]";
document.addEventListener("click", (event) => {
  document.querySelectorAll(MENUS).forEach((it) => { if (!it.contains(event.target)) it.open = false; });
});

// What a person unfolded or folded stays so when newer results draw it anew: known by its page, the nearest id around
// it and the headings down to it, without their counts.
(function unfolding() {
  const open = new Map(), menu = MENUS.replace("[open]", "");
  const name = (it) => {
    const own = it.matches("details") ? it.querySelector("summary").textContent.replace(/\d[\d.,]*/g, "#") : "";
    return it.id || !it.parentElement ? location.pathname + "#" + it.id : name(it.parentElement) + (own && "/" + own);
  };
  document.addEventListener("click", (event) => {
    const head = event.target.closest && event.target.closest("summary"), it = head && head.parentElement;
    if (it && !it.matches(menu)) setTimeout(() => open.set(name(it), it.open));
  });
  new MutationObserver((changes) => {
    if (!open.size) return;
    const added = changes.flatMap((change) => [...change.addedNodes]).filter((it) => it instanceof Element);
    added.flatMap((it) => [it, ...it.querySelectorAll("details")]).forEach((it) => {
      if (it.matches("details") && open.has(name(it))) it.open = open.get(name(it));
    });
  }).observe(document.documentElement, { childList: true, subtree: true });
})();

(function keyboard() {
  let pending = false, timer = 0;
  const press = (id) => { const it = document.getElementById(id); if (it) it.click(); };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.querySelectorAll(MENUS).forEach((it) => { it.open = false; });
    if (event.ctrlKey || event.metaKey || event.altKey || window.cotenant.typing(event.target)) return;
    if (pending) {
      pending = false;
      const link = document.getElementById("nav-" + event.key);
      if (link) { event.preventDefault(); link.click(); return; }
    }
    if (event.key === "g") { pending = true; clearTimeout(timer); timer = setTimeout(() => { pending = false; }, 1200); }
    else if (event.key === "/") {
      const box = document.getElementById("search");
      if (box) { event.preventDefault(); box.focus(); box.select(); }
    }
    else if (event.key === "Escape") { if (![...document.querySelectorAll("[role=dialog]")].some((it) => it.checkVisibility())) press("back"); }
    else if (event.key === "j" || event.key === "k") window.cotenant.step(event.key === "j" ? 1 : -1);
    else if (event.key === "x") window.cotenant.select();
    else if (event.key === "r") window.cotenant.review();
    else if (event.key === "e") press("export-csv-" + window.cotenant.grid().name);
    else if (event.key === "t") press("theme");
    else if (event.key === "?") window.dash_clientside.set_props("help", { opened: true });
  });
})();
