// What is being asked for, once it takes longer than a moment.
import { one } from "./dom.js";

const AFTER_MS = 300;
let waiting;

export function watchLoading() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.button || link?.target || link?.hasAttribute("download");
    if (link && !elsewhere && !event.defaultPrevented && !link.getAttribute("href").startsWith("#")) begin(link.textContent);
  });
  document.addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.method !== "dialog") begin(event.submitter?.textContent || document.title);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") end(); });
  addEventListener("pageshow", end);
}

/** Say what is asked for, if it is not there soon. */
export function begin(what) {
  end();
  const box = one("#loading");
  waiting = setTimeout(() => {
    one("span", box).textContent = what.trim();
    box.hidden = false;
  }, AFTER_MS);
}

export function end() {
  clearTimeout(waiting);
  one("#loading").hidden = true;
}
