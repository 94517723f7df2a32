"use strict";
// The data, and what all sections share: elements, numbers, colours, which groups are hidden.

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/** An element with attributes (functions become listeners) and children (strings become text, never markup). */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function select(id, label, options, change) {
  const node = element("select", { id, change });
  for (const [value, text] of options) node.append(element("option", { value }, text));
  return { node, label: element("label", {}, label, node) };
}

/** Other options, with the value kept if it is still among them. */
function setOptions(node, options) {
  const before = node.value;
  node.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  if (options.some(([value]) => String(value) === before)) node.value = before;
}

function checkbox(id, label, checked, change) {
  const node = element("input", { type: "checkbox", id, checked, change });
  return { node, label: element("label", {}, node, label) };
}

const button = (id, text, click, description) =>
  element("button", { type: "button", id, click, "aria-label": description, title: description }, text);

/** Says to screen readers what has changed. */
const announce = (text) => { byId("status").textContent = text; };

/** Four significant digits, as people write them. */
function digits(value, count = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const text = Number(value.toPrecision(count));
  return Math.abs(text) >= 1e7 || (text !== 0 && Math.abs(text) < 1e-4) ? text.toExponential() : String(text);
}

/** `12.7 ± 1.2`: both to the place of the interval's second digit. */
function plusMinus(mean, half, signed = false) {
  if (mean === null || mean === undefined) return "-";
  const sign = signed && mean > 0 ? "+" : "";
  const none = half === null || half === undefined || half < 1e-6 * Math.abs(mean); // but for what rounding leaves
  if (none || half === 0) return sign + digits(mean);
  const places = Math.max(0, Math.min(8, 1 - Math.floor(Math.log10(half))));
  return `${sign}${mean.toFixed(places)} ± ${half.toFixed(places)}`;
}

/** Mean and half width of the interval at the first of DATA.levels (95 %), over the values that there are. */
function interval(values) {
  const present = values.filter((value) => value !== null);
  const count = present.length;
  if (!count) return { mean: null, half: null, count };
  const mean = present.reduce((sum, value) => sum + value, 0) / count;
  if (count < 2) return { mean, half: null, count };
  const squares = present.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const error = Math.sqrt(squares / (count - 1) / count);
  return { mean, half: DATA.quantiles[count - 2][0] * error, error, count };
}

/** The differences of a final metric between two groups, over the seeds that both have. */
function paired(group, reference, metric) {
  const mine = group.final[metric.name], other = reference.final[metric.name];
  if (!metric.per_seed || group === reference || !group.done || !reference.done || !mine || !other) return null;
  const differences = group.seeds.map((seed, i) => {
    const j = reference.seeds.indexOf(seed);
    return j < 0 || mine[i] === null || other[j] === null ? null : mine[i] - other[j];
  });
  const result = interval(differences);
  if (!result.count) return null;
  if (!result.error) return { ...result, level: null };
  const statistic = Math.abs(result.mean) / result.error;
  const met = DATA.levels.filter((_, i) => statistic > DATA.quantiles[result.count - 2][i]);
  return { ...result, level: met.length ? met[met.length - 1] : 1 };
}

function significance(difference) {
  if (difference === null || difference.level === null) return "-";
  return difference.level === 1 ? `p > ${DATA.levels[0]}` : `p < ${difference.level}`;
}

