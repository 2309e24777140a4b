// Namespaces and time range of the top bar: the address is the state, the fields follow it and write it.
"use strict";

window.cotenant = window.cotenant || {}; // completed by shell.js

(function extent() {
  // The key of a part of the address, as `ns` of `ns=a`, `ns!=a`, `ns in (a,b)`, and by the key's other name.
  window.cotenant.keyOf = (name) => name.replace(/(!|\s+(not)?in\b.*)$/, "").trim().replace(/^namespace$/, "ns");
  const ofNamespaces = (name) => window.cotenant.keyOf(name) === "ns";

  // A page about one thing has no rows to narrow: its list has.
  function target() {
    const ct = window.cotenant, [first, ...rest] = ct.page().split("/");
    return rest.length ? ct.base() + (first === "workload" ? "workloads" : first) : location.pathname;
  }

  function address(namespaces, range, narrowed) {
    const path = narrowed ? target() : location.pathname, kept = new URLSearchParams();
    for (const [name, value] of new URLSearchParams(path === location.pathname ? location.search : ""))
      if (!ofNamespaces(name) && name !== "range") kept.append(name, value);
    namespaces.forEach((one) => (one.startsWith("!") ? kept.append("ns!", one.slice(1)) : kept.append("ns", one)));
    if (range !== "usual") kept.append("range", range);
    const text = kept.toString();
    return path + (text ? "?" + text : "");
  }

  // The choices of the bar for an address of another page; an object gives its own parts, and its own namespace.
  window.cotenant.withExtent = (path, own) => {
    const kept = new URLSearchParams(own || {}), ownNamespace = kept.has("ns");
    for (const [name, value] of new URLSearchParams(location.search))
      if (name === "range" || (ofNamespaces(name) && !ownNamespace)) kept.append(name, value);
    const text = kept.toString();
    return window.cotenant.base() + path + (text ? "?" + text : "");
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside);
  window.dash_clientside.cotenant = Object.assign({}, window.dash_clientside.cotenant, {
    // What the server read in an address is shown unless the address has moved on since. Options and values go together:
    // a field that gets new options drops the values that are not among them.
    extentShown(state, names, ...now) {
      const same = window.dash_clientside.no_update;
      if (!state || state.search !== location.search) return [same, same, same, same];
      const named = new Set((names || []).map((option) => option.value));
      const present = state.namespaces.map((value, i) => ({ value, label: state.labels[i] }));
      const shown = [[...present.filter((option) => !named.has(option.value)), ...(names || [])], state.namespaces, state.ranges, state.range];
      return shown.map((value, i) => (JSON.stringify(value) === JSON.stringify(now[i]) ? same : value));
    },

    extentChosen(namespaces, range, state) {
      if (!state) return;
      const narrowed = state.namespaces.join("\n") !== namespaces.join("\n");
      if (narrowed || state.range !== range) window.cotenant.go(address(namespaces, range, narrowed));
    },

    extentUnfolded() {
      const bar = document.querySelector(".top"), open = bar.classList.toggle("unfolded");
      document.getElementById("unfold").setAttribute("aria-expanded", String(open));
    },
  });
})();
