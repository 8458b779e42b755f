// Line charts as SVG, drawn again every few seconds while they can be seen. Every value can be reached without a pointer: with
// the arrow keys on the chart, and as a table below it.
import { all, draw, make, one, thousands } from "./dom.js";

const EVERY_MS = 5000;
const LEFT = 52;
const BOTTOM = 20;
const TABLE_ROWS = 30;
const STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600];

export function drawCharts() {
  for (const box of all("[data-chart]")) new Chart(box).start();
}

class Chart {
  constructor(box) {
    this.box = box;
    this.names = box.dataset.chart.split(",");
    this.labels = box.dataset.labels.split(",");
    this.title = box.getAttribute("aria-label");
    this.shown = box.dataset.unit === "share" ? (value) => (isKnown(value) ? `${(value * 100).toFixed(0)} %` : "–") : short;
    this.table = one(".chart-table", box.parentElement);
    this.table?.addEventListener("toggle", () => this.fillTable());
    const query = new URLSearchParams(this.names.map((name) => ["names", name]));
    query.set("span", box.dataset.span ?? "hour");
    this.url = `${document.body.dataset.api}/series?${query}`;
    box.addEventListener("pointermove", (event) => this.point(event));
    box.addEventListener("pointerleave", () => { this.at = null; this.paint(); });
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("blur", () => { this.at = null; this.paint(); });
  }

