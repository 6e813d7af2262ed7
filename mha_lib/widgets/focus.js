// Where the focus goes when what had it is gone.

const FOCUSABLE = "button, select, input, summary, [tabindex]";
const canHold = (one) => one.isConnected && !one.disabled && one.tabIndex >= 0 && one.getClientRects().length > 0;

/**
 * Ask before a change, call after it: what had the focus may be gone, hidden or disabled
 * then, and the focus with it. It goes to what is called alike, or comes next, or last,
 * in the smallest part around it that still shows something.
 */
export function focusKeeper(root) {
  const held = document.activeElement;
  if (held === root || !root.contains(held)) return () => {};
  const around = [];
  for (let part = held.parentElement; part !== root; part = part.parentElement) around.push(part);
  return () => {
    if (held.isConnected && !held.disabled && held.checkVisibility()) return; // asks for no layout
    for (const part of [...around.filter((one) => root.contains(one)), root]) {
      const found = [...part.querySelectorAll(FOCUSABLE)].filter(canHold);
      const next = found.find((one) => one.tagName === held.tagName && one.textContent === held.textContent)
        ?? found.find((one) => held.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING) ?? found.at(-1);
      if (!next) continue;
      next.focus({ preventScroll: true });
      return;
    }
  };
}
