// Learning curves: means over seeds with their intervals, and the legend that hides them.

const AXES = {
  step: "step", epoch: "epoch", seconds: "training time, s per seed (seeds of a run train together)",
};

function startCurves() {
  const metric = select("metric", "Metric", namesOf(metricsHere()), metricChanged);
  const axis = select("axis", "Against", [["step", "step"], ["epoch", "epoch"], ["seconds", "time"]], drawCurves);
  const smooth = element("input", { type: "range", id: "smooth", min: 0, max: 20, step: 1, value: 0, input: drawCurves });
  const logX = checkbox("log-x", "log x", false, drawCurves), logY = checkbox("log-y", "log y", false, drawCurves);
  const bands = checkbox("bands", "95 % intervals", true, drawCurves);
  byId("curves-controls").append(metric.label, axis.label, element("label", {}, "Smoothing", smooth,
    element("output", { id: "smooth-value", for: "smooth" }, "none")), logX.label, logY.label, bands.label,
    plotButtons("curves-plot", () => `curves-${byId("metric").value}`.replaceAll("/", "-")));
  const filter = element("input", { type: "search", id: "filter", placeholder: "filter by text", "aria-label": "Filter the list of curves",
    input: drawLegend });
  const all = (hide) => () => {
    for (const i of listed()) hide ? hidden.add(i) : hidden.delete(i);
    visibilityChanged(hide ? "All listed curves are hidden" : "All listed curves are shown");
  };
  byId("legend").append(element("div", { class: "controls" }, filter,
    element("span", { class: "buttons" }, button("show-all", "Show all", all(false)), button("hide-all", "Hide all", all(true)))),
    element("ul", { id: "legend-list", "aria-label": "Curves" }));
  metricChanged();
}

function metricChanged() {
  drawLegend();
  drawCurves();
}

function visibilityChanged(text) {
  drawLegend();
  drawCurves();
  drawFinals();
  drawScatter();
  drawParallel();
  picturesChanged();
  announce(text);
  stateChanged();
}

/** The groups in the legend: those that have the metric and match the filter. */
function listed() {
  const text = byId("filter").value.toLowerCase();
  return having(byId("metric").value).filter((i) => `${DATA.groups[i].label} ${DATA.groups[i].runs}`.toLowerCase().includes(text));
}

function drawLegend() {
  const others = having(byId("metric").value).map((i) => DATA.groups[i]);
  const ranks = new Map(having(byId("metric").value).map((i, rank) => [i, rank]));
  const focused = document.activeElement?.id;
  byId("legend-list").replaceChildren(...listed().map((i) => {
    const group = DATA.groups[i];
    const box = element("input", { type: "checkbox", id: `show-${i}`, checked: !hidden.has(i), change: (event) => {
      event.target.checked ? hidden.delete(i) : hidden.add(i);
      visibilityChanged(`${group.label} is ${event.target.checked ? "shown" : "hidden"}`);
    } });
    return element("li", {}, element("label", { title: group.runs.join(", ") }, box, swatch(look(ranks.get(i)), group.own),
      element("span", {}, ownLabel(group, labelAmong(group, others)), seedsOf(group))));
  }));
  drawHidden();
  if (focused?.startsWith("show-")) byId(focused)?.focus();
}

/** What is hidden of the experiment, whatever it measures, by name, and a button that shows it. */
function drawHidden() {
  const others = groupsHere(), out = others.filter((group) => hidden.has(DATA.groups.indexOf(group)));
  const note = byId("hidden-note");
  note.hidden = !out.length;
  if (!out.length) return;
  const trials = out.every((group) => group.trial) ? ", trials of sweeps" : "", open = note.querySelector("details")?.open;
  note.replaceChildren(
    element("details", { open }, element("summary", {}, `${out.length} of ${others.length} groups are hidden${trials}`),
      element("ul", {}, ...out.map((group) => element("li", {}, labelAmong(group, others))))),
    button("show-hidden", "Show them", () => {
      for (const group of out) hidden.delete(DATA.groups.indexOf(group));
      visibilityChanged("All groups are shown");
      byId("show-all").focus();
    }));
}