  async start() {
    for (;;) {
      if (!document.hidden) await this.load();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  }

  async load() {
    try {
      const answer = await fetch(this.url);
      if (answer.ok) { this.data = await answer.json(); this.paint(); this.fillTable(); }
    } catch { /* the next one may come */ }
  }

  paint() {
    const { timesMs: times = [], values = {} } = this.data ?? {};
    const known = this.names.flatMap((name) => (values[name] ?? []).filter((value) => value !== null));
    this.box.classList.toggle("message", known.length < 2);
    if (known.length < 2) { this.box.replaceChildren(this.box.dataset.empty); return; }
    const width = this.box.clientWidth;
    const height = this.box.clientHeight;
    const most = nice(Math.max(...known));
    const top = { share: 1, count: Math.max(2, most) }[this.box.dataset.unit] ?? most;
    const last = times[times.length - 1];
    const span = Math.max(60000, last - times[0]);
    this.x = (time) => LEFT + (width - LEFT - 8) * (1 - (last - time) / span);
    const y = (value) => 18 + (height - BOTTOM - 18) * (1 - value / top);
    const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const share of [0, 0.5, 1]) {
      picture.append(draw("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(top * share), y2: y(top * share) }), label(this.shown(top * share), LEFT - 6, y(top * share) + 4, "end"));
    }
    for (const time of roundTimes(last - span, last, Math.max(2, Math.floor(width / 110)))) {
      const x = this.x(time);
      picture.append(label(clock(time, span < 900000), x, height - 4, x < LEFT + 30 ? "start" : x > width - 38 ? "end" : "middle"));
    }
    this.names.forEach((name, number) => this.line(picture, times, values[name] ?? [], y, number));
    this.legend(picture, times, values, width);
    this.box.replaceChildren(picture);
  }

  line(picture, times, row, y, number) {
    for (const part of unbroken(times, row)) {
      const points = part.map((index) => `${this.x(times[index]).toFixed(1)} ${y(row[index]).toFixed(1)}`);
      const path = `M${points.join("L")}${points.length === 1 ? "h1" : ""}`;
      const [begin, end] = [this.x(times[part[0]]), this.x(times[part.at(-1)])];
      picture.append(draw("path", { class: `area s${number}`, d: `${path}L${end} ${y(0)}L${begin} ${y(0)}Z` }), draw("path", { class: `s${number}`, d: path }));
    }
  }

  legend(picture, times, values, width) {
    const index = this.at ?? this.known().at(-1);
    if (this.at !== null && this.at !== undefined) {
      const x = this.x(times[index]);
      picture.append(draw("line", { class: "hair", x1: x, x2: x, y1: 18, y2: this.box.clientHeight - BOTTOM }));
    }
    const texts = this.labels.map((text, number) => `${text} ${this.shown(values[this.names[number]]?.[index])}`);
    this.box.setAttribute("aria-label", `${this.title}, ${clock(times[index], true)}: ${texts.join(", ")}`);
    const group = draw("g", { class: "legend" });
    let x = width - 8;
    for (let number = texts.length - 1; number >= 0; number -= 1) {
      const room = texts[number].length * 7 + 34;
      group.append(draw("path", { class: `s${number}`, d: `M${x - room + 6} 8h18` }), label(texts[number], x - room + 30, 12, "start"));
      x -= room;
    }
    if (this.at !== null && this.at !== undefined) group.append(label(clock(times[index], true), LEFT, 12, "start"));
    picture.append(group);
  }

  /** The samples with a value: some numbers are asked for less often than others. */
  known() {
    const { timesMs: times = [], values = {} } = this.data ?? {};
    return times.map((_, index) => index).filter((index) => this.names.some((name) => isKnown(values[name]?.[index])));
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const known = this.known();
    if (!by || !known.length) return;
    event.preventDefault();
    const place = known.indexOf(this.at ?? known.at(-1));
    this.at = known[Math.max(0, Math.min(known.length - 1, (place < 0 ? known.length - 1 : place) + by))];
    this.paint();
  }

  fillTable() {
    if (!this.table?.open) return;
    const { timesMs: times = [], values = {} } = this.data ?? {};
    const known = this.known();
    const step = Math.max(1, Math.floor(known.length / TABLE_ROWS));
    const rows = known.reverse().filter((_, place) => place % step === 0).slice(0, TABLE_ROWS);
    const cells = (index) => this.names.map((name) => make("td", { class: "num" }, this.shown(values[name]?.[index])));
    one("tbody", this.table).replaceChildren(...rows.map((index) => make("tr", {}, make("td", {}, clock(times[index], true)), ...cells(index))));
  }

  point(event) {
    const times = this.data?.timesMs ?? [];
    if (!this.x || !times.length) return;
    const place = event.clientX - this.box.getBoundingClientRect().left;
    this.at = times.reduce((best, time, index) => (Math.abs(this.x(time) - place) < Math.abs(this.x(times[best]) - place) ? index : best), 0);
    this.paint();
  }
}

const isKnown = (value) => value !== null && value !== undefined;

/** Runs of samples without a gap; a gap is much longer than the usual time between samples: nobody was asked, or nobody answered. */
function unbroken(times, row) {
  const known = row.flatMap((value, index) => (isKnown(value) ? [index] : []));
  const steps = known.slice(1).map((index, place) => times[index] - times[known[place]]);
  const usual = [...steps].sort((one, other) => one - other)[Math.floor(steps.length / 2)] ?? 0;
  const parts = [];
  known.forEach((index, place) => {
    if (place === 0 || steps[place - 1] > 3 * usual) parts.push([]);
    parts.at(-1).push(index);
  });
  return parts;
}

const label = (text, x, y, anchor) => draw("text", { x, y, "text-anchor": anchor }, text);

/** Times for the axis that people would choose: full minutes, quarters, hours. */
function roundTimes(first, last, most) {
  const step = 1000 * (STEPS_S.find((seconds) => (last - first) / 1000 / seconds <= most) ?? STEPS_S.at(-1));
  const begin = Math.ceil(first / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((last - begin) / step) + 1) }, (_, number) => begin + number * step);
}

function nice(value) {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * unit >= value) * unit;
}

function short(value) {
  if (!isKnown(value)) return "–";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e5) return `${(value / 1e3).toFixed(0)} k`;
  if (value >= 1e3) return thousands(value);
  return String(Number(value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)));
}

function clock(time, withSeconds) {
  return new Date(time).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined, timeZone: document.body.dataset.zone });
}
