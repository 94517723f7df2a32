// Learning curves: means over seeds with their intervals, and the list that hides and shows them.

const AXES = { step: "step", epoch: "epoch", seconds: "training time, s per seed (seeds of a run train together)" };
// Each palette has contrast 3 to 1 and more with its background; dashes tell further groups apart.
const PALETTES = {
  light: ["#0072b2", "#c44e00", "#00805c", "#a8478b", "#8a6d00", "#5b4fc7", "#57606a"],
  dark: ["#56b4e9", "#ff9a5c", "#3dd6a3", "#f29bd0", "#f0c445", "#b3a6ff", "#c8c8c8"],
};
const DASHES = [ // of curves, and of the list
  { pattern: null, border: "solid" }, { pattern: "9 9", border: "dashed" }, { pattern: "3 3", border: "dotted" }, { pattern: "15 15", border: "double" },
];

/** The look of the group that is `rank`th in the list. */
function look(rank) {
  const colours = PALETTES[system.matches ? "dark" : "light"];
  return { colour: colours[rank % colours.length], dash: Math.floor(rank / colours.length) % DASHES.length };
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// A finger on a phone scrolls the page; the buttons below a plot zoom.
const narrow = () => window.matchMedia("(max-width: 44rem)").matches;

function startCurves() {
  const axis = menu("axis", "Against", () => [["step", "step"], ["epoch", "epoch"], ["seconds", "time"]], () => "step", unzoom);
  const tool = (id, text, click, description) => button(`curves-${id}`, text, click, description);
  byId("curves-tools").append(axis, checkbox("log-x", "log x", false, unzoom), checkbox("log-y", "log y", false, unzoom), checkbox("bands", "95 % intervals", true),
    buttons("Zoom", tool("in", "+", () => zoom(0.5, "Zoomed in"), "Zoom in"), tool("out", "−", () => zoom(2, "Zoomed out"), "Zoom out"),
      tool("reset", "Reset zoom", () => choose({ zoom: undefined }, "Zoom reset"))),
    buttons("Save", tool("png", "PNG", () => savePlot("png"), "Save as PNG"), tool("svg", "SVG", () => savePlot("svg"), "Save as SVG")));
  const filter = element("input", { type: "search", id: "filter", placeholder: "filter by text", "aria-label": "Filter the list of curves", input: drawList });
  byId("list").before(element("div", { class: "controls" }, filter, buttons("Curves",
    button("show-all", "Show all", () => show(listed().filter((group) => shown().includes(group) || matches(group)), "All listed curves are shown")),
    button("hide-all", "Hide all", () => show(shown().filter((group) => !matches(group)), "All listed curves are hidden")),
    button("show-usual", "As opened", () => choose({ show: undefined }, "The curves are as the page opened")))));
}

const matches = (group) => `${Object.values(group.parts).join(", ")} ${group.about.run}`.toLowerCase().includes(byId("filter").value.toLowerCase());

function drawList() {
  const label = labelsOfAll(), visible = shown(), focused = document.activeElement?.id;
  byId("list").replaceChildren(...listed().map((group, rank) => [group, rank]).filter(([group]) => matches(group)).map(([group, rank]) => {
    const text = label(group);
    const box = element("input", { type: "checkbox", id: `show-${group.id}`, checked: visible.includes(group), change: () => {
      const shows = box.checked;
      show(listed().filter((other) => other === group ? shows : visible.includes(other)), `${text} is ${shows ? "shown" : "hidden"}`);
    } });
    return element("li", {}, element("label", { title: group.about.run }, box, swatch(look(rank), isOwn(group)),
      element("span", {}, markedLabel(group, text), seedsOf(group))));
  }));
  if (focused?.startsWith("show-")) byId(focused)?.focus();
  byId("list-note").textContent = `${visible.length} of ${listed().length} groups are shown.`;
}

/** A short line in the look of a curve. */
const swatch = ({ colour, dash }, own) =>
  element("span", { class: "swatch", style: `border-top: ${own ? 5 : 3}px ${DASHES[dash].border} ${colour}`, "aria-hidden": "true" });

let drawn = []; // the shown curves: group, label, look and points
let chart; // the plot of them, an SVG

function curvesOf(name, axis) {
  const visible = shown(), told = toldFields(visible);
  return listed().map((group, rank) => ({ group, ...look(rank) })).filter(({ group }) => visible.includes(group)).map((curve) => {
    const { mean, half, rows = mean.map((_, row) => row) } = curve.group.curves[name], label = labelOf(curve.group, told);
    const points = rows.map((row, j) => {
      const x = curve.group.x[axis][row], y = mean[j] ?? NaN, width = half?.[j] ?? NaN;
      const text = `${plusMinus(mean[j], half?.[j])}\n${AXES[axis].split(",")[0]} ${x}\n${label}${seedsOf(curve.group)}`;
      return { x, y, low: y - width, high: y + width, text };
    });
    return { ...curve, label, width: isOwn(curve.group) ? 4 : 2, points };
  });
}

/** The options of an axis whose domain is that of these values, unless the reader has chosen one. */
function scaleOf(values, log, domain, label) {
  const all = values.filter((value) => Number.isFinite(value) && (value > 0 || !log));
  return { type: log ? "log" : "linear", domain: domain ?? d3.extent(all), nice: !domain && !log, label, labelArrow: "none" };
}

/** Draws the shown curves as an SVG of this size. */
function chartOf(width, height) {
  const [logX, logY, bands] = ["log-x", "log-y", "bands"].map((id) => byId(id).checked);
  const points = drawn.flatMap((curve) => curve.points), zoomed = zoomOf(), title = AXES[byId("axis").value];
  const at = (name, log) => (point) => (log && point[name] <= 0 ? NaN : point[name]);
  const line = { x: at("x", logX), y: at("y", logY) };
  const low = (point) => (logY && point.low <= 0 ? Number.MIN_VALUE : point.low); // to the bottom of a logarithmic axis
  return Plot.plot({
    width, height, marginTop: 28, marginRight: 28, marginBottom: 44, marginLeft: 64, grid: true,
    style: { background: style("--background"), color: style("--text"), fontSize: "13px", fontFamily: "system-ui, sans-serif" },
    x: { ...scaleOf(points.map(({ x }) => x), logX, zoomed?.slice(0, 2), narrow() ? title.split(",")[0] : title), nice: false,
      labelAnchor: "center", ticks: width / 100 },
    y: scaleOf(points.flatMap(({ y, low, high }) => (bands ? [y, low, high] : [y])), logY, zoomed?.slice(2), metric()),
    marks: [
      bands && drawn.map(({ points, colour }) =>
        Plot.areaY(points, { x: line.x, y1: low, y2: at("high", logY), fill: colour, fillOpacity: 0.16, clip: true })),
      drawn.map(({ points, colour, dash, width }) => Plot.line(points, {
        ...line, stroke: colour, strokeWidth: width, strokeDasharray: DASHES[dash].pattern, marker: points.length < 3 ? "dot" : null, clip: true,
      })),
      Plot.tip(points, Plot.pointer({
        ...line, title: "text", fill: style("--raised"), stroke: style("--control"), lineWidth: narrow() ? 14 : 28, lineHeight: 1.3,
      })),
    ],
  });
}

function drawCurves() {
  const name = metric(), axis = byId("axis").value, plot = byId("plot"), logs = byId("log-x").checked || byId("log-y").checked;
  drawn = curvesOf(name, axis);
  chart = chartOf(plot.clientWidth, plot.clientHeight);
  if (!narrow()) {
    const [[left, right], [bottom, top]] = ["x", "y"].map((side) => chart.scale(side).range);
    const brush = d3.brush().extent([[left, top], [right, bottom]]).on("end", ({ selection }) => {
      if (selection) zoomTo(selection[0][0], selection[1][0], selection[1][1], selection[0][1]);
    });
    d3.select(chart).append("g").call(brush).on("dblclick", () => choose(unzoom));
  }
  chart.setAttribute("aria-hidden", "true"); // the element around it has a label
  plot.replaceChildren(chart);
  byId("curves-caption").textContent = `${isPerSeed(name) ? "Mean over seeds; a seed that has diverged leaves it. Bands are 95 % t-intervals."
    : "Measured once for all seeds of a run; mean over the runs."} Of every stretch of a long curve the lowest and the highest mean are drawn, so that
    no spike is lost.${logs ? " A logarithmic axis shows only what is above 0." : ""}`;
  byId("plot").setAttribute("aria-label", `Line plot of ${name} against ${AXES[axis]}, ${shown().length} of ${listed().length} curves shown. The final values are in the table below.`);
}

/** The ranges that the reader has chosen, of x and of y. */
function zoomOf() {
  const ranges = chosen.zoom?.split(",").map(Number);
  return ranges?.length === 4 && ranges.every(Number.isFinite) ? ranges : undefined;
}

/** Zooms to pixels of the plot: left, right, bottom, top. */
function zoomTo(...pixels) {
  const values = pixels.map((pixel, i) => chart.scale(i < 2 ? "x" : "y").invert(pixel));
  choose({ zoom: values.map((value) => digits(value, 6)).join() });
}

/** Zooms both axes by a factor. */
function zoom(factor, said) {
  zoomTo(...["x", "y"].flatMap((side) => {
    const [first, last] = chart.scale(side).range, middle = (first + last) / 2, half = (factor * (last - first)) / 2;
    return [middle - half, middle + half];
  }));
  announce(said);
}

/** Saves the plot with the names below that the page has beside it. */
function savePlot(format) {
  const width = 1100, height = 620, whole = height + 19 * drawn.length + 20, name = `curves-${metric()}.${format}`.replaceAll("/", "-");
  const image = d3.select(chartOf(width, height)).attr("height", whole).attr("viewBox", [0, 0, width, whole]);
  const names = image.append("g").selectAll("g").data(drawn).join("g").attr("transform", (_, i) => `translate(64,${height + 10 + 19 * i})`);
  names.append("line").attr("x2", 30).attr("stroke", ({ colour }) => colour).attr("stroke-width", ({ width }) => width)
    .attr("stroke-dasharray", ({ dash }) => DASHES[dash].pattern);
  names.append("text").attr("class", "name").attr("text-anchor", "start").attr("x", 40).attr("dy", "0.32em").text(({ label }) => label);
  const svg = new XMLSerializer().serializeToString(image.node());
  if (format === "svg") return saveText(name, svg, "image/svg+xml");
  const picture = new Image(), canvas = element("canvas", { width: 2 * width, height: 2 * whole });
  picture.addEventListener("load", () => {
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveText(name, blob, "image/png"));
  });
  picture.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
}
