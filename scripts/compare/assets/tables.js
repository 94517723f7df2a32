// Tables: columns that sort and can be chosen, and every table as a file or on the clipboard.

const chosenColumns = {}; // by the id of a table, the columns that the reader has asked for or against: name → boolean
const sortedBy = {}; // by the id of a table, the column that it is sorted by, with a minus before it if descending

/**
 * The function that draws the table of a section.
 * Columns: {name, number, long, unusual, value(row), half(row), show(row)}; the unusual ones only where they are chosen.
 */
function dataTable(id, caption) {
  const table = byId(`${id}-table`), chosen = (chosenColumns[id] = new Map());
  return function draw(columns, rows) {
    const descending = sortedBy[id]?.startsWith("-") ?? false, sorted = sortedBy[id]?.slice(descending ? 1 : 0);
    const shown = columns.filter((column, i) => !i || (chosen.get(column.name) ?? !column.unusual));
    const column = shown.find((candidate) => candidate.name === sorted);
    const head = element("tr");
    for (const { name, number } of shown) {
      const order = name === sorted ? (descending ? "descending" : "ascending") : "none";
      head.append(element("th", { scope: "col", class: number ? "number" : null, "aria-sort": order },
        element("button", { type: "button", click: () => {
          sortedBy[id] = sorted === name && !descending ? `-${name}` : name;
          draw(columns, rows);
          [...table.querySelectorAll("th button")].find((node) => node.textContent === name)?.focus();
          announce(`Sorted by ${name}, ${sortedBy[id] === name ? "ascending" : "descending"}`);
          stateChanged();
        } }, name)));
    }
    const body = element("tbody");
    for (const row of column ? inOrder(rows, column, descending) : rows) {
      body.append(element("tr", { class: row.own ? "own" : null }, ...shown.map((column, i) => cell(column, row, !i))));
    }
    table.replaceChildren(element("caption", { class: "unseen" }, caption), element("thead", {}, head), body);
    if (columns.some((one) => one.unusual !== undefined)) drawChooser(id, columns, chosen, () => draw(columns, rows));
  };
}

function cell({ number, long, show, value, half }, row, first) {
  const content = (show || value)(row) ?? "-", exact = number ? value(row) : null;
  return element(first ? "th" : "td", {
    scope: first ? "row" : null, class: number ? "number" : long ? "long" : null,
    "data-value": exact, "data-half": exact === null ? null : half?.(row),
  }, content);
}

/** What has no value comes last, in either order. */
function inOrder(rows, { value }, descending) {
  const sign = descending ? -1 : 1;
  return rows.slice().sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || x === undefined) return y === null || y === undefined ? 0 : 1;
    if (y === null || y === undefined) return -1;
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
  });
}

/** The list of columns to tick, which stays open while the table is drawn again. */
function drawChooser(id, columns, chosen, redraw) {
  const tools = byId(`${id}-tools`);
  let list = tools.querySelector(".columns");
  if (!list) tools.prepend(list = element("details", { class: "columns" }, element("summary", {}, "Columns"), element("div")));
  const focused = document.activeElement?.id;
  list.lastChild.replaceChildren(...columns.slice(1).map(({ name, unusual }) =>
    checkbox(`${id}-column-${name}`, name, chosen.get(name) ?? !unusual, (event) => {
      chosen.set(name, event.target.checked);
      redraw();
      announce(`Column ${name} is ${event.target.checked ? "shown" : "hidden"}`);
      stateChanged();
    }).label));
  if (focused?.startsWith(`${id}-column-`)) byId(focused)?.focus();
}

/** Buttons for every table of the page, in the section's place for them or above the table. */
function startTables() {
  for (const table of document.querySelectorAll("main table")) {
    const title = table.closest("article, section").querySelector("h2, h3").textContent;
    const name = table.id.replace(/-table$/, ""), region = table.closest(".scroll");
    let tools = byId(`${name}-tools`);
    if (!tools) region.before(tools = element("div", { class: "controls", id: `${name}-tools` }));
    tools.append(element("span", { class: "buttons", role: "group", "aria-label": `Save or copy: ${title}` },
      button(`${name}-csv`, "CSV", () => saveText(`${name}.csv`, csvOf(table), "text/csv"), `Save as CSV: ${title}`),
      button(`${name}-markdown`, "Markdown", () => saveText(`${name}.md`, markdownOf(table), "text/markdown"), `Save as Markdown: ${title}`),
      button(`${name}-copy`, "Copy", () => copyText(markdownOf(table)), `Copy as Markdown: ${title}`)));
  }
}

const headsOf = (table) => [...table.tHead.rows[0].cells].map((node) => node.dataset.text ?? textOf(node));
const rowsOf = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells]);
/** The text of a cell, without marks that are no part of it. */
function textOf(node) {
  const copy = node.cloneNode(true);
  for (const mark of copy.querySelectorAll(".badge")) mark.remove();
  return copy.textContent.replace(/\s+/g, " ").trim();
}

/** Numbers as exact as the page has them, with half widths of intervals in columns of their own. */
function csvOf(table) {
  const rows = rowsOf(table), quoted = (text) => /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  const halves = headsOf(table).map((_, i) => rows.some((row) => row[i]?.dataset.half !== undefined));
  const line = (cells) => cells.map(quoted).join(",");
  return [
    line(headsOf(table).flatMap((name, i) => halves[i] ? [name, `${name}, half width of the 95 % interval`] : [name])),
    ...rows.map((row) => line(row.flatMap((node, i) => {
      const value = node.dataset.value ?? textOf(node);
      return halves[i] ? [value, node.dataset.half ?? ""] : [value];
    }))),
  ].join("\n") + "\n";
}

function markdownOf(table) {
  const line = (cells) => `| ${cells.map((text) => text.replace(/\|/g, "\\|")).join(" | ")} |`;
  const numbers = [...table.tHead.rows[0].cells].map((node) => node.classList.contains("number"));
  return [line(headsOf(table)), line(numbers.map((number) => number ? "---:" : "---")),
    ...rowsOf(table).map((row) => line(row.map(textOf)))].join("\n") + "\n";
}

function saveText(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  announce(`${name} is saved`);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("The table is copied");
  } catch (error) {
    announce(`The browser does not allow copying: ${error.message}`);
  }
}
