// Filters that act while typing, confirmations, boxes that select all, forms that are sent once.
import { reopenCells } from "./cells.js";
import { all, findNames, loadPage, make, one } from "./dom.js";
import { begin, end } from "./loading.js";

const PAUSE_MS = 60;
const MOST_NAMES = 30;

export function prepareForms() {
  for (const form of all("form[data-filter]")) prepareFilter(form);
  for (const field of all("[data-confirm]")) prepareConfirmation(field);
  for (const form of all("form[method=post]")) form.addEventListener("submit", () => { stayHere(form); sendOnce(form); });
  for (const form of all("form[data-trace]")) form.addEventListener("submit", (event) => goToTrace(event, form));
  for (const list of all("datalist[data-names]")) prepareNames(list);
  for (const button of all("[data-browse]")) button.addEventListener("click", () => browse(button));
  for (const button of all("[data-open]")) button.addEventListener("click", () => openDialog(button.dataset.open));
  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-all]")) return;
    for (const box of all("input[name=ids]", event.target.closest("table"))) box.checked = event.target.checked;
  });
}

export function openDialog(id) {
  const dialog = one(`#${id}`);
  if (!dialog.open) dialog.showModal();
  one("input", dialog)?.select();
}

function prepareFilter(form) {
  let waiting;
  const load = () => {
    const query = new URLSearchParams();
    for (const [key, value] of new FormData(form)) if (value) query.append(key, value);
    refreshList(`${location.pathname}${query.size ? `?${query}` : ""}`);
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); load(); });
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(load, PAUSE_MS); });
}

/** Names that exist, under a field, while its text is typed. */
function prepareNames(list) {
  let waiting;
  one(`input[list=${list.id}]`).addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const names = await findNames(list.dataset.names, event.target.value.trim(), MOST_NAMES);
      list.replaceChildren(...names.map((value) => make("option", { value })));
    }, PAUSE_MS);
  });
}

let turn = 0;

/** Load the list of another URL into this page, and keep the URL. */
export async function refreshList(url) {
  const mine = ++turn;
  const now = one("[data-part=list]");
  begin(document.title);
  try {
    const page = await loadPage(url);
    const part = page.querySelector("[data-part=list]");
    if (mine !== turn) return;
    if (!part || !now) { location.assign(url); return; }
    now.replaceWith(document.importNode(part, true));
    history.replaceState(null, "", url);
    reopenCells();
  } catch {
    if (mine === turn) location.assign(url);
  } finally {
    if (mine === turn) end();
  }
}

function prepareConfirmation(field) {
  const button = one("button.danger", field.form);
  const check = () => { button.disabled = field.value !== field.dataset.confirm; };
  field.addEventListener("input", check);
  check();
}

/** A filter that acts while it is typed changes where this page is. */
function stayHere(form) {
  if (form.elements.back) form.elements.back.value = location.pathname.slice(document.body.dataset.root.length) + location.search;
}

function sendOnce(form) {
  // The button that was pressed may carry a value, so it is switched off after the form was read.
  setTimeout(() => { for (const button of all("button", form)) button.disabled = true; });
}

function goToTrace(event, form) {
  event.preventDefault();
  const topic = form.elements.topic.value;
  const id = form.elements.id.value.trim();
  if (id) location.assign(`${form.dataset.trace}${encodeURIComponent(id)}?topic=${encodeURIComponent(topic)}`);
}

function browse(button) {
  const topic = button.form.elements.topic.value.trim();
  if (topic) location.assign(`${button.dataset.browse}${encodeURIComponent(topic)}/messages`);
}
