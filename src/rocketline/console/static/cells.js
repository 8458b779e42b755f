// Numbers that change in place: one stream for each page, closed while the tab is hidden. Numbers that are old look old.
import { all, loadPage, notice, one } from "./dom.js";
import { refreshList } from "./forms.js";

const OLD_MS = 8000;
let source = null;
let lost = false;
let heard = Date.now();
let usual = 0;

export function followCells() {
  const main = one("main[data-cells]");
  if (!main) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  if (!document.hidden) open();
  setInterval(showAge, 1000);
}

/** The server sends numbers as often as it can without being a load; old is what comes much later than usual. */
function showAge() {
  const age = Date.now() - heard;
  const isOld = age > Math.max(OLD_MS, 2.5 * usual);
  const box = one("#age");
  box.hidden = !isOld;
  one("main").classList.toggle("old", isOld);
  if (isOld) box.textContent = box.dataset.old.replace("%1", Math.round(age / 1000));
}

function fresh() {
  usual = Math.max(usual * 0.8, Date.now() - heard);
  heard = Date.now();
  showAge();
}

export function reopenCells() {
  if (source) { close(); open(); }
}

function open() {
  if (source) return;
  usual = 0;
  source = new EventSource(location.pathname.replace(/\/$/, "") + "/cells" + location.search);
  source.addEventListener("cells", (event) => { connected(); fresh(); show(JSON.parse(event.data)); });
  source.addEventListener("rows", changed);
  source.addEventListener("problem", (event) => { notice(JSON.parse(event.data).detail || ""); });
  source.addEventListener("end", close);
  source.onerror = broken;
}

/** Browsers try again by themselves, but not after an answer that is no stream: of whom nobody knows any more, for example. */
async function broken() {
  const words = one("#notice").dataset;
  if (!lost) { lost = true; notice(words.lost, { stays: true }); }
  if (source?.readyState !== EventSource.CLOSED) return;
  close();
  const page = await loadPage(location.href).catch(() => null);
  if (page?.querySelector("body.login")) notice(words.ended, { label: words.enter, action: () => location.reload() });
  else setTimeout(() => { if (!document.hidden) open(); }, OLD_MS);
}

function close() {
  source?.close();
  source = null;
}

function connected() {
  if (lost) { lost = false; notice(one("#notice").dataset.again); }
}

function show(texts) {
  const cells = new Map(all("[data-cell]").map((cell) => [cell.dataset.cell, cell]));
  for (const [key, text] of Object.entries(texts)) {
    if (key.endsWith("@")) { cells.get(key.slice(0, -1))?.setAttribute("class", text); continue; }
    const cell = cells.get(key);
    if (!cell || cell.textContent === text) continue;
    cell.textContent = text;
    cell.classList.remove("fresh");
    requestAnimationFrame(() => cell.classList.add("fresh"));
  }
}

/** Nothing moves under the pointer: a list that changed is loaded again only if somebody wants it. */
function changed() {
  const words = one("#notice").dataset;
  const action = () => (one("[data-part]") ? refreshList(location.href) : location.reload());
  notice(words.rows, { label: words.refresh, action });
}
