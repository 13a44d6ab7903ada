// A long press with a finger, which has no key to hold and nothing to hover over.

const LONG = 500; // milliseconds
const TOLERANCE = 10; // pixels that a finger may move

/** @param {HTMLElement} element @param {(target: HTMLElement) => void} onLongPress */
export function watchLongPresses(element, onLongPress) {
  let timer = 0;
  let start = { x: 0, y: 0 };
  let wasLong = false;
  const stop = () => clearTimeout(timer);
  element.addEventListener("pointerdown", (event) => {
    wasLong = false;
    if (event.pointerType !== "touch" || !(event.target instanceof HTMLElement)) return;
    const { target } = event;
    start = { x: event.clientX, y: event.clientY };
    timer = window.setTimeout(() => {
      wasLong = true;
      onLongPress(target);
    }, LONG);
  });
  element.addEventListener("pointermove", ({ clientX, clientY }) => {
    if (Math.hypot(clientX - start.x, clientY - start.y) > TOLERANCE) stop();
  });
  for (const event of ["pointerup", "pointercancel", "pointerleave"]) element.addEventListener(event, stop);
  element.addEventListener("contextmenu", (event) => wasLong && event.preventDefault());
  const ignore = (/** @type {MouseEvent} */ event) => {
    if (!wasLong) return;
    wasLong = false;
    event.preventDefault(); // the click that ends the press
    event.stopPropagation();
  };
  element.addEventListener("click", ignore, { capture: true });
}
