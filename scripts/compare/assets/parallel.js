// Parallel coordinates: a line for each group through the values of its fields, in the colour of its final metric.

const MOST_AXES = 8;

function startParallel() {
  const metric = select("parallel-metric", "Metric", [], drawParallel);
  const shown = checkbox("parallel-shown", "only runs whose curves are shown", false, drawParallel);
  byId("parallel-controls").append(metric.label, shown.label,
    plotButtons("parallel-plot", () => `parallel-${byId("parallel-metric").value}`.replaceAll("/", "-"), false));
  parallelChanged();
}

/** For another experiment; a sweep has three groups or more, and more than a field. */
function parallelChanged() {
  byId("parallel").hidden = groupsHere().length < 3 || sweptHere().length < 2;
  setOptions(byId("parallel-metric"), namesOf(metricsHere()));
  drawParallel();
}

/** The places from 0 to 1 of the values of an axis, and texts at some of them: numbers in a row, else one place a value. */
function scaleOf(values, texts) {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length && values.every((value) => typeof value === "number" || value === null || value === undefined)) {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)], log = low > 0 && high >= 100 * low;
    const on = (value) => log ? Math.log(value) : value, width = on(high) - on(low) || 1, text = (value) => texts[values.indexOf(value)];
    return { place: (i) => typeof values[i] === "number" ? (on(values[i]) - on(low)) / width : null,
      ticks: [[0, text(low)], ...(high > low ? [[1, text(high)]] : [])] };
  }
  const known = (i) => values[i] !== null && values[i] !== undefined;
  const kinds = [...new Set(texts.filter((_, i) => known(i)))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const place = (text) => kinds.length < 2 ? 0.5 : kinds.indexOf(text) / (kinds.length - 1);
  return { place: (i) => known(i) ? place(texts[i]) : null, ticks: kinds.length > 9 ? [] : kinds.map((text) => [place(text), text]) };
}

/** From the first colour of the palette to the second. */
function between(share) {
  const [from, to] = PALETTES[theme()].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return `rgb(${from.map((part, i) => Math.round(part + share * (to[i] - part))).join()})`;
}

function drawParallel() {
  if (byId("parallel").hidden) return;
  const metric = byId("parallel-metric").value;
  const groups = groupsHere().filter((group) => group.final[metric]
    && !(byId("parallel-shown").checked && hidden.has(DATA.groups.indexOf(group))));
  const text = (field, group) => DATA.fields[field][DATA.groups.indexOf(group)];
  const used = (field) => groups.filter((group) => group.fields[field] !== undefined && group.fields[field] !== null);
  const kinds = (field) => new Set(used(field).map((group) => text(field, group))).size;
  const fields = sweptHere().filter((field) => kinds(field) > 1).sort((a, b) => kinds(b) - kinds(a))
    .slice(0, narrow() ? 4 : MOST_AXES);
  const ends = groups.map((group) => interval(group.final[metric]));
  const axes = [
    ...fields.map((field) => [field, scaleOf(groups.map((group) => group.fields[field]), groups.map((group) => text(field, group)))]),
    [metric, scaleOf(ends.map(({ mean }) => mean), ends.map(({ mean }) => digits(mean)))],
  ];
  const ranked = ends.map(({ mean }) => mean).filter((mean) => mean !== null).sort((a, b) => a - b);
  const traces = groups.map((group, i) => {
    const share = ends[i].mean === null ? 0.5 : ranked.indexOf(ends[i].mean) / Math.max(1, ranked.length - 1);
    return {
      x: axes.map((_, axis) => axis), y: axes.map(([, scale]) => scale.place(i)), mode: "lines+markers", connectgaps: true, name: plain(group.label),
      line: { color: between(share), width: group.own ? 4 : 1.5 }, marker: { color: between(share), size: 6 }, opacity: 0.85,
      hovertemplate: `<b>${plain(metric)} ${plusMinus(ends[i].mean, ends[i].half)}</b><br>${plain(group.label)}${plain(seedsOf(group))}<extra></extra>`,
    };
  });
  const line = (axis) => ({ type: "line", x0: axis, x1: axis, y0: 0, y1: 1, layer: "below", line: { color: style("--control"), width: 1 } });
  const ticks = axes.flatMap(([, scale], axis) => scale.ticks.map(([y, tick]) => ({
    x: axis, y, text: plain(tick), showarrow: false, xanchor: axis ? "right" : "left", xshift: axis ? -6 : 6, font: { size: 11 },
    bgcolor: style("--background"), opacity: 0.9,
  })));
  Plotly.react("parallel-plot", traces, layout(
    { tickvals: axes.map((_, axis) => axis), ticktext: axes.map(([name]) => plain(narrow() ? name.split(".").at(-1) : name)), showgrid: false,
      zeroline: false, fixedrange: true, range: [-0.25, axes.length - 0.85] },
    { visible: false, fixedrange: true, range: [-0.06, 1.06] },
    { shapes: axes.map((_, axis) => line(axis)), annotations: ticks, dragmode: false },
  ), PLOT_OPTIONS);
  const left = sweptHere().length - fields.length;
  byId("parallel-caption").textContent = `A line for each group, from field to field to ${metric} at the end. Colours go by its order: from blue, the
    lowest, to orange, the highest. A field that a run does not use is passed by.
    ${left > 0 ? `The ${fields.length} fields with most values are drawn, ${left} more differ.` : ""}`;
  byId("parallel-plot").setAttribute("aria-label",
    `Parallel coordinates of ${groups.length} groups over ${fields.join(", ")} and ${metric}. The table of final values has the same, with these columns chosen.`);
}