function seedsOf(group) {
  const lost = group.diverged ? `, ${group.diverged} diverged` : "";
  return ` (${group.seeds.length} seed${group.seeds.length === 1 ? "" : "s"}${lost})`;
}

/** A short line in the look of a curve. */
function swatch({ colour, dash }, own) {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg"), line = document.createElementNS(space, "line");
  const set = (node, values) => Object.entries(values).forEach(([name, value]) => node.setAttribute(name, value));
  set(drawing, { width: 26, height: 10, "aria-hidden": "true" });
  set(line, { x1: 1, x2: 25, y1: 5, y2: 5, stroke: colour, "stroke-width": own ? 5 : 3, "stroke-dasharray": DASH_ARRAYS[dash] });
  drawing.append(line);
  return drawing;
}

/** Whether these are finished and were measured at their start and their end alone: there is no course to draw. */
const onlyEnds = (places, metric) => places.length > 0
  && places.every((i) => DATA.groups[i].done && DATA.groups[i].curves[metric].mean.length < 3);

/** The values at the end in the place of curves: a dot for each group, with its interval. */
function drawEnds(places, metric) {
  const traces = places.map((i, line) => {
    const group = DATA.groups[i], { mean, half } = interval(group.final[metric]), { colour, symbol } = look(having(metric).indexOf(i));
    return {
      x: [mean], y: [-line], mode: "markers", name: plain(group.label), marker: { color: colour, symbol, size: group.own ? 14 : 9 },
      error_x: { type: "data", array: [half ?? 0], visible: half !== null, thickness: 1.5, color: colour },
      hovertemplate: `<b>${plusMinus(mean, half)}</b><br>${plain(group.label)}${plain(seedsOf(group))}<extra></extra>`,
    };
  });
  const log = byId("log-y").checked;
  Plotly.react("curves-plot", traces, layout({ title: { text: plain(metric) }, type: log ? "log" : "linear" }, { showticklabels: false, zeroline: false },
    { uirevision: ["ends", metric, log].join() }), PLOT_OPTIONS);
  byId("curves-caption").textContent = `The values at the end, in the order of the list: these runs were measured at their start and end alone, which
    makes no curve. Mean and 95 % t-interval over seeds.`;
  byId("curves-plot").setAttribute("aria-label",
    `Dot plot of ${metric} at the end, ${places.length} of ${having(metric).length} groups shown. The same values are in the table below.`);
}

/** The places and values of a curve; of its bucket means if it is to be smoothed and was thinned out. */
function points(group, metric, axis, smoothing) {
  const curve = group.curves[metric], places = group.x[axis];
  const source = smoothing && curve.averages ? curve.averages : curve;
  const rows = source.rows ?? source.mean.map((_, row) => row);
  return { x: rows.map((row) => places[row]), y: source.mean, half: source === curve ? curve.half : undefined };
}

/** Means weighted by a normal density whose deviation is `share` of the curve's length; gaps stay gaps. */
function smoothed(x, y, share) {
  const known = x.filter((value) => value !== null);
  const width = share * (known[known.length - 1] - known[0]);
  if (!(width > 0)) return y;
  return y.map((value, i) => {
    if (value === null) return null;
    let sum = 0, weight = 0;
    const add = (j) => {
      const distance = (x[j] - x[i]) / width;
      if (Math.abs(distance) > 3) return false;
      if (y[j] !== null) {
        const part = Math.exp(-distance * distance / 2);
        sum += part * y[j];
        weight += part;
      }
      return true;
    };
    for (let j = i; j >= 0 && add(j); j--);
    for (let j = i + 1; j < x.length && add(j); j++);
    return sum / weight;
  });
}

