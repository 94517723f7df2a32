// The fields in which groups differ, as many of them as the reader chooses.

let compared = []; // places of the groups

function startConfigs() {
  byId("configs").hidden = !DATA.groups.length;
  if (!DATA.groups.length) return;
  const add = select("add-config", "Add", [], (event) => {
    if (event.target.value) comparedChanged([...compared, placeOf(event.target.value)]);
  });
  const equal = checkbox("equal", "show equal fields, too", false, drawConfigs);
  byId("configs-controls").append(add.label, equal.label);
  configsChanged();
}

/** For another experiment: its first two that are not hidden. */
function configsChanged() {
  const here = groupsHere().map((group) => DATA.groups.indexOf(group));
  compared = [...here.filter((i) => !hidden.has(i)), ...here.filter((i) => hidden.has(i))].slice(0, 2);
  drawConfigs();
}

function comparedChanged(places) {
  compared = places;
  drawConfigs();
  stateChanged();
}

function drawConfigs() {
  setOptions(byId("add-config"), [["", "a config"], ...DATA.groups.map((group, i) => [group, i])
    .filter(([, i]) => !compared.includes(i)).map(([group]) => [group.id, group.label])]);
  byId("add-config").value = "";
  const others = compared.map((i) => DATA.groups[i]);
  const value = (shown, i, name) => name in DATA.groups[i].fields ? shown[i] : "not used";
  const rows = [["seeds", ...others.map((group) => group.seeds.join(", "))]];
  for (const [name, shown] of Object.entries(DATA.fields)) rows.push([name, ...compared.map((i) => value(shown, i, name))]);
  for (const [name, shown] of Object.entries(DATA.common)) rows.push([name, ...compared.map(() => shown)]);
  rows.sort((x, y) => x[0].localeCompare(y[0], "en"));
  const kept = rows.filter((row) => byId("equal").checked || new Set(row.slice(1)).size > 1);
  const body = element("tbody", {}, ...kept.map(([name, ...values]) => element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)),
    ...values.map((text) => element("td", { class: text === values[0] ? null : "other" }, text)))));
  if (!kept.length) body.append(element("tr", {}, element("th", { scope: "row", colspan: compared.length + 1 }, "No field differs.")));
  const head = element("tr", {}, element("th", { scope: "col" }, "field"), ...compared.map((place, i) => {
    const text = labelAmong(DATA.groups[place], others);
    const remove = button(`remove-config-${DATA.groups[place].id}`, "×", () => {
      comparedChanged(compared.filter((_, j) => j !== i));
      byId("add-config").focus();
      announce(`${text} is removed`);
    }, `Remove ${text}`);
    return element("th", { scope: "col", "data-text": text }, text, compared.length > 1 ? remove : "");
  }));
  byId("configs-table").replaceChildren(element("caption", { class: "unseen" }, "Fields of the configs"), element("thead", {}, head), body);
}
