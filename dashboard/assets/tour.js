// The demo's tour, for whoever asks for it: coach marks on Home, one after the other, ended with Escape or "Skip".
"use strict";

(() => {
  const MARKS = [
    { at: ".home-cards", title: "Three answers",
      text: "Who is at risk, what can be cut, what can be lent; the button of each card leads to what it speaks of." },
    { at: "#band", title: "Usage through the day",
      text: "Usage, its forecast band and what batch may borrow: in the valleys of the night batch work can run." },
    { at: "#heat-figure", title: "Usage through the week",
      text: "Hour by weekday. Capacity can be reserved for peaks that repeat." },
    { at: "#place-right-size", title: "Recommendations, safely",
      text: "Select a few, review them: diff, guardrails, a dry run, then apply. Move the clock by an hour: each is verified, and what did harm (user/token-us does) is rolled back." },
    { at: "#place-peaks", title: "Capacity before the peak",
      text: "Approve a plan, fast-forward the clock above, and watch its reservations become available before it is needed." },
  ];
  let shown = -1;
  let before = null;
  let scrolled = 0;

  const clear = () => {
    document.querySelectorAll(".coach").forEach((it) => it.remove());
    document.querySelectorAll(".coached").forEach((it) => it.classList.remove("coached"));
  };

  function end() {
    clear();
    shown = -1;
    if (before && before.isConnected) before.focus({ preventScroll: true });
    if (document.querySelector(MARKS[0].at)) scrollTo(0, scrolled);
  }

  function button(words, act, first) {
    const made = document.createElement("button");
    made.className = "button";
    made.type = "button";
    made.textContent = words;
    made.addEventListener("click", act);
    if (first) made.dataset.first = "1";
    return made;
  }

  function show(number) {
    clear();
    const mark = MARKS[number];
    const place = document.querySelector(mark.at);
    if (!place) { end(); return; }
    if (shown < 0) scrolled = scrollY;
    shown = number;
    const folded = place.closest("details.home-more"); // what Home keeps behind a heading opens for its mark
    if (folded) folded.open = true;
    place.classList.add("coached");
    if (place.closest("nav")) scrollTo(0, 0); // its text speaks of the clock at the top
    else place.scrollIntoView({ block: "center" });
    const coach = document.createElement("div");
    coach.className = "coach";
    coach.setAttribute("role", "dialog");
    coach.setAttribute("aria-labelledby", "coach-title");
    coach.setAttribute("aria-describedby", "coach-text");
    const title = document.createElement("h2");
    title.id = "coach-title";
    title.textContent = mark.title;
    const text = document.createElement("p");
    text.id = "coach-text";
    text.textContent = mark.text;
    const foot = document.createElement("div");
    foot.className = "coach-foot";
    const count = document.createElement("span");
    count.className = "dim";
    count.textContent = `${number + 1} of ${MARKS.length}`;
    const last = number === MARKS.length - 1;
    foot.append(count, button("Skip", end));
    foot.append(last ? button("Done", end, true) : button("Next", () => show(number + 1), true));
    coach.append(title, text, foot);
    document.body.append(coach);
    put(coach, place.getBoundingClientRect());
    coach.querySelector("[data-first]").focus({ preventScroll: true });
  }

  // Beside what it explains, else below or above it, and never over it where the window has room; always inside.
  function put(coach, box) {
    const gap = 14, edge = 16, wide = coach.offsetWidth, high = coach.offsetHeight;
    const right = innerWidth - wide - edge, bottom = innerHeight - high - edge;
    const places = [[box.right + gap, box.top - 8], [box.left - gap - wide, box.top - 8],
                    [box.left, box.bottom + gap], [box.left, box.top - gap - high]];
    const free = [([x]) => x <= right, ([x]) => x >= edge, ([, y]) => y <= bottom, ([, y]) => y >= edge];
    const [x, y] = places.find((place, side) => free[side](place)) || [right, bottom];
    coach.style.left = `${Math.max(edge, Math.min(x, right)) + scrollX}px`;
    coach.style.top = `${Math.max(8, Math.min(y, bottom)) + scrollY}px`;
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest && event.target.closest("#tour-open")) {
      before = event.target;
      if (document.querySelector(MARKS[0].at)) show(0);
      else { window.cotenant.go(window.cotenant.base()); begin(); }
    }
  });
  document.addEventListener("keydown", (event) => {
    if (shown >= 0 && event.key === "Escape") { event.stopPropagation(); end(); }
  }, true);
  window.addEventListener("resize", () => { if (shown >= 0) show(shown); });

  // Once the overview is drawn; a page that is left takes its mark along.
  function begin() {
    let looks = 0;
    const look = setInterval(() => {
      looks += 1;
      if (document.querySelector("#page") && !document.querySelector("#steering")) looks = Infinity; // no demo
      const ready = document.querySelector("#steering") && document.querySelector("#band .js-plotly-plot");
      if (ready && MARKS.every((mark) => document.querySelector(mark.at))) { clearInterval(look); before = document.activeElement; show(0); }
      else if (looks > 240) clearInterval(look);
    }, 250);
  }
  window.addEventListener("_dashprivate_pushstate", () => { if (shown >= 0 && !document.querySelector(MARKS[shown].at)) end(); });
})();
