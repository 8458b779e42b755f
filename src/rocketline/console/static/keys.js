// Everything by keyboard.
import { all, findNames, make, one } from "./dom.js";
import { openDialog, refreshList } from "./forms.js";

const PLACES = { o: "/", t: "/topics", g: "/groups", m: "/messages", d: "/dead-letters" };
let goes = 0;
let row = -1;

export function listenForKeys() {
  document.addEventListener("keydown", pressed);
  const find = one("form[data-find]");
  find?.elements.id.addEventListener("input", () => search(find));
  find?.addEventListener("submit", (event) => submitFind(event, find));
  find?.elements.id.addEventListener("keydown", (event) => choose(event));
}

function pressed(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); openDialog("find-dialog"); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
  if (event.target.matches("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
  if (Date.now() - goes < 1500 && PLACES[event.key]) { location.assign(document.body.dataset.clusterUrl + PLACES[event.key]); return; }
  goes = event.key === "g" ? Date.now() : 0;
  const act = { "/": filter, "?": () => openDialog("help-dialog"), j: () => move(1), k: () => move(-1), Enter: () => open(event), r: refresh, p: pause }[event.key];
  if (act) act(event);
}

function filter(event) {
  const field = one("form[data-filter] input[type=search]") ?? one("main input[type=search], main .search input, main form input:not([type=hidden])");
  if (field) { event.preventDefault(); field.focus(); field.select(); }
}

const rows = () => all("table[data-rows] tbody tr:not(.reason)");

function move(by) {
  const found = rows();
  if (!found.length) return;
  found[row]?.setAttribute("aria-selected", "false");
  row = Math.max(0, Math.min(found.length - 1, row + by));
  found[row].setAttribute("aria-selected", "true");
  found[row].scrollIntoView({ block: "nearest" });
}

function open(event) {
  if (event.target !== document.body && event.target.id !== "main") return;
  one("a[href]", rows()[row] ?? document.createElement("i"))?.click();
}

function refresh() {
  if (one("[data-part=list]")) refreshList(location.href);
  else location.reload();
}

function pause() {
  one("[data-pause]")?.click();
}

const PAUSE_MS = 120;
const MOST_NAMES = 8;
let waiting;
let running;

/** Ask once the typing pauses; an older question is given up. */
function search(form) {
  clearTimeout(waiting);
  running?.abort();
  const text = form.elements.id.value.trim();
  if (!text) one(".found", form).replaceChildren();
  else waiting = setTimeout(() => find(form, text), PAUSE_MS);
}

async function find(form, text) {
  const list = one(".found", form);
  const { signal } = (running = new AbortController());
  let topics, groups;
  try {
    [topics, groups] = await Promise.all(["topics", "groups"].map((kind) => findNames(kind, text, MOST_NAMES, signal)));
  } catch { return; }
  if (signal.aborted) return;
  const url = document.body.dataset.clusterUrl;
  const line = (text, label, href) => make("li", { role: "presentation" }, make("a", { href, role: "option" }, text, make("small", {}, label)));
  list.replaceChildren(
    ...topics.map((name) => line(name, list.dataset.topic, `${url}/topics/${encodeURIComponent(name)}`)),
    ...groups.map((name) => line(name, list.dataset.group, `${url}/groups/${encodeURIComponent(name)}`)),
    ...(text.length >= 16 ? [line(text, list.dataset.message, `${url}/messages?id=${encodeURIComponent(text)}`)] : []),
  );
}

function choose(event) {
  // A search field takes the first Escape for itself, to become empty.
  if (event.key === "Escape") { event.preventDefault(); event.target.closest("dialog").close(); return; }
  const links = all(".found a");
  if (!links.length || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
  event.preventDefault();
  const now = links.findIndex((link) => link.getAttribute("aria-selected") === "true");
  const next = (now + (event.key === "ArrowDown" ? 1 : -1) + links.length) % links.length;
  links[now]?.setAttribute("aria-selected", "false");
  links[next].setAttribute("aria-selected", "true");
}

function submitFind(event, form) {
  const link = one(".found a[aria-selected=true]", form) ?? one(".found a", form);
  if (link) { event.preventDefault(); location.assign(link.href); }
}
