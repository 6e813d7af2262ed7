// Numbers travel from where they stood before a step to where they stand after it.
import { motionReduced } from "./common.js";

const TRAVEL = 600; // milliseconds that a number takes to its new place
const underway = new WeakMap(); // by the part of the page, what still moves there

/**
 * Let each number travel from where it stood in memory, or in the tables. All places are
 * read before anything moves: each change between two readings would lay the page out anew.
 */
export function travel(node, from) {
  if (motionReduced() || document.hidden) return;
  for (const [key, { cell, x, y }] of whereabouts(node)) {
    const old = from.get(key);
    if (!old || (Math.abs(old.x - x) < 1 && Math.abs(old.y - y) < 1)) continue;
    const start = { transform: `translate(${old.x - x}px, ${old.y - y}px)`, zIndex: 2 };
    underway.get(node).push(
      cell.animate([start, { transform: "none", zIndex: 2 }], { duration: TRAVEL, easing: "ease-in-out" }));
  }
}

/** What moves there is where it goes to: the cells are to show other numbers. */
export function halt(node) {
  for (const one of underway.get(node) ?? []) one.cancel();
  underway.set(node, []);
}

/** Each cell's place, from the corner of the picture that it belongs to. */
export function whereabouts(node) {
  return new Map(["memory", "tables"].flatMap((part) => {
    const corner = node.querySelector(`.mha-${part}`)?.getBoundingClientRect();
    return [...node.querySelectorAll(`.mha-${part} [data-element]`)].map((cell) => {
      const { left, top } = cell.getBoundingClientRect();
      return [`${part} ${cell.dataset.element}`, { cell, x: left - corner.left, y: top - corner.top }];
    });
  }));
}
