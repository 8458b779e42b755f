// A search goes on by itself until it has found a page, is stopped, or has seen everything.
import { loadPage, one, thousands } from "./dom.js";

const ENOUGH = 50;

export function continueSearch() {
  const box = one("[data-search]");
  if (box) new Search(box);
}

class Search {
  constructor(box) {
    this.box = box;
    this.next = box.dataset.next;
    this.scanned = Number(one("[data-found]").dataset.scanned);
    this.problem = "";
    this.link = one("a", box);
    this.button = one("[data-stop]", box);
    this.link.addEventListener("click", (event) => { event.preventDefault(); this.run(this.found() + ENOUGH); });
    this.button.addEventListener("click", () => this.running?.abort());
    if (box.dataset.filtered && this.found() < ENOUGH) this.run(ENOUGH);
  }

  found() {
    return one("[data-messages]")?.rows.length ?? 0;
  }

  async run(enough) {
    const { signal } = (this.running = new AbortController());
    this.problem = "";
    this.show();
    while (!signal.aborted && this.next && this.found() < enough) {
      const url = new URL(location.href);
      url.searchParams.set("cursor", this.next);
      try { this.take(await loadPage(url, signal)); } catch (error) { this.problem = signal.aborted ? "" : error.message; break; }
      this.show();
    }
    this.running = null;
    this.show();
  }

  take(page) {
    const rows = page.querySelector("[data-messages]");
    const table = one("[data-messages]");
    if (rows && table) table.append(...[...rows.rows].map((row) => document.importNode(row, true)));
    else if (rows) (one("main .empty") ?? this.box).replaceWith(document.importNode(rows.closest("table"), true), ...(one("main .empty") ? [] : [this.box]));
    const box = page.querySelector("[data-search]");
    this.next = box?.dataset.next ?? null;
    this.scanned += Number(page.querySelector("[data-found]")?.dataset.scanned ?? 0);
    this.link.href = this.next ? `?${new URLSearchParams([...new URL(location.href).searchParams].filter(([key]) => key !== "cursor").concat([["cursor", this.next]]))}` : "";
  }

  show() {
    const words = this.box.dataset;
    const line = one("[data-found]");
    line.textContent = line.dataset.text.replace("%1", thousands(this.found())).replace("%2", thousands(this.scanned)) + (this.next ? "" : ` · ${line.dataset.all}`);
    this.button.hidden = !this.running;
    this.link.hidden = this.running || !this.next;
    one("progress", this.box).hidden = !this.running;
    one("[data-progress]", this.box).textContent = this.running ? words.searching : this.problem || (this.next ? words.stopped : "");
  }
}
