// Every chart as a table: built in the browser, when it is opened, from what the chart shows (units and zone included).
"use strict";

(function tables() {
  const MOST_ROWS = 500;  // a week of hours and a day of five minutes
  const number = (v) => (v === null || v === undefined ? "–" : typeof v !== "number" ? String(v)
    : window.cotenant.written(v, Math.abs(v) >= 100 ? 0 : Math.abs(v) >= 10 ? 1 : 3));
  // The figure's moments are already in the zone that is shown, as texts; here they only have to be written.
  const parsed = (x) => (typeof x === "string" ? Date.parse(x + "Z") : x);
  const moment = (ms, exact) => new Date(ms).toUTCString()
    .replace(/^(\w+), (\d+ \w+) \d+ (\d+:\d+)(:\d+).*$/, exact ? "$1 $2 $3$4" : "$1 $2 $3");
  const exact = (layout) => /%S/.test((layout.xaxis && layout.xaxis.hoverformat) || "");
  const named = (trace) => (trace.meta && trace.meta.column) || trace.name;
  const suffix = (axis) => ((axis && (axis.ticksuffix || (axis.title && axis.title.text))) || "").trim();

  function week(trace, layout) {
    const unit = layout.meta.shown || layout.meta.unit || "%";
    return { heads: ["Day", ...trace.x.map((h) => h + " h")], unit: unit + ", by " + suffix(layout.xaxis),
      rows: trace.y.map((day, i) => [day, ...trace.z[i].map(number)]) };
  }

  // Shares of time by amount, then the quantiles.
  function spread(data, layout) {
    const unit = suffix(layout.xaxis), rows = [];
    data.forEach((trace) => trace.x.forEach((x, i) => {
      const of = trace.customdata[i];
      rows.push(Array.isArray(of) ? [number(of[0]) + "–" + number(of[1]) + " " + unit, number(trace.y[i]) + " %"]
        : [of, number(x) + " " + unit]);
    }));
    return { heads: ["Amount, quantile", "Share of time, amount"], rows, unit: "" };
  }

  // Lines and bars over one axis, one column each.
  function lines(data, layout) {
    const shown = data.filter((t) => named(t) || data.length === 1), places = new Map();
    shown.forEach((t) => t.x.forEach((x) => places.set(x, [])));
    shown.forEach((t, column) => {
      const from = t.meta && t.meta.amounts === "customdata" ? t.customdata : t.y;
      t.x.forEach((x, i) => { places.get(x)[column] = from[i]; });
      if (t.x.length === 2 && from[0] === from[1]) places.forEach((row) => { row[column] = from[0]; }); // a level
    });
    const sorted = [...places.keys()].sort((a, b) => a - b), timed = layout.xaxis.type === "date";
    const first = timed ? (layout.xaxis.hoverformat || "UTC").split(" ").pop() : suffix(layout.xaxis) || "from";
    return { heads: [first, ...shown.map((t) => named(t) || suffix(layout.yaxis) || "number")], unit: suffix(layout.yaxis),
      rows: sorted.map((x) => [timed ? moment(x, exact(layout)) : number(x), ...shown.map((_, c) => number(places.get(x)[c]))]) };
  }

  function bars(trace, layout) { // lying bars: names on the left
    return { heads: ["Name", suffix(layout.xaxis) || "amount"], unit: "",
      rows: trace.y.map((name, i) => [trace.customdata[i], number(trace.x[i])]) };
  }

  function dots(trace, layout) {
    return { heads: ["Name", suffix(layout.xaxis), suffix(layout.yaxis)], unit: "",
      rows: trace.customdata.map((name, i) => [name, number(trace.x[i]), number(trace.y[i])]) };
  }

  // Patterned bars over time, five corners and a gap each: who, from, until, what.
  function spans(data, layout) {
    const zone = (layout.xaxis.hoverformat || "UTC").split(" ").pop(), rows = [], fine = exact(layout);
    const [who, what] = Array.isArray(layout.meta.spans) ? layout.meta.spans : ["Plan", "Reservation"];
    data.filter((t) => t.meta && t.meta.names).forEach((t) => t.meta.names.forEach((name, i) =>
      rows.push([name, moment(t.x[6 * i], fine), moment(t.x[6 * i + 1], fine), t.meta.words[i]])));
    return { heads: [who, "From, " + zone, "Until, " + zone, what], rows, unit: "" };
  }

  function contents({ data: drawn, layout }) {
    const dated = layout.xaxis && layout.xaxis.type === "date";
    const data = dated ? drawn.map((t) => ({ ...t, x: Array.from(t.x || [], parsed) })) : drawn;
    const first = data[0] || {};
    if (layout.meta && layout.meta.spans) return spans(data, layout);
    if (first.type === "heatmap") return week(first, layout);
    if (first.orientation === "h") return bars(first, layout);
    if (first.mode === "markers" && typeof (first.customdata || [])[0] === "string") return dots(first, layout);
    if (layout.meta && layout.meta.axis === "x") return spread(data, layout);
    return lines(data.filter((t) => !t.yaxis || t.yaxis === "y"), layout);
  }

  function cell(kind, text, scope) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (scope) made.scope = scope;
    return made;
  }

  function build(details) {
    const graph = document.querySelector("#" + details.dataset.figure + " .js-plotly-plot");
    const place = details.querySelector(".chart-table");
    if (!graph || !place || !graph.data) return;
    const { heads, rows, unit } = contents(graph), table = document.createElement("table");
    table.className = "facts";
    const more = rows.length > MOST_ROWS ? `; the newest ${MOST_ROWS} of ${rows.length.toLocaleString("en-US")} rows` : "";
    table.createCaption().textContent = (unit ? "In " + unit : "As drawn") + more;
    const head = table.createTHead().insertRow();
    heads.forEach((text) => head.append(cell("th", text, "col")));
    const body = table.createTBody();
    rows.slice(-MOST_ROWS).forEach(([name, ...rest]) => {
      const row = body.insertRow();
      row.append(cell("th", name, "row"), ...rest.map((text) => cell("td", text)));
    });
    place.replaceChildren(table);
  }

  window.cotenant.rebuildTables = () => document.querySelectorAll("details.as-table[open]").forEach(build);
  // "toggle" does not bubble, but it can be caught on its way down.
  document.addEventListener("toggle", (event) => {
    if (event.target.matches && event.target.matches("details.as-table[open]")) build(event.target);
  }, true);
})();
