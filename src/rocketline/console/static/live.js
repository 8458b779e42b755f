// The live tail. Pausing holds what arrives. It goes on where it was: after a break, a pause of the tab, or its end.
import { loadPage, make, one, size, thousands } from "./dom.js";

const MOST_ROWS = 500;
const MOST_HELD = 5000;
const AGAIN_MS = 2000;

export function followTopic() {
  const table = one("table[data-live]");
  if (!table) return;
  const tail = new Tail(table);
  document.addEventListener("visibilitychange", () => (document.hidden ? tail.close() : tail.open()));
  if (!document.hidden) tail.open();
}

class Tail {
  constructor(table) {
    this.body = one("tbody", table);
    this.url = table.dataset.live;
    this.position = "";
    this.state = one("[data-live-state]");
    this.button = one("[data-pause]");
    this.words = this.state.dataset;
    this.held = [];
    this.seen = 0;
    this.dropped = 0;
    this.paused = false;
    this.pauseText = this.button.firstChild.textContent;
    this.button.addEventListener("click", () => this.toggle());
  }

  open() {
    if (this.source) return;
    const source = (this.source = new EventSource(this.address()));
    const on = (name, act) => source.addEventListener(name, (event) => { this.position = event.lastEventId || this.position; act(event); });
    on("batch", (event) => this.take(JSON.parse(event.data)));
    on("quiet", () => this.say());  // the first event comes when it is known from where it follows
    on("problem", (event) => this.stop(JSON.parse(event.data).title));
    on("end", () => this.stop(this.words.ended));
    source.onerror = () => { if (this.source === source) this.broken(source); };
  }

  /** Browsers try again by themselves, but not after an answer that is no stream: a console that starts gives such. */
  async broken(source) {
    this.state.textContent = this.words.again;
    if (source.readyState !== EventSource.CLOSED) return;
    this.close();
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    try {
      const refusal = await loadPage(this.address(), AbortSignal.timeout(AGAIN_MS));
      this.stop(one("h1", refusal).textContent);
    } catch {
      if (!document.hidden) this.open();
    }
  }

  address() {
    const query = new URLSearchParams(location.search);
    if (this.position) query.set("position", this.position);
    return `${this.url}?${query}`;
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  stop(text) {
    this.close();
    const again = make("button", { type: "button" }, this.words.continue);
    again.addEventListener("click", () => this.open());
    this.state.replaceChildren(text, " ", again);
  }

  take(batch) {
    this.seen += batch.items.length;
    this.dropped += batch.dropped;
    batch.items.forEach((item, number) => { item.time = batch.times[number]; });
    if (this.paused) {
      this.held.push(...batch.items);
      if (this.held.length > MOST_HELD) { this.dropped += this.held.length - MOST_HELD; this.held = this.held.slice(-MOST_HELD); }
    } else this.show(batch.items);
    this.say(batch.partial);
  }

  say(partial = []) {
    const parts = [this.paused ? this.words.held.replace("%1", thousands(this.held.length)) : this.words.following.replace("%1", thousands(this.seen))];
    if (this.dropped) parts.push(this.words.dropped.replace("%1", thousands(this.dropped)));
    for (const item of partial) parts.push(`${this.words.again}: ${item.broker} ${item.address}`);
    this.state.textContent = parts.join(" · ");
  }

  toggle() {
    this.paused = !this.paused;
    this.button.setAttribute("aria-pressed", String(this.paused));
    this.button.firstChild.textContent = this.paused ? `${this.button.dataset.resume} ` : this.pauseText;
    if (!this.paused) { this.show(this.held); this.held = []; }
    this.say();
  }

  /** The newest row comes first. */
  show(items) {
    const rows = items.slice(-MOST_ROWS).map(line).reverse();
    this.body.prepend(...rows);
    while (this.body.rows.length > MOST_ROWS) this.body.lastElementChild.remove();
  }
}

function line(item) {
  const url = document.body.dataset.clusterUrl;
  const link = make("a", { href: `${url}/messages/${encodeURIComponent(item.id)}?topic=${encodeURIComponent(item.topic)}` }, make("code", { title: item.id }, item.id.length > 18 ? `…${item.id.slice(-14)}` : item.id));
  const cell = (content, kind = "") => make("td", kind ? { class: kind } : {}, content);
  return make("tr", {}, cell(item.time), cell(link), cell(make("code", {}, `${item.broker}:${item.queue}@${item.offset}`)), cell(item.tag),
    cell(item.keys.join(" "), "clip"), cell(size(item.size), "num"), cell(make("code", {}, item.preview.slice(0, 300)), "clip body"));
}
