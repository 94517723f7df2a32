// The tables: final values with differences, what differs between the groups, and what was left out.

/**
 * Draws a table whose columns {name, number, value(row), half(row), show(row)} sort, and that is saved as CSV with
 * numbers as exact as the page has them.
 */
function drawTable(id, caption, columns, rows) {
  const table = byId(`${id}-table`), key = `${id}-sort`;
  const descending = chosen[key]?.startsWith("-") ?? false, sorted = chosen[key]?.slice(descending ? 1 : 0);
  const head = columns.map(({ name, number, text = name }) => element("th", {
    scope: "col", class: number ? "number" : null, "aria-sort": name === sorted ? (descending ? "descending" : "ascending") : "none",
  }, element("button", { type: "button", click: () => {
    const order = sorted === name && !descending ? `-${name}` : name;
    choose({ [key]: order }, `Sorted by ${text}, ${order === name ? "ascending" : "descending"}`);
    [...table.querySelectorAll("thead button")].find((node) => node.textContent === text)?.focus();
  } }, text)));
  const column = columns.find(({ name }) => name === sorted);
  const body = (column ? inOrder(rows, column, descending) : rows).map((row) =>
    element("tr", { class: row.class }, ...columns.map(({ number, value, show: shownAs = value }, i) =>
      element(i ? "td" : "th", { scope: i ? null : "row", class: number ? "number" : null }, shownAs(row) ?? "-"))));
  table.replaceChildren(element("caption", { class: "unseen" }, caption), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  if (!byId(`${id}-csv`)) byId(`${id}-tools`).append(button(`${id}-csv`, "CSV", () => saveText(`${id}.csv`, table.csv(), "text/csv"), `Save as CSV: ${caption}`));
  table.csv = () => {
    const quoted = (value) => /[",\n]/.test(value ?? "") ? `"${String(value).replace(/"/g, '""')}"` : value ?? "";
    const fields = columns.flatMap(({ name, text = name, value, half }) =>
      [[text, value], ...(half ? [[`${text}, half width of the 95 % interval`, half]] : [])]);
    return [fields.map(([name]) => name), ...rows.map((row) => fields.map(([, value]) => value(row)))]
      .map((line) => line.map(quoted).join(",") + "\n").join("");
  };
}

/** Rows without a value come last, in either order. */
function inOrder(rows, { value }, descending) {
  const known = rows.filter((row) => (value(row) ?? null) !== null), others = rows.filter((row) => !known.includes(row));
  const compare = (x, y) => typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
  return [...known.sort((a, b) => (descending ? -1 : 1) * compare(value(a), value(b))), ...others];
}

const EACH = "each"; // the reference of each row is its own baseline
const groupOf = (id) => DATA.groups.find((group) => group.id === id);

/** What differences may be to: the baseline of each group, or any finished group that has the metric. */
function references() {
  const each = shown().some((group) => group.baseline) ? [[EACH, "the baseline of each"]] : [];
  const label = labelsOfAll();
  return [...each, ...listed().filter((group) => group.done).map((group) => [group.id, label(group)])];
}

function usualReference() {
  const done = shown().filter((group) => group.done);
  return done.some((group) => group.baseline) ? EACH : (done.find((group) => !isOwn(group)) ?? done[0])?.id ?? "";
}

function drawFinals() {
  const name = metric(), reference = byId("reference").value, told = toldFields(shown());
  const to = (group) => groupOf(reference === EACH ? group.baseline : reference);
  const rows = shown().map((group) => ({
    group, class: isOwn(group) ? "own" : null, label: labelOf(group, told), final: interval(group.final[name]),
    difference: paired(group, to(group), name), to: to(group),
  }));
  const several = new Set(rows.map((row) => row.to).filter(Boolean)).size > 1;
  drawTable("finals", "Final values", [
    { name: "runs", value: (row) => row.label, show: (row) => markedLabel(row.group, row.label) },
    { name: "final", text: name, number: true, value: (row) => row.final.mean, half: (row) => row.final.half, show: (row) => plusMinus(row.final.mean, row.final.half) },
    ...(isPerSeed(name) ? [
      { name: "difference", number: true, value: (row) => row.difference?.mean, half: (row) => row.difference?.half,
        show: (row) => row.difference ? plusMinus(row.difference.mean, row.difference.half, true) : "-" },
      { name: "pairs", number: true, value: (row) => row.difference?.count },
    ] : []),
    ...(several ? [{ name: "to", value: (row) => row.difference && labelOf(row.to, told) }] : []),
    { name: "seeds", number: true, value: (row) => row.group.seeds.length },
    ...(rows.some((row) => row.group.diverged) ? [{ name: "diverged", number: true, value: (row) => row.group.diverged }] : []),
    ...(rows.some((row) => !row.group.done) ? [{ name: "state", value: (row) => row.group.state }] : []),
  ], rows);
  const one = rows.find((row) => row.to)?.to;
  const what = several ? "the baseline that the experiment names for each, at the same density and the like" : one && `“${labelOf(one, told)}”`;
  byId("finals-note").textContent = `Mean ± half width of the 95 % t-interval over seeds. ${what ? `Differences are to ${what}, paired by seed.
    Each interval is by itself: with many rows some will exclude 0 by chance. ` : ""}${rows.every((row) =>
    row.group.done) ? "" : "Of unfinished runs the last values of each seed are shown, and no differences."}`;
}

/** What differs between the shown groups: first where they come from and how they went, then the fields of their configs. */
function drawFields() {
  const groups = shown(), told = toldFields(groups);
  const rows = (all, value) => [...new Set(all)].map((name) => ({ name, values: new Map(groups.map((group) => [group, value(group)[name] ?? "not used"])) }))
    .filter(({ values }) => new Set(values.values()).size > 1);
  const found = [...rows(groups.flatMap((group) => Object.keys(group.about)), (group) => group.about),
    ...rows(DATA.fields[byId("experiment").value], (group) => group.config)];
  drawTable("fields", "What differs", [
    { name: "field", value: (row) => row.name, show: (row) => element("code", {}, row.name) },
    ...groups.map((group) => ({ name: group.id, text: labelOf(group, told), value: (row) => row.values.get(group) })),
  ], found);
}

function drawProblems() {
  byId("problems").hidden = !DATA.problems.length;
  byId("problems-count").textContent = `Left out (${DATA.problems.length})`;
  drawTable("problems", "What was left out", [{ name: "workdir", value: (one) => one.name }, { name: "reason", value: (one) => one.reason }], DATA.problems);
}
