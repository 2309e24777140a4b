// A timer waits for the answer to its last tick. Dash drops an answer that the next tick of the same timer has overtaken,
// so that a page whose answers take longer than the period would show none of them, while the server computes each.
"use strict";

(function ticks() {
  const ask = window.fetch.bind(window);
  const open = new Map(); // id of a dcc.Interval -> answers that are under way

  const timersOf = (init) => {
    if (!init || typeof init.body !== "string" || !init.body.includes(".n_intervals")) return [];
    const changed = JSON.parse(init.body).changedPropIds || [];
    return changed.filter((prop) => prop.endsWith(".n_intervals")).map((prop) => prop.slice(0, -".n_intervals".length));
  };

  const count = (id, by) => {
    const before = open.get(id) || 0, now = before + by;
    open.set(id, now);
    if (before && now) return;
    try {
      window.dash_clientside.set_props(id, { disabled: now > 0 });
    } catch {
      // Its page was left meanwhile: Dash knows the timer no more.
    }
  };

  window.fetch = async (input, init) => {
    const timers = String(input).includes("_dash-update-component") ? timersOf(init) : [];
    timers.forEach((id) => count(id, 1));
    try {
      return await ask(input, init);
    } finally {
      timers.forEach((id) => count(id, -1));
    }
  };
})();