// Each palette has contrast 3 to 1 and more with its background; dashes tell further groups apart.
const PALETTES = {
  light: ["#0072b2", "#c44e00", "#00805c", "#a8478b", "#8a6d00", "#5b4fc7", "#57606a"],
  dark: ["#56b4e9", "#ff9a5c", "#3dd6a3", "#f29bd0", "#f0c445", "#b3a6ff", "#c8c8c8"],
};
const DASHES = ["solid", "dash", "dot", "dashdot"];
const DASH_ARRAYS = { solid: "", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3" };
const SYMBOLS = ["circle", "square", "diamond", "cross", "x", "triangle-up"];

/** The look of the group that is `rank`th among those that have the metric. */
function look(rank) {
  const colours = PALETTES[theme()];
  const round = Math.floor(rank / colours.length);
  return { colour: colours[rank % colours.length], dash: DASHES[round % 4], symbol: SYMBOLS[round % 6] };
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Of text that Plotly shows, which it takes for markup. */
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** What all plots have in common. */
function layout(x, y, extra = {}) {
  const axis = {
    gridcolor: style("--line"), zerolinecolor: style("--line"), linecolor: style("--control"), automargin: true,
    exponentformat: "power", minexponent: 6, fixedrange: narrow(),
  };
  return {
    paper_bgcolor: style("--background"), plot_bgcolor: style("--background"), font: { color: style("--text"), size: 13 },
    margin: { l: 60, r: 16, t: 16, b: 50 }, showlegend: false, hovermode: "closest", dragmode: narrow() ? false : "zoom",
    hoverlabel: { align: "left", bgcolor: style("--raised"), font: { color: style("--text") } },
    ...extra, xaxis: { ...axis, ...x }, yaxis: { ...axis, ...y },
  };
}

// A finger on a phone scrolls the page; the buttons below a plot zoom.
const narrow = () => window.matchMedia("(max-width: 44rem)").matches;
const PLOT_OPTIONS = {
  responsive: true, displaylogo: false, scrollZoom: false, displayModeBar: false,
};

/** Buttons for what a mouse does in a plot, and to save it. */
function plotButtons(id, name, zooms = true, height = () => 620) {
  const scale = (factor) => () => {
    const change = {};
    for (const axis of ["xaxis", "yaxis"]) {
      const { range, type } = byId(id)._fullLayout[axis];
      if (type === "category") continue;
      const [low, high] = range.map(Number), middle = (low + high) / 2, half = ((high - low) / 2) * factor;
      change[`${axis}.range`] = [middle - half, middle + half];
    }
    Plotly.relayout(id, change).then(() => announce(factor < 1 ? "Zoomed in" : "Zoomed out"));
  };
  const shift = (share) => () => {
    const { range, type } = byId(id)._fullLayout.xaxis;
    if (type === "category") return;
    const [low, high] = range.map(Number), by = (high - low) * share;
    Plotly.relayout(id, { "xaxis.range": [low + by, high + by] }).then(() => announce("Moved"));
  };
  const reset = () =>
    Plotly.relayout(id, { "xaxis.autorange": true, "yaxis.autorange": true }).then(() => announce("Zoom reset"));
  const save = (format) => () => {
    const { figure, height: all } = withLegend(byId(id), height());
    Plotly.downloadImage(figure, { format, filename: name(), width: 1100, height: all, scale: format === "png" && all < 4000 ? 2 : 1 });
  };
  const zoom = zooms ? [
    button(`${id}-in`, "+", scale(0.5), "Zoom in"), button(`${id}-out`, "−", scale(2), "Zoom out"),
    button(`${id}-left`, "←", shift(-0.25), "Move left"), button(`${id}-right`, "→", shift(0.25), "Move right"),
    button(`${id}-reset`, "Reset zoom", reset)] : [];
  return element("span", { class: "buttons", role: "group", "aria-label": zooms ? "Zoom and save" : "Save" }, ...zoom, button(`${id}-png`, "PNG", save("png"), "Save as PNG"),
    button(`${id}-svg`, "SVG", save("svg"), "Save as SVG"));
}

const LEGEND_LINE = 19; // pixels
const LETTERS_IN_LEGEND = 140;

/** A plot as it is saved, with the names that the page has beside it below, and its height. */
function withLegend({ data, layout }, height) {
  const named = (trace) => trace.name && trace.showlegend !== false;
  const inLines = (text) => text.match(new RegExp(`.{1,${LETTERS_IN_LEGEND}}(?:, |$)|.{1,${LETTERS_IN_LEGEND}}`, "g"));
  const lines = data.filter(named).flatMap((trace) => inLines(trace.name)).length;
  if (!lines) return { figure: { data, layout }, height };
  const below = lines * LEGEND_LINE + 30;
  return {
    figure: {
      data: data.map((trace) => named(trace) ? { ...trace, name: inLines(trace.name).join("<br>") } : trace),
      layout: { ...layout, showlegend: true, margin: { ...layout.margin, b: layout.margin.b + below },
        legend: { x: 0, xanchor: "left", y: 0, yanchor: "bottom", yref: "container", maxheight: below, font: { size: 12 }, traceorder: "normal" } },
    },
    height: height + below,
  };
}

// Groups that the reader has hidden, by index, and the experiment whose groups are looked at.
const hidden = new Set();
const MANY_CURVES = 12;
const EXPERIMENTS = [...new Set(DATA.groups.map((group) => group.experiment))];
let experiment = EXPERIMENTS[0];
const groupsHere = () => DATA.groups.filter((group) => group.experiment === experiment);
const metricsHere = () => DATA.metrics.filter(({ name }) => groupsHere().some((group) => group.curves[name]));
const fieldsHere = () => Object.keys(DATA.fields).filter((name) =>
  new Set(groupsHere().map((group) => DATA.fields[name][DATA.groups.indexOf(group)])).size > 1);
/** Of too many curves to tell apart, the trials of sweeps are hidden at first, where there are others. */
function hideTrials() {
  for (const name of EXPERIMENTS) {
    const groups = DATA.groups.filter((group) => group.experiment === name);
    if (groups.length <= MANY_CURVES || groups.every((group) => group.trial)) continue;
    DATA.groups.forEach((group, i) => group.experiment === name && group.trial && hidden.add(i));
  }
}
/** The place of a group, by its id; -1 if there is none. */
const placeOf = (id) => DATA.groups.findIndex((group) => group.id === id);
/** Those that the numbers of runs depend on. */
const sweptHere = () => fieldsHere().filter((name) => !DATA.bookkeeping.includes(name));
const namesOf = (list) => list.map((item) => item.name ?? item).map((name) => [name, name]);
const metricOf = (name) => DATA.metrics.find((metric) => metric.name === name);
/** The indices of the groups of the experiment that have a metric. */
const having = (name) => DATA.groups.map((_, i) => i).filter((i) => DATA.groups[i].experiment === experiment && DATA.groups[i].curves[name]);

/** Its label among others, and whether it is one of the reader's own. */
const ownLabel = (group, text) => group.own
  ? element("span", {}, element("strong", {}, text), " ", element("span", { class: "badge" }, "not in results/")) : text;

/** What tells a group apart among others: its label without what all of them share. */
function labelAmong(group, others) {
  if (others.length < 2) return group.label;
  return group.parts.filter((part) => !others.every((other) => other.parts.includes(part))).join(", ") || group.label;
}

/** "light" or "dark", as chosen or as the system is. */
function theme() {
  return document.documentElement.dataset.theme;
}
