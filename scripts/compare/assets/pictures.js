// Images and histograms of one run at its end, which the reader chooses among those that are shown.

const MOST_HISTOGRAMS = 12; // at a time
const LETTERS_OF_A_TITLE = 30; // in a line
const PICTURES = new Map(DATA.pictures.shown.map((one) => [one.name, one])); // by run

function startPictures() {
  const run = select("pictures-run", "Run", [], drawPictures), part = select("pictures-part", "Arrays", [], drawHistograms);
  const log = checkbox("pictures-log-y", "log y", false, drawHistograms);
  byId("pictures-controls").append(run.label, part.label, log.label, plotButtons("pictures-plot",
    () => `histograms-${byId("pictures-run").selectedOptions[0].text}`.replaceAll("/", "-"), false, () => byId("pictures-plot").clientHeight));
  picturesChanged();
}

/** For another experiment, or other groups shown. */
function picturesChanged() {
  const groups = groupsHere().filter((group) => !hidden.has(DATA.groups.indexOf(group)) && group.runs.some((name) => PICTURES.has(name)));
  byId("pictures").hidden = !groups.length;
  if (!groups.length) return;
  setOptions(byId("pictures-run"), groups.flatMap((group) => {
    const runs = group.runs.filter((name) => PICTURES.has(name)), text = labelAmong(group, groups);
    return runs.map((name) => [name, runs.length > 1 ? `${text}: ${name}` : text]);
  }));
  drawPictures();
}

const pictured = () => PICTURES.get(byId("pictures-run").value);

function drawPictures() {
  byId("images").replaceChildren(...Object.entries(pictured().images).map(([name, images]) => element("figure", {},
    element("div", { class: "images" }, ...images.map((src, i) => element("img", { src, alt: `${name}, image ${i + 1} of ${images.length}` }))),
    element("figcaption", {}, element("code", {}, name)))));
  const names = Object.keys(pictured().histograms), parts = [];
  for (let first = 0; first < names.length; first += MOST_HISTOGRAMS) {
    parts.push([first, `${first + 1} to ${Math.min(first + MOST_HISTOGRAMS, names.length)} of ${names.length}`]);
  }
  setOptions(byId("pictures-part"), parts);
  byId("pictures-part").closest("label").hidden = parts.length < 2;
  drawHistograms();
}

/** A name in lines that fit above a small plot, broken after slashes. */
function inLines(name) {
  const lines = [""];
  for (const part of name.split(/(?<=\/)/)) {
    if (lines.at(-1) && (lines.at(-1) + part).length > LETTERS_OF_A_TITLE) lines.push("");
    lines[lines.length - 1] += part;
  }
  return lines.map(plain).join("<br>");
}

function drawHistograms() {
  if (byId("pictures").hidden) return;
  const first = Number(byId("pictures-part").value), log = byId("pictures-log-y").checked;
  const shown = Object.entries(pictured().histograms).slice(first, first + MOST_HISTOGRAMS);
  const columns = Math.min(narrow() ? 1 : 4, shown.length), rows = Math.ceil(shown.length / columns);
  const { xaxis, yaxis, ...common } = layout({ fixedrange: true, nticks: 4 }, { fixedrange: true, nticks: 4, type: log ? "log" : "linear" });
  const axes = shown.flatMap((_, i) => [[`xaxis${i + 1}`, xaxis], [`yaxis${i + 1}`, yaxis]]);
  const traces = shown.map(([name, { low, high, counts }], i) => {
    const width = (high - low) / counts.length, total = counts.reduce((sum, count) => sum + count, 0), edge = (j) => digits(low + j * width);
    return {
      type: "bar", xaxis: `x${i + 1}`, yaxis: `y${i + 1}`, name: plain(name), showlegend: false, marker: { color: PALETTES[theme()][0] }, width,
      x: counts.map((_, j) => low + (j + 0.5) * width), y: counts, text: counts.map((_, j) => `${edge(j)} to ${edge(j + 1)}`), textposition: "none",
      hovertemplate: `<b>%{y} of ${total}</b><br>%{text}<br>${plain(name)}<extra></extra>`,
    };
  });
  byId("pictures-plot").style.height = `${rows * 12 + 2}rem`;
  Plotly.react("pictures-plot", traces, {
    ...common, ...Object.fromEntries(axes), bargap: 0, grid: { rows, columns, pattern: "independent", xgap: 0.25, ygap: 0.45 },
    margin: { l: 40, r: 16, t: 50, b: 30 }, height: byId("pictures-plot").clientHeight,
    annotations: shown.map(([name], i) => ({
      text: inLines(name), xref: `x${i + 1} domain`, yref: `y${i + 1} domain`, x: 0, y: 1, xanchor: "left", yanchor: "bottom", align: "left",
      showarrow: false, font: { size: 11 },
    })),
  }, PLOT_OPTIONS);
  const out = DATA.pictures.left_out;
  byId("pictures-caption").textContent = `At the end of the run. Images are filters of the first seed, each divided by its largest magnitude: of one
    channel blue is negative, white 0 and red positive; of three, grey is 0. Histograms count the numbers of every array of parameters, as they were trained, of all seeds.${out
    ? ` The page has no room for those of ${out} further runs.` : ""}`;
  byId("pictures-plot").setAttribute("aria-label", `Histograms of ${shown.length} arrays of parameters: ${shown.map(([name, { low, high }]) =>
    `${name} from ${digits(low)} to ${digits(high)}`).join(", ")}.`);
}
