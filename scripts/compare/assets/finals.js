// The table of final values, with differences to a reference that the reader picks.

let drawFinalTable;
const HEADLINES = 3; // metrics in the table at first, besides that of the differences

function startFinals() {
  drawFinalTable = dataTable("finals", "Final values by group of runs");
  const metric = select("difference-metric", "Difference of", [], () => {
    referencesChanged();
    drawFinals();
  });
  const reference = select("reference", "to", [], drawFinals);
  const only = checkbox("difference-only", "only runs with this metric", true, drawFinals);
  const shown = checkbox("shown-only", "only runs whose curves are shown", true, drawFinals);
  byId("finals-controls").append(metric.label, reference.label, only.label, shown.label);
  finalsChanged();
}

/** For another experiment. */
function finalsChanged() {
  setOptions(byId("difference-metric"), namesOf(metricsHere().filter((metric) => metric.per_seed)));
  referencesChanged();
  drawFinals();
}

/**
 * Offers the finished groups that have the metric. At first it is one whose curve is shown: the experiment's baseline for
 * the first that has one there, else one that is rather not the reader's own.
 */
function referencesChanged() {
  const metric = byId("difference-metric").value, node = byId("reference"), before = node.value;
  const groups = groupsHere().filter((group) => group.done && group.final[metric]);
  setOptions(node, groups.map((group) => [group.id, labelAmong(group, groups)]));
  const seen = groups.filter((group) => !hidden.has(DATA.groups.indexOf(group))).sort((a, b) => a.trial - b.trial);
  const baseline = seen.map((group) => seen.find((other) => other.id === group.baseline)).find(Boolean);
  const first = baseline ?? seen.find((group) => !group.own) ?? seen[0];
  if (node.value !== before && first) node.value = first.id;
}

function drawFinals() {
  const metric = metricOf(byId("difference-metric").value), reference = DATA.groups[placeOf(byId("reference").value)];
  const groups = groupsHere().filter((group) => (!byId("difference-only").checked || !metric || group.final[metric.name])
    && !(byId("shown-only").checked && hidden.has(DATA.groups.indexOf(group))));
  const summary = (group, name) => interval(group.final[name] ?? []);
  const column = ({ name }) => ({
    name, number: true, value: (group) => summary(group, name).mean, half: (group) => summary(group, name).half,
    show: (group) => { const { mean, half } = summary(group, name); return plusMinus(mean, half); },
  });
  const first = metric ? [column(metric)] : [];
  const differences = metric && reference ? [
    { name: "difference", number: true, value: (group) => paired(group, reference, metric)?.mean ?? null,
      half: (group) => paired(group, reference, metric)?.half ?? null,
      show: (group) => { const found = paired(group, reference, metric); return found ? plusMinus(found.mean, found.half, true) : "-"; } },
    { name: "significance", value: (group) => paired(group, reference, metric)?.level ?? null,
      show: (group) => significance(paired(group, reference, metric)) },
    { name: "pairs", number: true, value: (group) => paired(group, reference, metric)?.count ?? null },
  ] : [];
  const others = DATA.metrics.filter((other) => other !== metric && groups.some((group) => group.final[other.name]));
  const headlines = others.filter(({ name, per_seed }) => per_seed && !name.includes("/")).slice(0, HEADLINES);
  drawFinalTable([
    { name: "runs", value: (group) => labelAmong(group, groups), show: (group) => ownLabel(group, labelAmong(group, groups)) },
    ...first, ...differences,
    { name: "seeds", number: true, value: (group) => group.seeds.length },
    { name: "diverged", number: true, value: (group) => group.diverged, unusual: groups.every((group) => !group.diverged) },
    { name: "state", value: (group) => group.state, unusual: groups.every((group) => group.done) },
    ...others.map((other) => ({ ...column(other), unusual: !headlines.includes(other) })),
    ...fieldsHere().map((field) => ({
      name: field, unusual: true, value: (group) => fieldOrder(group.fields[field]), show: (group) => DATA.fields[field][DATA.groups.indexOf(group)],
    })),
  ], groups);
  const out = byId("shown-only").checked ? groupsHere().filter((group) => hidden.has(DATA.groups.indexOf(group))).length : 0;
  byId("finals-note").textContent = `${out ? `${out} of ${groupsHere().length} rows are left out, as their curves are hidden. ` : ""}Mean ± half width of the 95 % t-interval over seeds. ${reference ? `Differences are to
    “${labelAmong(reference, groups)}”, paired by seed; significance is that of the paired t-test, each by itself: with many rows some will
    be below ${DATA.levels[0]} by chance. ` : ""}Of unfinished runs the last values of each seed are shown, and no differences.`;
}

const fieldOrder = (value) => value === undefined || value === null ? null : typeof value === "number" ? value : JSON.stringify(value);
