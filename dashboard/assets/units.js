// Units and time zone of charts and headline numbers: what the server drew in cores, GiB and UTC is rewritten in the
// browser. A figure says in `layout.meta` which of its numbers are amounts or moments (dashboard/figures/base.py).
"use strict";

(function units() {
  const MILLI = { cores: [1000, "millicores", "m"], GiB: [1024, "MiB", "MiB"] };
  const ct = window.cotenant;
  const given = new WeakMap(); // graph element -> the figure as the server made it
  const milli = () => ct.units === "milli";
  const local = () => ct.zone === "local";

  // --- time zone ---
  const offset = (ms) => -60000 * new Date(ms).getTimezoneOffset(); // of this very moment: summer time is in it
  const shifted = (ms) => (typeof ms === "number" ? ms + offset(ms) : ms);
  function zoneName(ms) {
    const part = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(new Date(ms));
    return part.find((p) => p.type === "timeZoneName").value;
  }

  // --- numbers in nested lists; anything else stays ---
  const deep = (it, change) => (Array.isArray(it) ? it.map((v) => deep(v, change)) : typeof it === "number" ? change(it) : it);

  const change = (trace, key, how) => { if (trace[key] !== undefined) trace[key] = deep(trace[key], how); };

  function inTime(figure) {
    figure.data.forEach((trace) => change(trace, "x", shifted));
    (figure.layout.shapes || []).forEach((s) => { s.x0 = shifted(s.x0); s.x1 = shifted(s.x1); });
    const axis = figure.layout.xaxis || {};
    if (axis.range) {
      const last = axis.range[1];
      axis.range = axis.range.map(shifted);
      if (axis.hoverformat) axis.hoverformat = axis.hoverformat.replace("UTC", zoneName(last));
    }
  }

  // Plotly reads a number as a moment of the browser's own zone, and a text as what a clock on the wall shows.
  const wall = (ms) => new Date(ms).toISOString().slice(0, 23);

  function onTheWall(figure) {
    figure.data.forEach((trace) => change(trace, "x", wall));
    (figure.layout.shapes || []).filter((s) => s.xref !== "paper").forEach((s) => { s.x0 = deep(s.x0, wall); s.x1 = deep(s.x1, wall); });
    const axis = figure.layout.xaxis;
    if (axis.range) axis.range = deep(axis.range, wall);
  }

  // Hours of the week move by today's offset in whole hours: a cell is one hour wide.
  function inWeek(figure) {
    const hours = Math.round(offset(Date.now()) / 3600000), trace = figure.data[0];
    const flat = trace.z.flat(), zone = zoneName(Date.now());
    trace.z = trace.z.map((row, day) => row.map((_, hour) => flat[(((day * 24 + hour - hours) % 168) + 168) % 168]));
    trace.hovertemplate = trace.hovertemplate.replace("UTC", zone);
    const title = figure.layout.xaxis && figure.layout.xaxis.title;
    if (title) title.text = title.text.replace("UTC", zone);
  }

  function inMilli(figure, unit, axis) {
    const [factor, name, short] = MILLI[unit], times = (v) => v * factor;
    const renamed = (text) => (typeof text === "string" ? text.replaceAll(" " + unit, " " + name) : text);
    figure.data.forEach((trace) => {
      if (axis === "y" && trace.yaxis && trace.yaxis !== "y") return; // a lane of events, say
      change(trace, axis, times);
      if (axis === "x") change(trace, "width", times);
      change(trace, "customdata", times);
      if (trace.hovertemplate) trace.hovertemplate = renamed(trace.hovertemplate);
      if (axis === "z" && trace.colorbar) trace.colorbar.title.text = name;
      if (trace.meta && trace.meta.amounts === "text") trace.text = trace.x.map((v) => ct.amount(v * (unit === "GiB" ? 1024 ** 2 : 1), unit === "GiB" ? "bytes" : "millicores"));
    });
    if (axis === "x") {
      (figure.layout.shapes || []).forEach((s) => { s.x0 *= factor; s.x1 *= factor; });
      (figure.layout.annotations || []).forEach((a) => { a.x *= factor; });
    }
    figure.layout.meta = { ...figure.layout.meta, shown: name };
    const drawn = figure.layout[axis + "axis"];
    if (!drawn || axis === "z") return;
    if (axis === "x" && drawn.range) drawn.range = drawn.range.map(times);
    if (drawn.title && drawn.title.text === unit) drawn.title.text = name;
    if (drawn.ticksuffix) drawn.ticksuffix = " " + short;
    drawn.tickformat = ",";
    if (axis === "y") figure.layout.margin.l += 22; // longer numbers
  }

  // A telephone has no room for names above a chart: they stand below it (.chart-names).
  const telephone = window.matchMedia("(max-width: 480px)");

  // The figure as the switches and the screen want it; the given one is left as it is.
  function written(figure) {
    const layout = figure && figure.layout;
    if (!layout) return figure;
    const meta = layout.meta || {}, dated = layout.xaxis && layout.xaxis.type === "date";
    const named = telephone.matches && layout.showlegend;
    if (!dated && !named && !(milli() && meta.unit) && !(local() && meta.week)) return figure;
    const made = structuredClone({ data: figure.data, layout: figure.layout });
    if (milli() && meta.unit) inMilli(made, meta.unit, meta.axis);
    if (local() && meta.time) inTime(made);
    if (local() && meta.week) inWeek(made);
    if (dated) onTheWall(made);
    if (named) made.layout.legend = { ...made.layout.legend, visible: false };
    if (named && !layout.annotations) made.layout.margin.t = Math.min(made.layout.margin.t, 8); // the room of the names
    return { ...figure, ...made };
  }

  let react = null; // Plotly's own

  function wrap(name) {
    const plain = window.Plotly[name];
    window.Plotly[name] = (place, figure, ...rest) => {
      const graph = typeof place === "string" ? document.getElementById(place) : place;
      if (graph && figure && figure.data) given.set(graph, figure);
      return plain.call(window.Plotly, place, written(figure), ...rest);
    };
    return plain;
  }

  function hook() {
    wrap("newPlot");
    react = wrap("react");
  }

  // Dash's own bundle arrives when the first chart asks for it; ours stands in the page.
  if (window.Plotly) hook();
  else Object.defineProperty(window, "Plotly", {
    configurable: true,
    get: () => undefined,
    set: (value) => {
      Object.defineProperty(window, "Plotly", { value, writable: true, configurable: true });
      hook();
    },
  });

  // --- headline numbers and moments in the page's text ---
  function form(it) {
    const at = new Date(it.dateTime), zone = { hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
    const say = (when, how) => when.toLocaleString("en-GB", how).replaceAll(",", "");
    if (it.dataset.form === "clock") return say(at, zone);
    if (it.dataset.form === "window")
      return say(at, { hour: "2-digit", minute: "2-digit" }) + "–" + say(new Date(it.dataset.until), zone);
    return say(at, { weekday: "short", day: "2-digit", month: "short", ...zone });
  }

  // What the server wrote is kept beside what we wrote; newer text of the server is noticed by being neither.
  function write(it, other) {
    if (it.textContent !== it.cotenantWrote) it.cotenantGiven = it.textContent;
    const text = other === null ? it.cotenantGiven : other;
    it.cotenantWrote = text;
    if (it.textContent !== text) it.textContent = text;
  }

  // Moments inside of sentences, chips and captions: every text of the page says one zone.
  const DATED = /\b(Sun|Mon|Tue|Wed|Thu|Fri|Sat) (\d\d) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) (\d\d):(\d\d) UTC/g;
  const CLOCKS = /\b(\d\d):(\d\d)(?:–(\d\d):(\d\d))? UTC/g;
  const MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec", DAYS = "SunMonTueWedThuFriSat", DAY_MS = 86400000;
  const LITERAL = "script,style,code,pre,textarea,input,time,[contenteditable],.ag-root-wrapper,.js-plotly-plot";
  const texts = new WeakMap(); // text node -> what the server wrote, and what we wrote

  // The year is not written: of those around it is the one whose day of the week is right.
  function dated(weekday, day, month, hour, minute) {
    const now = Date.now(), year = new Date(now).getUTCFullYear();
    const found = [0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6].map((off) =>
      Date.UTC(year + off, MONTHS.indexOf(month) / 3, day, hour, minute)).find((ms) =>
      new Date(ms).getUTCDay() === DAYS.indexOf(weekday) / 3);
    return found === undefined ? NaN : found;
  }

  // A time of day alone is of the day that the page's newest dated text names, for the sake of summer time.
  let nearest = Date.now();

  function inZone(text) {
    const full = text.replace(DATED, (whole, ...parts) => {
      const ms = dated(...parts);
      if (Number.isNaN(ms)) return whole;
      nearest = ms;
      return form({ dateTime: new Date(ms).toISOString(), dataset: {} });
    });
    return full.replace(CLOCKS, (_whole, hour, minute, untilHour, untilMinute) => {
      const at = (h, m) => new Date(Math.floor(nearest / DAY_MS) * DAY_MS + (h * 60 + Number(m)) * 60000).toISOString();
      if (untilHour === undefined) return form({ dateTime: at(hour, minute), dataset: { form: "clock" } });
      return form({ dateTime: at(hour, minute), dataset: { form: "window", until: at(untilHour, untilMinute) } });
    });
  }

  function everyText() {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const before = texts.get(node), given = before && node.data === before.wrote ? before.given : node.data;
      if (!before && !given.includes(" UTC")) continue;
      if (node.parentElement.closest(LITERAL)) continue;
      const wrote = local() ? inZone(given) : given;
      texts.set(node, { given, wrote });
      if (node.data !== wrote) node.data = wrote;
    }
  }

  // Of a range the lower end comes without its unit: both are of the same.
  function inSmallUnits({ low, value, unit }) {
    const text = ct.amount(Number(value), unit);
    const from = low === undefined ? text : ct.amount(Number(low), unit);
    return from === text ? text : from.split(" ")[0] + " to " + text;
  }

  ct.texts = () => {
    document.querySelectorAll("time.moment").forEach((it) => write(it, local() ? form(it) : null));
    document.querySelectorAll(".amount").forEach((it) => write(it, milli() ? inSmallUnits(it.dataset) : null));
    everyText();
  };

  ct.redrawCharts = () => document.querySelectorAll(".js-plotly-plot").forEach((graph) => {
    const figure = given.get(graph);
    if (figure) react.call(window.Plotly, graph, written(figure));
    ct.rebuildTables();
  });

  telephone.addEventListener("change", () => ct.redrawCharts());
  new MutationObserver(() => { if (local() || milli()) ct.texts(); })
    .observe(document.documentElement, { childList: true, characterData: true, subtree: true });
})();
