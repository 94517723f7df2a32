"use strict";
// The data, what the reader has chosen, and the elements that all sections are made of.

const DATA = JSON.parse(document.getElementById("data").textContent);
const EXPERIMENTS = Object.keys(DATA.fields);
const byId = (id) => document.getElementById(id);
const system = window.matchMedia("(prefers-color-scheme: dark)");

// What differs from the page as it opens, by name and as text. It is in the address, after the #: nothing is sent, and
// who opens the address sees the same.
let chosen = {};

function readAddress() {
  chosen = Object.fromEntries(new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : ""));
}

/** Changes what is chosen (undefined: as the page opens), and draws everything again. */
function choose(changes, said) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined) delete chosen[name];
    else chosen[name] = String(value);
  }
  const text = String(new URLSearchParams(chosen));
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  draw();
  if (said) announce(said);
}

/** Says to screen readers what has changed. */
const announce = (text) => { byId("status").textContent = text; };

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

const unzoom = { zoom: undefined };
const controls = []; // functions that bring each control to what is chosen

/**
 * A menu. `options()` are values and texts, `usual()` is the value unless the reader has chosen another that there is;
 * `forgotten` are choices that make no sense for another value.
 */
function menu(id, label, options, usual = () => options()[0]?.[0], forgotten = {}) {
  const node = element("select", { id, change: () => choose({ [id]: node.value, ...forgotten }) });
  controls.push(() => {
    const all = options();
    node.replaceChildren(...all.map(([value, text]) => element("option", { value }, text)));
    node.value = all.some(([value]) => value === chosen[id]) ? chosen[id] : usual();
  });
  return element("label", {}, label, node);
}

function checkbox(id, label, usual, forgotten = {}) {
  const node = element("input", { type: "checkbox", id, change: () => choose({ [id]: node.checked === usual ? undefined : node.checked, ...forgotten }) });
  controls.push(() => { node.checked = id in chosen ? chosen[id] === "true" : usual; });
  return element("label", {}, node, label);
}

const button = (id, text, click, description) =>
  element("button", { type: "button", id, click, "aria-label": description, title: description }, text);

/** A group of buttons with a name. */
const buttons = (name, ...children) => element("span", { class: "buttons", role: "group", "aria-label": name }, ...children);

function saveText(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  announce(`${name} is saved`);
}

const metric = () => byId("metric").value;
const isPerSeed = (name) => !/^(learning_rate|performance)(\/|$)/.test(name);
const ofExperiment = (name) => DATA.groups.filter((group) => group.experiment === name);
const usuallyShown = new Set(DATA.shown);
/** The groups of the experiment that have the metric. */
const listed = () => ofExperiment(byId("experiment").value).filter((group) => group.curves[metric()]);
/** Those of them that are shown. */
function shown() {
  const ids = "show" in chosen ? new Set(chosen.show.split(".")) : usuallyShown;
  return listed().filter((group) => ids.has(group.id) || chosen.show === "all");
}

/** Shows these groups and no others of the experiment that have the metric. */
function show(groups, said) {
  const usual = listed().filter((group) => usuallyShown.has(group.id));
  const same = groups.length === usual.length && usual.every((group) => groups.includes(group));
  const ids = groups.length && groups.length === listed().length ? "all" : groups.map((group) => group.id).join(".") || "none";
  choose({ show: same ? undefined : ids }, said);
}

/** The fields that labels give: the method and the like, and those that groups read and differ in. */
function toldFields(groups) {
  const values = (field) => new Set(groups.map((group) => group.config[field]).filter((value) => value !== undefined));
  const fields = [...new Set(groups.flatMap((group) => Object.keys(group.parts)))];
  return fields.filter((field) => field[0] === "(" || values(field).size > 1);
}

const labelOf = (group, told = toldFields(shown())) => told.map((field) => group.parts[field]).filter(Boolean).join(", ");
/** Labels among all groups of the list, but for the shown ones, which have theirs among these. */
function labelsOfAll() {
  const visible = shown(), told = toldFields(visible), others = toldFields(listed());
  return (group) => labelOf(group, visible.includes(group) ? told : others);
}
const seedsOf = (group) =>
  ` (${group.seeds.length} seed${group.seeds.length === 1 ? "" : "s"}${group.diverged ? `, ${group.diverged} diverged` : ""})`;
const isOwn = (group) => group.own && DATA.mixed;
/** A label, and whether the group is one of the reader's own. */
const markedLabel = (group, text) => isOwn(group)
  ? element("span", {}, element("strong", {}, text), " ", element("span", { class: "badge" }, "not in results/")) : text;
