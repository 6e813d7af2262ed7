// A language model as `mha_lib.model.quantised` packs it, and how a page comes by it.
import { need } from "./arithmetic.js";

const SCALE = ".scale";

/** base64 of a safetensors file → {sizes, tokens, merges, pieces, tensors by name}. */
export function unpackModel(text) {
  const bytes = Uint8Array.fromBase64?.(text) // a young method, and ten times as fast
    ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const { __metadata__: { words }, ...entries } = head;
  const stored = (name) => {
    const { dtype, data_offsets: [from, to] } = entries[name];
    const part = bytes.slice(8 + length + from, 8 + length + to).buffer;
    return dtype === "I8" ? new Int8Array(part) : new Float32Array(part);
  };
  const tensors = {};
  for (const name of Object.keys(entries)) {
    if (name.endsWith(SCALE)) continue;
    const small = stored(name);
    tensors[name] = `${name}${SCALE}` in entries ? scaled(small, stored(name + SCALE)) : small;
  }
  return { ...JSON.parse(words), tensors };
}

/** scale · n of every row, rounded to float32 as torch rounds it. */
function scaled(small, scales) {
  const columns = small.length / scales.length;
  const found = new Float32Array(small.length);
  scales.forEach((scale, row) => {
    for (let i = row * columns; i < (row + 1) * columns; i++) found[i] = small[i] * scale;
  });
  return found;
}

/**
 * Load a packed model with a script element: that works over file://, where fetch does
 * not. Many widgets on a page ask once.
 */
export function loadPacked(name, address) {
  const asked = (window.mhaAsked ??= new Map());
  if (!asked.has(address)) {
    asked.set(address, new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = () => {
        asked.delete(address); // another touch may try again
        script.remove();
        reject(new Error(`the file with its numbers could not be loaded: ${address}`));
      };
      document.head.append(script);
    }));
  }
  return asked.get(address).then(() => {
    const text = window.mhaPacked?.[name];
    need(text, `the file ${address} does not hold the model ${name}.`);
    return text;
  });
}
