// Saved views and pictures: a view is an address below the base path under a name, kept by this browser; a chart leaves
// as a PNG drawn as it stands, units and time zone included.
"use strict";

(function views() {
  const KEY = "cotenant-views", MOST = 50;
  const PICTURE = { format: "png", scale: 2 };

  function kept() {
    try {
      const all = JSON.parse(localStorage.getItem(KEY) || "[]");
      return all.filter((v) => typeof v.name === "string" && typeof v.at === "string");
    } catch (broken) { return []; } // storage is off, or somebody else wrote there
  }

  function keep(all) {
    try { localStorage.setItem(KEY, JSON.stringify(all.slice(0, MOST))); return true; } catch (off) { return false; }
  }

  const here = () => location.pathname.slice(window.cotenant.base().length) + location.search;
  const button = (text, label, act) => {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: text, className: "quiet-link" });
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  };

  function row(view) {
    const item = document.createElement("li");
    item.append(
      button(view.name, "Open the view " + view.name, () => {
        document.getElementById("views").open = false;
        window.cotenant.go(window.cotenant.base() + view.at.replace(/^\/+/, ""));
      }),
      button("×", "Forget the view " + view.name, () => {
        keep(kept().filter((v) => v.name !== view.name));
        draw();
      }),
    );
    return item;
  }

  function draw(said) {
    const list = document.getElementById("view-list"), all = kept();
    list.replaceChildren(...all.map(row));
    document.getElementById("views-said").textContent = said || (all.length ? "" : "None yet. Filters, order and columns are kept; this browser only.");
  }

  // The present address under a name; the same name again replaces it.
  function save() {
    const box = document.getElementById("view-name"), name = box.value.trim().slice(0, 60);
    if (!name) { draw("Give the view a name first."); box.focus(); return; }
    const stored = keep([{ name, at: here() }, ...kept().filter((v) => v.name !== name)]);
    box.value = "";
    draw(stored ? "Saved: " + name : "This browser keeps nothing: copy the link instead.");
  }

  async function picture(id) {
    const drawn = document.querySelector("#" + CSS.escape(id) + " .js-plotly-plot");
    if (!drawn) return;
    const paper = getComputedStyle(document.documentElement).getPropertyValue("--ct-panel").trim() || "white";
    const { width, height } = drawn.getBoundingClientRect();
    const legend = { ...drawn.layout.legend, visible: true }; // a telephone has the names below the chart
    const layout = { ...drawn.layout, paper_bgcolor: paper, legend };
    const href = await window.Plotly.toImage({ data: drawn.data, layout }, { ...PICTURE, width, height });
    Object.assign(document.createElement("a"), { href, download: id + ".png" }).click();
  }

  document.addEventListener("toggle", (event) => { if (event.target.id === "views" && event.target.open) draw(); }, true);
  document.addEventListener("click", (event) => {
    const target = event.target.closest && event.target.closest("#view-save, .png");
    if (target) target.id === "view-save" ? save() : picture(target.dataset.figure);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.id === "view-name") save();
  });
})();
