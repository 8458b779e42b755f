// Small helpers for elements.
export const one = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function draw(name, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export const thousands = (number) => Math.round(number).toLocaleString("en-US");

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) [bytes, unit] = [bytes / 1024, unit + 1];
  return `${unit === 0 || bytes >= 100 ? bytes.toFixed(0) : bytes.toFixed(1)} ${units[unit]}`;
}

/** A page of ours as a document. Browsers run no script of a document that is loaded so. */
export function loadPage(url, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    signal?.addEventListener("abort", () => { request.abort(); reject(signal.reason); });
    request.responseType = "document";
    request.open("GET", url);
    request.onload = () => (request.response && request.status < 500 ? resolve(request.response) : reject(new Error(request.status)));
    request.onerror = () => reject(new Error("no answer"));
    request.send();
  });
}

/** Names of topics or groups that contain a text. */
export async function findNames(kind, text, most, signal) {
  const answer = await fetch(`${document.body.dataset.api}/${kind}?all=true&q=${encodeURIComponent(text)}`, { signal });
  return answer.ok ? (await answer.json()).items.slice(0, most).map((item) => item.name) : [];
}

let hiding;

/** Show a line in the corner for some seconds; with `action` it stays until it is used, and if it `stays`, until the next one. */
export function notice(text, { label, action, stays } = {}) {
  const box = one("#notice");
  box.replaceChildren(text);
  if (label) {
    const button = make("button", { type: "button" }, label);
    button.addEventListener("click", () => { box.hidden = true; action(); });
    box.append(button);
  }
  box.hidden = !text;
  clearTimeout(hiding);
  if (text && !label && !stays) hiding = setTimeout(() => { box.hidden = true; }, 4000);
}
