// Selecting recommendations and walking through their review. The address holds what a person has chosen; the key in it
// is made here, once, so that whoever confirms twice changes nothing more.
"use strict";

window.cotenant = window.cotenant || {}; // completed by shell.js

(function review() {
  const ct = window.cotenant, REVIEW = "recommendations/review";
  const WAITS = {
    "dry-run": "The API server tries every write and keeps none…",
    confirm: "The API server tries every write once more…",
    accept: "The ledger is written, then the cluster…",
    done: "The ledger is read…",
  };
  const by = (id) => document.getElementById(id);
  const here = () => ct.page() === REVIEW;
  const set = (id, props) => window.dash_clientside.set_props(id, props);
  const same = () => window.dash_clientside.no_update;

  // --- the selection in the list ---
  let everything = false; // all that the filters show, also what was never loaded
  let newest = 0; // counts selections: the server draws the bar, and until it has the newest its links are of one before

  ct.choose = (store, data) => {
    newest += 1;
    behind = line(); // what it says is of the selection before
    const count = (data.rows || []).length;
    const text = data.all ? "All matching rows" : count ? count.toLocaleString("en") + " selected" : "No row is selected";
    if (behind) behind.dataset.waiting = text + "\u2026";
    set(store, { data: { ...data, choice: newest } });
  };
  ct.freshList = () => { newest = 0; };
  const line = () => document.querySelector(".selection-line[data-choice]");
  const drawn = () => !newest || !line() || Number(line().dataset.choice) === newest;
  let behind = null; // the bar that shows our own words until the server has drawn it
  let pending = null; // what a person did before the bar was drawn; a page that is left, or ten seconds, forget it
  const whenDrawn = (act) => { if (drawn()) act(); else pending = { act, href: location.href, until: Date.now() + 10000 }; };
  new MutationObserver(() => {
    if (behind && (drawn() || !behind.isConnected)) { delete behind.dataset.waiting; behind = null; }
    if (!pending || (!drawn() && location.href === pending.href && Date.now() < pending.until)) return;
    const { act, href, until } = pending;
    pending = null;
    if (location.href === href && Date.now() < until) act();
  }).observe(document.documentElement, { childList: true, subtree: true, attributeFilter: ["data-choice"] });
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest(".selection-line a");
    if (!link || drawn()) return;
    event.preventDefault();
    event.stopPropagation();
    whenDrawn(() => { const now = by(link.id); if (now) now.click(); });
  }, true);

  ct.picked = (api, rows, source) => {
    if (source === "api" || source === "rowDataChanged") return; // by us
    everything = false;
    by("frame-recommendations").classList.remove("all-picked");
    ct.choose("selection", { rows: rows() });
  };
  ct.pickMore = (api) => {
    if (!everything) return;
    by("frame-recommendations").classList.add("all-picked"); // also of a grid that was drawn anew
    api.forEachNode((node) => { if (node.data) node.setSelected(true, false, "api"); });
  };
  ct.unpick = (api) => {
    if (!newest) return; // nothing was chosen in this list yet
    everything = false;
    api.deselectAll("all", "api");
    const frame = by("frame-recommendations");
    if (frame) frame.classList.remove("all-picked");
    ct.sayPicked("recommendations", "");
    ct.choose("selection", {});
  };
  function pickAll(api) {
    everything = true;
    ct.pickMore(api);
    ct.choose("selection", { all: true });
  }

  // r: what the page offers to review, else the row in hand.
  ct.review = () => whenDrawn(() => {
    for (const id of ["review-selected", "review-shares", "review-open", "to-review"]) {
      const link = by(id);
      if (link && link.tagName === "A") { link.click(); return; }
    }
    const { api, name, row } = ct.grid(), node = api && row >= 0 ? api.getDisplayedRowAtIndex(row) : null;
    if (name !== "recommendations" || !node || !node.data || !by("review-selected")) return;
    if (by("selection-why") && /Read-only|may not review/.test(by("selection-why").textContent)) return;
    const ref = [node.data.namespace, node.data.kind, node.data.workload].map(encodeURIComponent).join("/");
    ct.go(ct.base() + REVIEW + "?" + new URLSearchParams({ ids: ref }));
  });

  // --- the steps ---
  const waiting = () => { const frame = by("review-frame"); return !frame || frame.classList.contains("waiting"); };

  function address(change) {
    const params = new URLSearchParams(location.search);
    change(params);
    return location.pathname + "?" + params;
  }

  // From the second step on the review is of these workloads and this method, whatever the filters show by then.
  function pinned(params) {
    const step = by("review-step");
    if (!step || !step.dataset.method) return;
    if (!params.has("method")) params.set("method", step.dataset.method);
    if (!params.has("all") || !step.dataset.ids) return; // very many stay a filter
    const own = /^(step|key|method|form|override|because|second|canary|ladder)$/;
    [...new Set(params.keys())].filter((key) => !own.test(key)).forEach((key) => params.delete(key));
    step.dataset.ids.split(",").forEach((ref) => params.append("ids", ref));
  }

  function walk(step) {
    if (waiting()) return;
    say(step);
    ct.go(address((params) => { pinned(params); params.set("step", step); }));
  }

  function say(step) { const box = by("review-wait"); if (box) box.textContent = WAITS[step] || "The cluster is being asked…"; }

  function term(key, value) {
    const wanted = address((params) => { params.delete(key); if (value && value !== "0") params.set(key, value); });
    if (wanted !== location.pathname + location.search) ct.go(wanted, true);
  }

  function leaveOut(ref) {
    if (waiting()) return;
    ct.go(address((params) => {
      pinned(params);
      const kept = params.getAll("ids").filter((one) => one !== ref);
      params.delete("ids");
      kept.forEach((one) => params.append("ids", one));
    }));
  }

  const CLICKS = {
    "select-all": () => pickAll(ct.grid().api),
    "clear-selection": () => ct.unpick(ct.grid().api),
    "review-accept": () => say("accept"),
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("button");
    if (!button || button.disabled) return;
    if (button.classList.contains("walk")) walk(button.dataset.to);
    else if (button.classList.contains("leave-out")) leaveOut(button.dataset.ref);
    else if (button.classList.contains("pass-over")) {
      ct.go(address((params) => { params.append("override", button.dataset.rule); params.set("step", "guardrails"); }));
    } else if (CLICKS[button.id]) CLICKS[button.id]();
  });

  // What is typed is in the address at once, without asking the cluster again.
  document.addEventListener("input", (event) => {
    const key = { "review-because": "because", "review-second": "second" }[event.target.id];
    if (!key) return;
    history.replaceState({}, "", address((params) => {
      params.delete(key);
      if (event.target.value.trim()) params.set(key, event.target.value.trim());
    }));
  });

  // Enter leads on from anywhere but a control of its own; the last step takes Ctrl+Enter, never a held-down key.
  document.addEventListener("keydown", (event) => {
    if (!here() || event.repeat || event.altKey || waiting()) return;
    const accept = by("review-accept");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      if (accept && !accept.disabled) { event.preventDefault(); accept.click(); }
      return;
    }
    if (event.ctrlKey || event.metaKey) return;
    const own = event.target.closest && event.target.closest("a, button, summary, textarea, select, [role=switch], [role=radio], input[type=radio], input[type=checkbox]");
    if (event.key === "Enter" && !own) {
      const next = by("review-next");
      if (next) { event.preventDefault(); next.click(); }
    } else if (event.key === "c" && !ct.typing(event.target)) {
      const last = by("review-last");
      if (last) last.click();
    }
  });

  // What an action answered steps back after a while; it stays for those who read it from the page.
  let told = 0;
  new MutationObserver(() => {
    const box = by("said");
    if (!box || box.textContent === box.cotenantTold) return;
    box.cotenantTold = box.textContent;
    box.classList.remove("past");
    clearTimeout(told);
    told = setTimeout(() => box.classList.add("past"), 12000);
  }).observe(document.documentElement, { childList: true, subtree: true, characterData: true });

  const ORDER = ["diff", "guardrails", "dry-run", "method", "confirm"];
  const stepOf = (search) => new URLSearchParams(search || "").get("step") || "diff";
  let seen = "";

  window.dash_clientside = Object.assign({}, window.dash_clientside);
  window.dash_clientside.cotenant = Object.assign({}, window.dash_clientside.cotenant, {
    // The address has a key from the first look on; the stepper follows the step.
    reviewActive(search) {
      if (!here()) return same();
      const params = new URLSearchParams(search || "");
      if (!/^[0-9a-f]{8,32}$/.test(params.get("key") || "")) {
        const made = [...crypto.getRandomValues(new Uint8Array(8))].map((b) => b.toString(16).padStart(2, "0")).join("");
        setTimeout(() => ct.go(address((it) => it.set("key", made)), true));
        return same();
      }
      const at = ORDER.indexOf(stepOf(search));
      return at < 0 ? ORDER.length : at;
    },
    // A click on the stepper leads to that step; what is done stays done.
    reviewStep(active) {
      if (!here() || active === undefined || active === null) return;
      const now = stepOf(location.search);
      if (now !== "done" && ORDER[active] && ORDER[active] !== now) walk(ORDER[active]);
    },
    reviewTerm(value, id) {
      if (value === undefined || value === null) return;
      const key = id.replace("review-", "");
      if (key === "method" && value === "kubectl") {
        ct.go(address((params) => { params.set("method", "bundle"); params.set("form", "kubectl"); }), true);
      } else if (key === "method") {
        const wanted = address((params) => { params.set("method", value); if (params.get("form") === "kubectl") params.delete("form"); });
        const step = by("review-step"), now = new URLSearchParams(location.search);
        if (!now.has("method") && step && step.dataset.method === value) return; // what was chosen for them
        if (wanted !== location.pathname + location.search) ct.go(wanted, true);
      } else term(key, value);
    },
    reviewLadder(checked) {
      if (checked !== undefined && checked !== null) term("ladder", checked ? "1" : "");
    },
    reviewOverrides(checked, ids) {
      const wanted = ids.filter((_, i) => checked[i]).map((id) => id.rule), params = new URLSearchParams(location.search);
      const shown = ids.map((id) => id.rule), before = params.getAll("override");
      const after = [...before.filter((rule) => !shown.includes(rule)), ...wanted].sort();
      if ([...before].sort().join() === after.join()) return;
      params.delete("override");
      after.forEach((rule) => params.append("override", rule));
      ct.go(location.pathname + "?" + params, true);
    },
    // A new step is read from its heading on; a switch inside a step keeps the focus where it is.
    reviewShown() {
      setTimeout(() => {
        const step = by("review-step"), title = by("review-title");
        if (!step || !title || seen === step.dataset.step) return;
        seen = step.dataset.step;
        title.focus({ preventScroll: true });
      });
    },
    // Accepted: Back leads to the method, not to the button that was pressed already.
    reviewDone(key) {
      if (key) ct.go(address((params) => { pinned(params); params.set("step", "done"); }), true);
    },
  });
})();
