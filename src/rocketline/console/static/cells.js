// Numbers that change in place: one stream for each page, closed while the tab is hidden.
import { all, notice, one } from "./dom.js";
import { refreshList } from "./forms.js";

let source = null;
let lost = false;

export function followCells() {
  const main = one("main[data-cells]");
  if (!main) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  if (!document.hidden) open();
}

export function reopenCells() {
  if (source) { close(); open(); }
}

function open() {
  if (source) return;
  source = new EventSource(location.pathname.replace(/\/$/, "") + "/cells" + location.search);
  source.addEventListener("cells", (event) => { connected(); show(JSON.parse(event.data)); });
  source.addEventListener("rows", changed);
  source.addEventListener("problem", (event) => { notice(JSON.parse(event.data).detail || ""); });
  source.addEventListener("end", close);
  source.onerror = () => { if (!lost) { lost = true; notice(one("#notice").dataset.lost); } };
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
  notice(words.rows, words.refresh, () => (one("[data-part]") ? refreshList(location.href) : location.reload()));
}
