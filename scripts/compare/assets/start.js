// The menus of the whole page, and the first drawing of all.

function draw() {
  for (const update of controls) update();
  if (DATA.groups.length) for (const part of [drawCurves, drawList, drawFinals, drawFields]) part();
  drawProblems();
}

/** The first metric that most of the groups have that are shown at first. */
function usualMetric() {
  const groups = ofExperiment(byId("experiment").value).filter((group) => usuallyShown.has(group.id));
  const counts = metrics().map((name) => groups.filter((group) => group.curves[name]).length);
  return metrics()[counts.indexOf(Math.max(...counts))];
}

const metrics = () => DATA.metrics.filter((name) => ofExperiment(byId("experiment").value).some((group) => group.curves[name]));
/** The experiment of the reader's own runs, or the first. */
const usualExperiment = () => (DATA.groups.find(isOwn) ?? DATA.groups[0]).experiment;

readAddress();
if (DATA.groups.length) {
  const experiment = menu("experiment", "Experiment", () => EXPERIMENTS.map((name) => [name, name || "another"]), usualExperiment,
    { ...unzoom, metric: undefined, reference: undefined, show: undefined });
  experiment.hidden = EXPERIMENTS.length < 2;
  byId("choices").prepend(experiment, menu("metric", "Metric", () => metrics().map((name) => [name, name]), usualMetric, { ...unzoom, reference: undefined }));
  startCurves();
  byId("finals-tools").append(menu("reference", "Differences to", references, usualReference));
} else {
  for (const id of ["curves", "finals", "fields"]) byId(id).hidden = true;
}
draw();
if (DATA.groups.length) new ResizeObserver(drawCurves).observe(byId("plot"));
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
for (const query of [system, window.matchMedia("(max-width: 44rem)")]) query.addEventListener("change", draw);
window.addEventListener("hashchange", () => { readAddress(); draw(); });
