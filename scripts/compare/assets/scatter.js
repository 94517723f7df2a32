// Final values against a field of the config.

function startScatter() {
  const metric = select("scatter-metric", "Metric", [], drawScatter);
  const field = select("field", "against", [], () => { fieldChanged(); drawScatter(); });
  const split = select("split", "coloured by", [], drawScatter);
  const log = checkbox("scatter-log", "log x", false, drawScatter), logY = checkbox("scatter-log-y", "log y", false, drawScatter);
  byId("scatter-controls").append(metric.label, field.label, split.label, log.label, logY.label,
    plotButtons("scatter-plot", () => `scatter-${byId("scatter-metric").value}-${byId("field").value}`.replaceAll("/", "-")));
  scatterChanged();
}

/** For another experiment. */
function scatterChanged() {
  const fields = sweptHere();
  byId("scatter").hidden = !fields.length;
  if (!fields.length) return;
  setOptions(byId("scatter-metric"), namesOf(metricsHere()));
  setOptions(byId("field"), namesOf(fields));
  setOptions(byId("split"), [["", "curve"], ...namesOf(fields)]);
  const swept = fields.map((name) => [new Set(numbersOf(name)).size, name]).sort((a, b) => b[0] - a[0]);
  if (swept[0][0] > 1) byId("field").value = swept[0][1];
  fieldChanged();
  drawScatter();
}

const numbersOf = (field) => groupsHere().map((group) => group.fields[field]).filter((value) => typeof value === "number");

/** A logarithmic axis where values are positive and a hundredfold apart. */
function fieldChanged() {
  const values = numbersOf(byId("field").value);
  byId("scatter-log").checked = values.length > 0 && Math.min(...values) > 0 && Math.max(...values) >= 100 * Math.min(...values);
}

function drawScatter() {
  if (byId("scatter").hidden) return;
  const metric = byId("scatter-metric").value, field = byId("field").value, split = byId("split").value;
  const numeric = numbersOf(field).length > 0;
  const shown = DATA.groups.map((_, i) => i).filter((i) => !hidden.has(i) && DATA.groups[i].experiment === experiment
    && DATA.groups[i].final[metric] && (!numeric || typeof DATA.groups[i].fields[field] === "number"));
  const order = having(metric), kinds = split ? [...new Set(shown.map((i) => DATA.fields[split][i]))] : [];
  const traces = shown.map((i) => {
    const group = DATA.groups[i], { mean, half } = interval(group.final[metric]);
    const { colour, symbol } = look(split ? kinds.indexOf(DATA.fields[split][i]) : order.indexOf(i));
    const by = split ? `<br>${plain(split)} = ${plain(DATA.fields[split][i])}` : "";
    return {
      x: [numeric ? group.fields[field] : plain(DATA.fields[field][i])], y: [mean], mode: "markers",
      name: plain(split ? `${split} = ${DATA.fields[split][i]}` : group.label),
      showlegend: !split || i === shown.find((j) => DATA.fields[split][j] === DATA.fields[split][i]),
      error_y: { type: "data", array: [half ?? 0], visible: half !== null, thickness: 1.5, color: colour },
      marker: { color: colour, symbol: group.done ? symbol : `${symbol}-open`, size: group.own ? 14 : 9 },
      hovertemplate: `<b>${plusMinus(mean, half)}</b><br>${plain(field)} = ${plain(DATA.fields[field][i])}${by}<br>${plain(group.label)}${plain(seedsOf(group))}<extra></extra>`,
    };
  });
  const logY = byId("scatter-log-y").checked;
  const type = !numeric ? "category" : byId("scatter-log").checked ? "log" : "linear";
  Plotly.react("scatter-plot", traces, layout(
    { title: { text: plain(field) }, type }, { title: { text: plain(metric) }, type: logY ? "log" : "linear" },
    { uirevision: [metric, field, type, logY].join() },
  ), PLOT_OPTIONS);
  const legend = split ? ` Colours and shapes by ${split}: ${kinds.length} values, named on hovering.` : " Colours as in the list of curves of the metric.";
  byId("scatter-caption").textContent = `Mean and 95 % t-interval over seeds at the end, of the groups that are not hidden. Open marks: unfinished.${legend}`;
  byId("scatter-plot").setAttribute("aria-label",
    `Scatter plot of ${metric} at the end against ${field}, ${traces.length} groups. The same values are in the table above.`);
}
