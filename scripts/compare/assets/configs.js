// The fields in which two groups differ.

function startConfigs() {
  const options = DATA.groups.map((group, i) => [i, group.label]);
  byId("configs").hidden = !options.length;
  if (!options.length) return;
  const first = select("first", "First", options, drawConfigs), second = select("second", "Second", options, drawConfigs);
  const equal = checkbox("equal", "show equal fields, too", false, drawConfigs);
  byId("configs-controls").append(first.label, second.label, equal.label);
  if (options.length > 1) byId("second").value = "1";
  drawConfigs();
}

function drawConfigs() {
  const [a, b] = [Number(byId("first").value), Number(byId("second").value)];
  const value = (shown, i, name) => name in DATA.groups[i].fields ? shown[i] : "absent";
  const rows = [["seeds", DATA.groups[a].seeds.join(", "), DATA.groups[b].seeds.join(", ")]];
  for (const [name, shown] of Object.entries(DATA.fields)) rows.push([name, value(shown, a, name), value(shown, b, name)]);
  for (const [name, shown] of Object.entries(DATA.common)) rows.push([name, shown, shown]);
  rows.sort((x, y) => x[0].localeCompare(y[0], "en"));
  const kept = rows.filter((row) => byId("equal").checked || row[1] !== row[2]);
  const body = element("tbody", {}, ...kept.map((row) => element("tr", {}, element("th", { scope: "row" }, element("code", {}, row[0])),
    element("td", { class: "long" }, row[1]), element("td", { class: "long" }, row[2]))));
  if (!kept.length) body.append(element("tr", {}, element("td", { colspan: 3 }, "No field differs.")));
  byId("configs-table").replaceChildren(element("caption", { class: "unseen" }, "Fields of two configs"),
    element("thead", {}, element("tr", {}, ...["field", "first", "second"].map((name) => element("th", { scope: "col" }, name)))), body);
}
