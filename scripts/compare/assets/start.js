// Colours as the system or the reader wants them, the list of sections, and the first drawing of all.

const system = window.matchMedia("(prefers-color-scheme: dark)");

function applyTheme(printing = false) {
  const chosen = byId("theme").value;
  document.documentElement.dataset.theme = printing ? "light" : chosen || (system.matches ? "dark" : "light");
}

function redraw() {
  if (!DATA.groups.length) return;
  drawLegend();
  drawCurves();
  drawScatter();
  drawParallel();
  drawHistograms();
}

function experimentChanged() {
  setOptions(byId("metric"), namesOf(metricsHere()));
  metricChanged();
  finalsChanged();
  scatterChanged();
  parallelChanged();
  picturesChanged();
  configsChanged();
}

applyTheme();
byId("theme").addEventListener("change", () => { applyTheme(); redraw(); });
system.addEventListener("change", () => { applyTheme(); redraw(); });
window.matchMedia("(max-width: 44rem)").addEventListener("change", redraw);
window.addEventListener("beforeprint", () => { applyTheme(true); redraw(); });
window.addEventListener("afterprint", () => { applyTheme(); redraw(); });

startRuns();
if (DATA.groups.length) {
  hideTrials();
  if (EXPERIMENTS.length > 1) {
    const names = EXPERIMENTS.map((name) => [name, name || "another experiment"]);
    byId("experiments").append(select("experiment", "Experiment", names, (event) => {
      experiment = event.target.value;
      experimentChanged();
    }).label);
  }
  startConfigs();
  startFinals();
  startCurves();
  startScatter();
  startParallel();
  startPictures();
} else {
  for (const id of ["curves", "finals", "scatter", "parallel", "pictures", "configs", "runs"]) byId(id).hidden = true;
}
for (const section of document.querySelectorAll("main > section:not([hidden])")) {
  const title = section.querySelector("h2").textContent;
  byId("nav").append(element("li", {}, element("a", { href: `#${section.id}` }, title)));
}
startTables();
startState();
if (DATA.version) startFollowing();
