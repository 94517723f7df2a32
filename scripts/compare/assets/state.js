// What the reader has chosen, in the address: who opens it sees the same. Nothing is sent: it comes after the #.

const changedControls = new Map(); // by the id of a control, its value
let initiallyHidden = new Set(); // places of groups
let sectionShown = ""; // to which the reader has gone
let firstCompared = []; // places of the groups in the table of configs at first
let waiting = null;
const ZOOMED = ["curves-plot", "scatter-plot"];

const isControl = (node) => node.matches?.(".controls select, .controls input:not([type=search])") && !node.closest(".columns");
const zoomed = (id) => {
  const axes = byId(id)._fullLayout && ["xaxis", "yaxis"].map((axis) => byId(id)._fullLayout[axis]);
  return axes && axes.every(({ autorange }) => autorange === false) ? axes.flatMap(({ range }) => range) : null;
};

/** Writes the address a little later, however many changes come until then. */
function stateChanged() {
  clearTimeout(waiting);
  waiting = setTimeout(writeState, 150);
}

function writeState() {
  clearTimeout(waiting);
  const state = new URLSearchParams(changedControls);
  const ids = (places) => places.map((i) => DATA.groups[i].id).join(".");
  const all = DATA.groups.map((_, i) => i);
  const show = all.filter((i) => initiallyHidden.has(i) && !hidden.has(i)), hide = all.filter((i) => !initiallyHidden.has(i) && hidden.has(i));
  if (show.length) state.set("show", ids(show));
  if (hide.length) state.set("hide", ids(hide));
  if (String(compared) !== String(firstCompared)) state.set("configs", ids(compared));
  for (const [table, chosen] of Object.entries(chosenColumns)) {
    const list = [...chosen].map(([name, wanted]) => (wanted ? "+" : "-") + name);
    if (list.length) state.set(`${table}-columns`, list.join());
    if (sortedBy[table]) state.set(`${table}-sort`, sortedBy[table]);
  }
  for (const id of ZOOMED) {
    const range = zoomed(id);
    if (range) state.set(`${id}-zoom`, range.map((value) => digits(Number(value), 6)).join());
  }
  if (sectionShown) state.set("at", sectionShown);
  history.replaceState(null, "", String(state) ? `#${state}` : location.pathname + location.search);
}

/** Once all is drawn: brings the page to what its address says, as far as there is such a thing, and keeps it up to date. */
async function startState() {
  initiallyHidden = new Set(hidden);
  document.addEventListener("change", ({ target }) => {
    if (!isControl(target) || !target.id || target.id === "add-config") return;
    if (target.id === "experiment") {
      for (const id of changedControls.keys()) if (id !== "theme") changedControls.delete(id);
      firstCompared = compared;
    }
    changedControls.set(target.id, target.type === "checkbox" ? String(target.checked) : target.value);
    stateChanged();
  });
  const state = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  restoreControls(state);
  restoreGroups(state);
  for (const id of ZOOMED) {
    const range = state.get(`${id}-zoom`)?.split(",").map(Number);
    if (range?.length === 4 && range.every(Number.isFinite) && byId(id).data) {
      await Plotly.relayout(id, { "xaxis.range": range.slice(0, 2), "yaxis.range": range.slice(2) });
    }
    byId(id).on?.("plotly_relayout", stateChanged);
  }
  const reloaded = performance.getEntriesByType("navigation")[0]?.type === "reload"; // then the browser keeps its place
  if (reloaded) sectionShown = state.get("at") ?? "";
  else goTo(state.get("at") ?? location.hash.slice(1));
  addEventListener("hashchange", () => location.hash.includes("=") ? location.reload() : goTo(location.hash.slice(1)));
}

function restoreControls(state) {
  firstCompared = compared;
  for (const node of document.querySelectorAll(".controls select, .controls input")) restoreControl(node, state);
}

function restoreControl(node, state) {
  if (!isControl(node) || !state.has(node.id)) return;
  const value = state.get(node.id);
  if (node.type === "checkbox") node.checked = value === "true";
  else if (node.tagName !== "SELECT" || [...node.options].some((option) => option.value === value)) node.value = value;
  else return;
  for (const kind of node.type === "range" ? ["input", "change"] : ["change"]) node.dispatchEvent(new Event(kind, { bubbles: true }));
}

function restoreGroups(state) {
  const places = (name) => (state.get(name) ?? "").split(".").map(placeOf).filter((i) => i >= 0);
  for (const i of places("show")) hidden.delete(i);
  for (const i of places("hide")) hidden.add(i);
  for (const [table, chosen] of Object.entries(chosenColumns)) {
    for (const item of (state.get(`${table}-columns`) ?? "").split(",").filter(Boolean)) chosen.set(item.slice(1), item[0] === "+");
    if (state.has(`${table}-sort`)) sortedBy[table] = state.get(`${table}-sort`);
  }
  if (places("configs").length) compared = places("configs");
  if (!DATA.groups.length) return;
  drawConfigs();
  drawRuns();
  redraw();
  drawFinals();
  picturesChanged();
  for (const id of ["pictures-run", "pictures-part"]) restoreControl(byId(id), state); // which the groups shown have
}

/** To a section, of which the address speaks from now on. */
function goTo(id) {
  if (!id || !byId(id)?.matches("main > section")) return;
  sectionShown = id;
  byId(id).scrollIntoView();
  stateChanged();
}
