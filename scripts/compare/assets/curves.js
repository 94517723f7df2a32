// Learning curves: means over seeds with their intervals, and the list that hides and shows them.

const AXES = { step: "step", epoch: "epoch", seconds: "training time, s per seed (seeds of a run train together)" };
// Each palette has contrast 3 to 1 and more with its background; dashes tell further groups apart.
const PALETTES = {
  light: ["#0072b2", "#c44e00", "#00805c", "#a8478b", "#8a6d00", "#5b4fc7", "#57606a"],
  dark: ["#56b4e9", "#ff9a5c", "#3dd6a3", "#f29bd0", "#f0c445", "#b3a6ff", "#c8c8c8"],
};
const DASHES = { solid: "solid", dash: "dashed", dot: "dotted", longdash: "double" }; // of curves, and of the list

/** The look of the group that is `rank`th in the list. */
function look(rank) {
  const colours = PALETTES[system.matches ? "dark" : "light"];
  return { colour: colours[rank % colours.length], dash: Object.keys(DASHES)[Math.floor(rank / colours.length) % 4] };
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/** Text for Plotly, which takes it for markup. */
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
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
  element("span", { class: "swatch", style: `border-top: ${own ? 5 : 3}px ${DASHES[dash]} ${colour}`, "aria-hidden": "true" });

function curveTraces(name, axis, withBands) {
  const bands = [], lines = [], visible = shown(), told = toldFields(shown());
  listed().forEach((group, rank) => {
    if (!visible.includes(group)) return;
    const { mean: y, half, rows = y.map((_, row) => row) } = group.curves[name], x = rows.map((row) => group.x[axis][row]);
    const { colour, dash } = look(rank), label = plain(labelOf(group, told)), few = x.length < 3;
    if (withBands && half) {
      const inside = x.map((_, j) => j).filter((j) => half[j] !== null && y[j] !== null);
      bands.push({
        x: [...inside.map((j) => x[j]), ...inside.toReversed().map((j) => x[j])],
        y: [...inside.map((j) => y[j] + half[j]), ...inside.toReversed().map((j) => y[j] - half[j])],
        fill: "toself", fillcolor: colour, opacity: 0.16, line: { width: 0 }, mode: "lines", hoverinfo: "skip", name: label, showlegend: false,
      });
    }
    lines.push({
      x, y, mode: few ? "lines+markers" : "lines", name: label, text: y.map((value, j) => plusMinus(value, half?.[j])),
      line: { color: colour, dash, width: isOwn(group) ? 4 : 2 }, marker: { color: colour, size: 7 },
      hovertemplate: `<b>%{text}</b><br>${AXES[axis].split(",")[0]} %{x}<br>${label}${seedsOf(group)}<extra></extra>`,
    });
  });
  return [...bands, ...lines];
}

function drawCurves() {
  const name = metric(), axis = byId("axis").value, [logX, logY] = [byId("log-x").checked, byId("log-y").checked];
  const ranges = chosen.zoom?.split(",").map(Number), zoomed = ranges?.length === 4 && ranges.every(Number.isFinite);
  const line = (title, log, range) => ({
    title: { text: title }, type: log ? "log" : "linear", autorange: !zoomed, ...(zoomed ? { range } : {}), gridcolor: style("--line"),
    zerolinecolor: style("--line"), linecolor: style("--control"), automargin: true, exponentformat: "power", minexponent: 6, fixedrange: narrow(),
  });
  Plotly.react("plot", curveTraces(name, axis, byId("bands").checked), {
    xaxis: line(narrow() ? AXES[axis].split(",")[0] : AXES[axis], logX, ranges?.slice(0, 2)), yaxis: line(plain(name), logY, ranges?.slice(2)),
    paper_bgcolor: style("--background"), plot_bgcolor: style("--background"), font: { color: style("--text"), size: 13 },
    margin: { l: 60, r: 16, t: 16, b: 50 }, showlegend: false, hovermode: "closest", dragmode: narrow() ? false : "zoom",
    hoverlabel: { align: "left", bgcolor: style("--raised"), font: { color: style("--text") } },
  }, { responsive: true, displayModeBar: false, doubleClick: "autosize" });
  byId("curves-caption").textContent = `${isPerSeed(name) ? "Mean over seeds; a seed that has diverged leaves it. Bands are 95 % t-intervals."
    : "Measured once for all seeds of a run; mean over the runs."} Of every stretch of a long curve the lowest and the highest mean are drawn, so that
    no spike is lost.${logX || logY ? " A logarithmic axis shows only what is above 0." : ""}`;
  byId("plot").setAttribute("aria-label", `Line plot of ${name} against ${AXES[axis]}, ${shown().length} of ${listed().length} curves shown. The final values are in the table below.`);
}

const axesOf = () => [byId("plot")._fullLayout.xaxis, byId("plot")._fullLayout.yaxis];
const toZoom = (ranges) => ranges.map((value) => digits(Number(value), 6)).join();

/** Zooms both axes by a factor. */
function zoom(factor, said) {
  const ranges = axesOf().flatMap(({ range: [low, high] }) => {
    const middle = (low + high) / 2, half = (factor * (high - low)) / 2;
    return [middle - half, middle + half];
  });
  choose({ zoom: toZoom(ranges) }, said);
}

/** After the mouse has zoomed. */
function zoomed() {
  const value = axesOf().every(({ autorange }) => autorange) ? undefined : toZoom(axesOf().flatMap(({ range }) => range));
  if (value !== chosen.zoom) choose({ zoom: value });
}

/** Saves the plot with the names that the page has beside it below. */
function savePlot(format) {
  const { data, layout } = byId("plot"), below = 19 * shown().length + 30;
  Plotly.downloadImage({
    data, layout: { ...layout, showlegend: true, margin: { ...layout.margin, b: layout.margin.b + below },
      legend: { x: 0, xanchor: "left", y: 0, yanchor: "bottom", yref: "container", maxheight: below, font: { size: 12 }, traceorder: "normal" } },
  }, { format, filename: `curves-${metric()}`.replaceAll("/", "-"), width: 1100, height: 620 + below, scale: format === "png" && below < 3000 ? 2 : 1 });
}