function curveTraces(metric, axis, smoothing, withBands) {
  const bands = [], lines = [], own = [];
  having(metric).forEach((i, rank) => {
    if (hidden.has(i)) return;
    const group = DATA.groups[i], { colour, dash } = look(rank);
    const { x, y, half } = points(group, metric, axis, smoothing);
    const shown = smoothing ? smoothed(x, y, smoothing) : y;
    const texts = shown.map((value, j) => smoothing ? `${digits(value, 5)}, smoothed` : plusMinus(value, half?.[j]));
    if (withBands && half && !smoothing) {
      const inside = x.map((_, j) => j).filter((j) => half[j] !== null && half[j] !== undefined && y[j] !== null);
      bands.push({
        x: [...inside.map((j) => x[j]), ...inside.toReversed().map((j) => x[j])],
        y: [...inside.map((j) => y[j] + half[j]), ...inside.toReversed().map((j) => y[j] - half[j])],
        fill: "toself", fillcolor: colour, opacity: 0.16, line: { width: 0 }, mode: "lines", hoverinfo: "skip",
        name: plain(group.label), showlegend: false,
      });
    }
    (group.own ? own : lines).push({
      x, y: shown, mode: x.length > 1 && x.length < 3 ? "lines+markers" : x.length < 2 ? "markers" : "lines",
      name: plain(group.label), text: texts, line: { color: colour, dash, width: group.own ? 4 : 2 }, marker: { color: colour, size: 7 },
      hovertemplate: `<b>%{text}</b><br>${AXES[axis].split(",")[0]} %{x}<br>${plain(group.label)}${plain(seedsOf(group))}<extra></extra>`,
    });
  });
  return [...bands, ...lines, ...own];
}

/** The paper's number, where runs of the experiment are shown that it is about. */
function reportedLines(metric, shown) {
  const found = DATA.reported.filter((number) =>
    number.metric === metric && shown.some((i) => DATA.groups[i].experiment === number.experiment));
  return {
    shapes: found.map(({ value }) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line: { color: style("--text"), width: 1.5, dash: "longdash" },
    })),
    annotations: found.map(({ value, label }) => ({
      xref: "paper", x: 1, xanchor: "right", yanchor: "bottom", showarrow: false, font: { size: 12 },
      y: byId("log-y").checked ? Math.log10(value) : value, bgcolor: style("--background"), opacity: 0.85, text: plain(narrow() ? `the paper: ${value}` : `the paper reports ${value} (${label})`),
    })),
  };
}

function drawCurves() {
  const metric = byId("metric").value, axis = byId("axis").value;
  if (!metric) return;
  const share = Number(byId("smooth").value) / 100;
  byId("smooth-value").textContent = share ? `${Math.round(100 * share)} % of the length` : "none";
  const shown = having(metric).filter((i) => !hidden.has(i));
  if (onlyEnds(shown, metric)) {
    drawEnds(shown, metric);
    return;
  }
  const traces = curveTraces(metric, axis, share, byId("bands").checked);
  const logX = byId("log-x").checked, logY = byId("log-y").checked;
  Plotly.react("curves-plot", traces, layout(
    { title: { text: narrow() ? AXES[axis].split(",")[0] : AXES[axis] }, type: logX ? "log" : "linear" },
    { title: { text: plain(metric) }, type: logY ? "log" : "linear" },
    { uirevision: [metric, axis, logX, logY].join(), ...reportedLines(metric, shown) },
  ), PLOT_OPTIONS);
  const { drawn, total } = DATA.points;
  const thinned = drawn < total ? `Of ${total.toLocaleString("en")} points of all curves the page holds ${drawn.toLocaleString("en")}: of every stretch of a
    long curve the lowest and the highest mean, in their places, so that no spike is lost; smoothing starts from the means of the stretches.`
    : `All ${total.toLocaleString("en")} points of all curves are in the page.`;
  const unseen = metricOf(metric).per_seed ? "Mean over seeds; a seed that has diverged leaves it. Bands are 95 % t-intervals."
    : "Measured once for all seeds of a run; mean over the runs.";
  byId("curves-caption").textContent = `${unseen} ${thinned}${logX || logY ? " On a logarithmic axis, what is not above 0 is not drawn." : ""}`;
  byId("curves-plot").setAttribute("aria-label",
    `Line plot of ${metric} against ${AXES[axis]}, ${shown.length} of ${having(metric).length} curves shown. The final values are in the table below.`);
}
