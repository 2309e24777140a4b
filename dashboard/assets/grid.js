// The grids: theme from the page's CSS variables, cell formats, cell renderers, and the feed of rows from the API.
"use strict";

window.cotenant = window.cotenant || {}; // completed by shell.js

(function grids() {
  const KIB = 1024, MISSING = "–";
  const h = (...parts) => window.React.createElement(...parts);
  const functions = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});
  const components = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});

  functions.cotenantTheme = (quartz) => quartz.withParams({
    accentColor: "var(--mantine-primary-color-filled)",
    backgroundColor: "var(--ct-panel)",
    foregroundColor: "var(--ct-ink)",
    headerBackgroundColor: "var(--ct-panel)",
    headerTextColor: "var(--ct-dim)",
    borderColor: "var(--ct-line)",
    rowHoverColor: "var(--ct-hover)",
    browserColorScheme: "inherit",
    fontFamily: "inherit",
    fontSize: 13,
    headerFontSize: 12,
    headerFontWeight: 600,
    spacing: 5,
    wrapperBorder: false,
    wrapperBorderRadius: 0,
    columnBorder: false,
  });

  // --- amounts in words, the same rules as dashboard/figures/display.py ---
  // The one place where a number becomes text, digit for digit as Python writes it: by the number's exact value, a half to
  // the even digit, so that 1,125 m read 1.12 cores in a tile and in a cell; a negative one has a true minus.
  function rounded(value, places) {
    const halves = value * 2 ** (places + 1), up = (halves * 5 ** places + 1) / 2;
    if (Math.abs(halves % 2) !== 1) return Number(value.toFixed(places)); // no half: toFixed is exact
    return (up % 2 ? up - 1 : up) / 10 ** places;
  }
  const written = (value, places, more) =>
    trueMinus(rounded(value, places).toLocaleString("en-US", { maximumFractionDigits: places, ...more }));
  const trueMinus = (text) => (text === "-0" ? "0" : text.replace(/^-/, "−"));
  function digits(value) {
    const size = Math.abs(value);
    return written(value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
  }
  // Characters that are invisible or turn the reading order are written out, as base/text.py does.
  function visible(text) {
    return String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, (c) => {
      const code = c.codePointAt(0).toString(16);
      return code.length <= 2 ? "\\x" + code.padStart(2, "0") : code.length <= 4 ? "\\u" + code.padStart(4, "0") : "\\U" + code.padStart(8, "0");
    });
  }
  const milli = () => window.cotenant.units === "milli";
  function cores(m) {
    return milli() || Math.abs(m) < 1000 ? written(m, 0) + " m" : digits(m / 1000);
  }
  function gib(bytes) {
    if (milli()) return digits(bytes / KIB ** 2) + " MiB";
    const size = Math.abs(bytes);
    for (const [power, name] of [[4, "TiB"], [3, "GiB"], [2, "MiB"], [1, "KiB"]])
      if (size >= KIB ** power) return digits(bytes / KIB ** power) + " " + name;
    return written(bytes, 0) + " B";
  }
  function moment(seconds) {
    const at = new Date(1000 * seconds);
    if (window.cotenant.zone === "local")
      return at.toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" }).replace(",", "");
    const text = at.toUTCString(); // "Thu, 12 Nov 2026 18:00:00 GMT"
    return text.slice(0, 3) + " " + text.slice(17, 22);
  }
  // Percent of one device as devices: "0.3 GPUs", "1 GPU".
  function gpus(percent) {
    const text = digits(percent / 100);
    return text + (text === "1" ? " GPU" : " GPUs");
  }
  // What is not whole never reads 100 %.
  function percentPlaces(value) {
    let places = 0;
    const size = Math.abs(value);
    if (size >= 0.99 && size < 1 - 1e-9) while (places < 6 && rounded(100 * size, places) === 100) places++;
    return places;
  }
  function amount(value, kind) {
    if (value === null || value === undefined) return MISSING;
    switch (kind) {
      case "millicores": return cores(value);
      case "bytes": return gib(value);
      case "ratio": return written(100 * value, percentPlaces(value), { useGrouping: false }) + " %";
      case "time": return moment(value);
      case "gpus": return gpus(value);
      default: return digits(value);
    }
  }
  // In a column whose heading says "cores"; small parts keep three digits.
  function inCores(m) {
    const value = m / 1000, places = Math.abs(value) < 1 ? 3 : 2;
    return Math.abs(value) >= 10 ? digits(value) : written(value, places);
  }
  function withUnit(value, kind) {
    const text = amount(value, kind);
    if (kind !== "millicores" || milli() || Math.abs(value || 0) < 1000) return text;
    return text + (/^−?1$/.test(text) ? " core" : " cores");
  }
  const cell = (value, kind) => (kind === "millicores" && !milli() && value !== null && value !== undefined ? inCores(value) : amount(value, kind));
  functions.cotenantHeading = (params, title) => (milli() ? title : title + ", cores");
  const BY_RESOURCE = { memory: "bytes", "gpu-core": "gpus" };
  window.cotenant.amount = amount;
  window.cotenant.written = written;
  // A row that is still on its way is blank: a dash says that a value is missing.
  const loaded = (draw) => (params, ...rest) => (params.data === undefined ? "" : draw(params, ...rest));
  functions.cotenantAmount = loaded((params, kind) => cell(params.value, kind));
  functions.cotenantText = (params) => (params.value === null || params.value === undefined ? "" : visible(params.value));
  functions.cotenantByResource = loaded((params) => withUnit(params.value, BY_RESOURCE[params.data.resource] || "millicores"));
  functions.cotenantReason = (params) => (params.context.sentences || {})[params.value] || params.value;
  // A moment to the second, in the zone that is shown: "19 Nov 18:00:05".
  functions.cotenantStamp = loaded((params) => {
    if (params.value === null || params.value === undefined) return MISSING;
    const at = new Date(1000 * params.value), zone = window.cotenant.zone === "local" ? {} : { timeZone: "UTC" };
    const form = { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", ...zone };
    return at.toLocaleString("en-GB", form).replace(",", "");
  });
  const kindOf = (field) => (field.startsWith("cpu") ? "millicores" : "bytes");

  // --- cells; text from the cluster only ever becomes text nodes ---
  const labelled = (props) => (props.context.labels || {})[props.value] || props.value;
  components.CotenantChip = (props) =>
    props.value ? h("span", { className: "chip tone-" + String(props.value).replace(/[^a-z]/gi, "").toLowerCase() }, visible(labelled(props))) : null;

  // A cut of several steps is said with their number; results of an earlier version do not have it.
  components.CotenantReady = loaded((props) =>
    props.value === "first-step" && props.data.steps > 1
      ? h("span", { className: "chip tone-firststep" }, "in " + props.data.steps + " steps") : components.CotenantChip(props));

  // A reason that asks for attention is a chip, the plain "ok" is not.
  components.CotenantReason = (props) =>
    props.value === "ok" ? h("span", { className: "dim" }, labelled(props)) : components.CotenantChip(props);

  // What was only said is hatched, what was done is plain.
  components.CotenantMode = (props) =>
    props.value === "dry-run" ? h("span", { className: "chip dry", title: "A dry run: nothing was done" }, "dry-run") : h("span", { className: "dim" }, props.value);

  // A name, and where it is below: "checkout / pay · app".
  components.CotenantSubject = loaded((props) => {
    const place = (name) => h("span", { key: name, "data-part": name, className: "subject-place" }, visible(props.data[name] || ""));
    const places = props.parts.filter((name) => props.data[name]).flatMap((name, i) => (i ? [" · ", place(name)] : [place(name)]));
    const whole = [props.value, ...props.parts.map((name) => props.data[name])].filter(Boolean).map(visible).join(" · ");
    return h("span", { className: "subject", title: whole },
      h("span", { className: "subject-name", "data-part": props.colDef.field }, visible(props.value)), h("span", { className: "subject-places" }, ...places));
  });

  // The CPU above, the memory below.
  components.CotenantPair = loaded((props) => h("span", { className: "subject pair" },
    ...[[props.parts[0], "millicores"], [props.colDef.field, "bytes"]].map(([name, kind]) => h("span", { key: name }, withUnit(props.data[name], kind)))));

  components.CotenantRatio = loaded((props) => {
    if (props.value === null || props.value === undefined) return MISSING;
    const share = Math.max(0, Math.min(1, props.value));
    return h("span", { className: "ratio" },
      h("span", { className: "ratio-bar" + (props.value > 1 ? " over" : ""), style: { width: 100 * share + "%" } }),
      h("span", { className: "ratio-text" }, amount(props.value, "ratio")));
  });

  components.CotenantDelta = loaded((props) => {
    if (props.value === null || props.value === undefined) return MISSING;
    if (!props.value) return "0";
    const down = props.value < 0;
    return h("span", { className: down ? "delta-down" : "delta-up" }, (down ? "−" : "+") + cell(Math.abs(props.value), props.unit));
  });

  // "2 -> 1.4", or what happens where there is no number; alike: nothing changes.
  function beforeAndAfter(row, names, value, kind) {
    const action = row[names.action], now = row[names.now] === null ? "not set" : cell(row[names.now], kind);
    const dim = (words) => ({ alike: true, drawn: h("span", { className: "dim" }, words) });
    if (action === "withheld") return dim(now + "  · withheld");
    if (action === "set" && value === null) return dim(now + "  · not now");
    const next = action === "unset" ? "remove" : cell(value, kind);
    if (next === now || (!action && value === null)) return dim(now + "  · keep");
    return { alike: false, drawn: h("span", null, h("span", { className: "dim" }, now), h("span", { className: "arrow" }, "→"), h("strong", null, next)) };
  }
  components.CotenantChange = (props) => {
    if (!props.data) return null;
    const kind = kindOf(props.colDef.field), request = beforeAndAfter(props.data, props, props.value, kind);
    const limit = props.limit && beforeAndAfter(props.data, props.limit, props.data[props.limit.value], kind);
    if (!limit || limit.alike) return request.drawn;
    return h("span", { className: "subject pair" }, request.drawn, h("span", { className: "subject-places" }, "limit ", limit.drawn));
  };

  components.CotenantSparkline = loaded((props) => {
    const values = props.value || [], known = values.filter((v) => v !== null);
    if (known.length < 2) return MISSING;
    const width = 120, height = 24, top = Math.max(...known) || 1;
    let path = "", pen = "M";
    values.forEach((v, i) => {
      if (v === null) { pen = "M"; return; }
      path += pen + ((i * width) / (values.length - 1)).toFixed(1) + " " + (height - 1 - ((height - 3) * v) / top).toFixed(1);
      pen = "L";
    });
    const say = props.words ? digits : cores, low = Math.min(...known), high = Math.max(...known);
    const label = (props.words || "CPU of the last 7 days") + ": from " + say(low) + " to " + say(high);
    return h("svg", { className: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, h("path", { d: path }));
  });

  // --- the feed ---
  const fed = {}; // grid id -> what it shows now: {filters, version}
  const calls = {}; // grid id -> how often it was to be fed: while it gets ready, the last call is the one that counts

  function sortOf(model) { return model.map((s) => (s.sort === "desc" ? "-" : "") + s.colId); }
  const sortNow = (api) => sortOf(api.getColumnState().filter((c) => c.sort).sort((a, b) => a.sortIndex - b.sortIndex));

  // What the list hides by itself holds unless the URL says another.
  function filtersOf(search, frame) {
    const params = new URLSearchParams(search || ""), [key, value] = (frame.dataset.hidden || "").split("=");
    ["sort", "open", "offset", "limit", "format", "columns", "show", "from"].forEach((name) => params.delete(name));
    const idle = (frame.dataset.idle || "").split(",");
    [...params.keys()].filter((name) => idle.includes(window.cotenant.keyOf(name))).forEach((name) => params.delete(name));
    if (["all", "next"].includes(params.get("range"))) params.delete("range"); // of charts: they leave out no row
    if (key && !params.has(key) && !params.has(key + "!")) params.append(key, value);
    return params;
  }

  // Columns of the table in sight, without the one of the boxes.
  window.cotenant.columnsOf = (api) => api.getAllDisplayedColumns().filter((c) => !c.getColId().startsWith("ag-Grid-"));
  const idsOf = (api) => window.cotenant.columnsOf(api).map((c) => c.getColId()).join();

  // Columns in sight, and those that are drawn below a name: an export writes them apart.
  function withPlaces(api) {
    const shown = window.cotenant.columnsOf(api), ids = shown.map((c) => c.getColId());
    const below = (c) => ((c.getColDef().cellRendererParams || {}).parts || []).filter((part) => !ids.includes(part));
    return shown.flatMap((c) => [...below(c), c.getColId()]).join();
  }

  function tell(name, message) {
    const box = document.getElementById("trouble-" + name);
    if (!box) return;
    box.hidden = !message;
    box.textContent = message || "";
  }

  async function ask(name, filters, sort, first, end, signal) {
    const params = new URLSearchParams(filters);
    sort.forEach((s) => params.append("sort", s));
    params.append("offset", first);
    params.append("limit", end - first);
    const answer = await fetch(`${window.cotenant.base()}api/v1/${name}?${params}`, { signal });
    const page = await answer.json();
    if (!answer.ok) throw new Error([answer.status === 403 ? "Forbidden:" : "", page.message, page.fix].filter(Boolean).join(" "));
    return page;
  }

  // `known`: the first rows, or the promise of them, for the first question, if it is of the same order. `left`: what
  // ends its questions once the grid shows other rows, of which a late answer, or a late error, would say what is not so.
  function datasource(name, filters, known, order, left) {
    const frame = document.getElementById("frame-" + name);
    const passed = () => left.signal.aborted || !(frame && frame.isConnected);
    return {
      leave() { left.abort(); },
      async getRows(request) {
        const sort = sortOf(request.sortModel), asked = request.startRow === 0 && sort.join() === order ? known : null;
        if (request.startRow === 0) known = null;
        try {
          const page = asked ? (asked.rows ? asked : await asked)
            : await ask(name, filters, sort, request.startRow, request.endRow, left.signal);
          if (!passed()) {
            frame.classList.toggle("nothing", page.total === 0);
            tell(name, "");
          }
          request.successCallback(page.rows, page.total);
        } catch (error) {
          request.failCallback();
          if (!passed()) tell(name, "The rows could not be loaded: " + error.message);
        }
      },
    };
  }

  // A grid draws rows without content, then their content: one of them, and more only while the rows are on their way.
  const SKELETON_ROWS = 30, LONG_MS = 150;
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const skeleton = (api) => { if (!api.isLastRowIndexKnown()) api.setRowCount(SKELETON_ROWS, false); };
  function show(api, source, here) {
    const before = api.getGridOption("datasource");
    if (before.leave) before.leave(); // the component's own has none
    api.setGridOption("datasource", source);
    if (!here) skeleton(api);
  }

  // The rows that came with the page, once, while the address is still the one that they are of.
  const used = new WeakSet();
  function arrived(api, search) {
    const { first } = api.getGridOption("context") || {};
    if (!first || used.has(first)) return null;
    used.add(first);
    return first.search === (search || "") ? JSON.parse(first.text) : null;
  }

  // The grid of a list once it takes rows: the component's own source is the last thing that it sets.
  const LOOK_MS = 4, PATIENCE_MS = 30000;
  async function ready(name) {
    let seen = false;
    for (const start = performance.now(); performance.now() - start < PATIENCE_MS; await pause(LOOK_MS)) {
      const frame = document.getElementById("frame-" + name), api = frame && window.cotenant.apiOf(name);
      if (api && !api.isDestroyed() && api.getGridOption("datasource")) return api;
      if (seen && !frame) return null; // the page was left
      seen = Boolean(frame);
    }
    return null;
  }

  // What a click on a row opens is the list's `opens`; here are the lists whose address depends on more than the row.
  function openRow(name, row) {
    const ct = window.cotenant;
    if (!row) return;
    const opens = document.getElementById("frame-" + name).dataset.opens || "";
    const filled = opens.replace(/\{(\w+)\}/g, (_, column) => encodeURIComponent(row[column]));
    if (name === "recommendations") {
      const open = [row.namespace, row.kind, row.workload, row.container].map(encodeURIComponent).join("/");
      ct.go(ct.withParam("open", open));
    } else if (name === "pods") {
      const path = [row.namespace, row.kind, row.workload].map(encodeURIComponent).join("/");
      const kept = new URLSearchParams(location.search);
      kept.set("from", "pods");
      ct.go(ct.base() + "workload/" + path + "?" + kept);
    } else if (name === "findings") {
      ct.go(row.kind === "Node" ? ct.withExtent("nodes/" + encodeURIComponent(row.workload))
        : ct.withExtent("recommendations", { ns: row.namespace, kind: row.kind, workload: row.workload }));
    } else if (name === "workloads") {
      const name = [row.namespace, row.kind, row.workload].map(encodeURIComponent).join("/");
      ct.go(ct.base() + "workload/" + name + location.search); // the filters stay, for the way back
    } else if (opens.startsWith("?open=")) {
      ct.go(ct.withParam("open", filled.slice("?open=".length)), true);
    } else if (opens) {
      ct.go(ct.withExtent(filled));
    }
  }

  // The columns in sight, in their order, go to the URL unless they are the list's own.
  function columnsToUrl(api, name) {
    const frame = document.getElementById("frame-" + name);
    if (!frame || window.cotenant.page() !== frame.dataset.path) return;
    const shown = idsOf(api);
    const wanted = shown === frame.dataset.columns ? "" : shown;
    if ((new URLSearchParams(location.search).get("columns") || "") !== wanted)
      window.cotenant.go(window.cotenant.withParam("columns", wanted), true);
  }

  // Row numbers move when the order changes, so selected rows are remembered by their key.
  function pickedRows(api, name) {
    const key = document.getElementById("frame-" + name).dataset.key.split(",");
    return api.getSelectedRows().map((row) => key.map((k) => encodeURIComponent(row[k])).join("/"));
  }

  // An export link leads to exactly what is shown: these columns, and the selected rows if there are any. All that match
  // are chosen by the filter, whatever of them the grid has loaded: no row is named then.
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a.export");
    const api = link && window.cotenant.apiOf(link.dataset.grid);
    if (!api) return;
    const url = new URL(link.href);
    url.searchParams.set("columns", withPlaces(api));
    url.searchParams.delete("row");
    const frame = document.getElementById("frame-" + link.dataset.grid);
    if (!frame.classList.contains("all-picked")) pickedRows(api, link.dataset.grid).forEach((row) => url.searchParams.append("row", row));
    link.href = url;
  }, true);

  window.cotenant.redraw = () => document.querySelectorAll(".grid-frame").forEach((frame) => {
    const api = window.cotenant.apiOf(frame.id.slice("frame-".length));
    if (!api) return;
    api.refreshHeader();
    api.refreshCells({ force: true });
  });

  // Columns that stay in sight: at most half of the width. The name comes first, then what the rows are sorted by, then
  // the list's others in their order, as far as they fit; where not even the name fits, none stays.
  const BOXES = "ag-Grid-SelectionColumn";
  function pinFitting(api, name) {
    const frame = document.getElementById("frame-" + name);
    if (!frame || api.isDestroyed()) return;
    const own = (frame.dataset.pinned || "").split(",").filter((column) => column && api.getColumn(column));
    if (!own.length) return;
    const sorted = sortNow(api).map((sort) => sort.replace(/^-/, "")).slice(0, 1), first = own.slice(0, 2);
    const wanted = [...new Set([...first, ...sorted, ...own])].filter((id) => api.getColumn(id) && api.getColumn(id).isVisible());
    // a column that fills what the others leave needs its least width alone
    const width = (id) => {
      const column = api.getColumn(id);
      return column ? (column.getFlex() ? column.getMinWidth() : column.getActualWidth()) : 0;
    };
    let left = frame.clientWidth / 2 - width(BOXES);
    const pinned = [];
    for (const id of wanted) {
      if (width(id) > left) { if (first.includes(id)) break; else continue; }
      pinned.push(id);
      left -= width(id);
    }
    const kept = first.every((id) => pinned.includes(id) || !wanted.includes(id)) ? pinned : [];
    const now = api.getColumnState().filter((c) => c.pinned && c.colId !== BOXES).map((c) => c.colId);
    if ([...now].sort().join() === [...kept].sort().join()) return;
    api.setColumnsPinned(now.filter((id) => !kept.includes(id)), null);
    api.setColumnsPinned(kept, "left");
    const narrowed = kept.filter((id) => api.getColumn(id).getFlex());
    if (narrowed.length) api.applyColumnState({ state: narrowed.map((colId) => ({ colId, width: width(colId) })) });
  }

  // How many rows are picked, said again where the page was drawn anew since: its element is another one then.
  const said = {};
  window.cotenant.sayPicked = (name, text) => {
    said[name] = text;
    const box = document.getElementById("picked-" + name);
    if (box && box.textContent !== text) box.textContent = text;
  };
  new MutationObserver(() => {
    for (const [name, text] of Object.entries(said)) window.cotenant.sayPicked(name, text);
  }).observe(document.documentElement, { childList: true, subtree: true });

  function wire(api, name) {
    window.cotenant.freshList();
    if (name === "recommendations") window.cotenant.pickMore(api);
    const whole = () => document.getElementById("frame-" + name).classList.contains("all-picked");
    window.cotenant.sayPicked(name, whole() ? "all matching · " : "");
    pinFitting(api, name);
    api.addEventListener("gridSizeChanged", () => pinFitting(api, name));
    api.addEventListener("columnMoved", (event) => { if (event.finished) columnsToUrl(api, name); });
    api.addEventListener("selectionChanged", (event) => {
      if (name === "recommendations") window.cotenant.picked(api, () => pickedRows(api, name), event.source);
      const count = api.getSelectedNodes().length;
      window.cotenant.sayPicked(name, whole() ? "all matching · " : count ? count + " selected · " : "");
      if (name === "findings") window.cotenant.choose("ticked-findings", { rows: pickedRows(api, name) });
    });
    api.addEventListener("rowClicked", (event) => {
      if (event.event && event.event.target.closest("[col-id=ag-Grid-SelectionColumn]")) return;
      if (!String(getSelection())) openRow(name, event.data);
    });
    api.addEventListener("modelUpdated", () => { if (name === "recommendations") window.cotenant.pickMore(api); });
    api.addEventListener("cellKeyDown", (event) => { if (event.event.key === "Enter") openRow(name, event.data); });
    api.addEventListener("sortChanged", (event) => {
      skeleton(api);
      pinFitting(api, name);
      if (event.source === "api") return;
      const frame = document.getElementById("frame-" + name), params = new URLSearchParams(location.search);
      const sort = sortNow(api);
      params.delete("sort");
      if (sort.join() !== frame.dataset.order) sort.forEach((s) => params.append("sort", s));
      window.cotenant.go(location.pathname + (params.size ? "?" + params : ""), true);
    });
  }

  // Columns that belong to what is hidden come and go with it.
  function reveal(api, frame, filters) {
    const [key, value] = (frame.dataset.hidden || "").split("=");
    const revealed = (frame.dataset.revealed || "").split(",").filter(Boolean);
    if (key) setVisible(api, revealed, filters.get(key) !== value);
  }

  // Only what changes: every call lays out the columns anew.
  function setVisible(api, names, visible) {
    const others = names.filter((name) => api.getColumn(name) && api.getColumn(name).isVisible() !== visible);
    if (others.length) api.setColumnsVisible(others, visible);
  }

  // Back and forward buttons change the URL's sort: the grid follows.
  function followSort(api, name, search) {
    const given = new URLSearchParams(search || "").getAll("sort");
    const wanted = given.length ? given : document.getElementById("frame-" + name).dataset.order.split(",");
    if (sortNow(api).join() === wanted.join()) return;
    const state = wanted.map((s, i) => ({ colId: s.replace(/^-/, ""), sort: s.startsWith("-") ? "desc" : "asc", sortIndex: i }));
    api.applyColumnState({ state, defaultState: { sort: null } });
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside);
  window.dash_clientside.cotenant = Object.assign({}, window.dash_clientside.cotenant, {
    // URL or results changed: give the grid a new source of rows, unless it shows exactly that already. The first time
    // our source takes the place of the component's, with the rows that came with the page. The component's own question
    // calls this once more, in case that the grid of the page before was still there.
    async feed(search, version, _request, id) {
      const same = window.dash_clientside.no_update, name = id.replace("grid-", "");
      const call = (calls[id] = (calls[id] || 0) + 1);
      const api = await ready(name), frame = document.getElementById("frame-" + name);
      if (call !== calls[id] || !api || !frame || window.cotenant.page() !== frame.dataset.path) return same;
      const filters = filtersOf(search, frame), before = fed[id];
      const mounted = before && before.api === api;
      if (!mounted) wire(api, name);
      followSort(api, name, search);
      const newer = mounted && before.version && before.version !== version;
      if (mounted && before.filters === filters.toString() && !newer) {
        before.version = version; // a call that waits for these rows still shows them
        return same;
      }
      const now = (fed[id] = { api, version, filters: filters.toString() });
      const sort = sortNow(api), left = new AbortController();
      let known = mounted ? null : arrived(api, search), here = Boolean(known);
      if (mounted) { // the rows before stay until the new ones are here, unless that takes long
        known = ask(name, filters, sort, 0, api.getGridOption("cacheBlockSize"), left.signal);
        const done = () => { here = true; };
        await Promise.race([known.then(done, done), pause(LONG_MS)]);
        if (fed[id] !== now || api.isDestroyed()) {
          left.abort();
          return same;
        }
      }
      reveal(api, frame, filters);
      if (name === "recommendations" && mounted) window.cotenant.unpick(api);
      if (name === "findings" && mounted) api.deselectAll("all", "api");
      show(api, datasource(name, filters, known, sort.join(), left), here);
      return now.filters;
    },

    // The column chooser; like the feed, it waits for the grid.
    async columns(chosen, id) {
      const name = id.replace("grid-", ""), api = await ready(name);
      if (!api) return;
      const all = api.getColumns().map((c) => c.getColId()).filter((c) => !c.startsWith("ag-Grid-"));
      setVisible(api, all.filter((c) => !chosen.includes(c)), false);
      setVisible(api, chosen, true);
      columnsToUrl(api, name);
    },
  });
})();
