// The numbers of the six programs, step by step: each with its mistake beside the right one.
import { range, shapeOf } from "./arithmetic.js";
import { programOf } from "./break_it_code.js";
import { WRONG } from "./break_it_mistakes.js";
import { inOrder, stepsOf } from "./break_it_run.js";
import { elements, tensor } from "./tensor.js";
import { STYLES } from "./versions_styles.js";

export const NAMES = Object.keys(STYLES);
const EQUAL = 1e-9; // far above rounding in float64, far below any mistake
const GIVEN = ["inputs", "matrices", "biases", "lengths", "num_heads"];

const tensorOf = (nested) => tensor(nested.flat(Infinity), shapeOf(nested));

function sizesOf({ inputs, num_heads: H }) {
  const [B, T, E] = shapeOf(inputs[0]);
  return { B, T, S: T, H, D: E / H, b: B, t: T, s: T, h: H, d: E / H, e: E };
}

/**
 * What computes the six, each once for each mistake that it had. `follow(mistakeOf)` gives
 * a list of {mistake, right, here, differs: {step: how much}, first}; `sizes()` their axes;
 * `prepare(style, mistake)` computes one before it is asked for.
 */
export function sixPrograms(ui) {
  let data = null;
  let sizes = null;
  let programs = [];
  const made = new Map();
  const run = (style, mistake) => {
    const three = ui.get("three");
    const key = `${style} ${mistake} ${three}`;
    if (!made.has(key)) {
      const inputs = data.inputs.map(tensorOf);
      const p = {
        ...sizes, lengths: data.lengths,
        inputs: three ? inputs : inputs.map(() => inputs[0]),
        matrices: data.matrices.map(tensorOf), biases: data.biases.map(tensorOf),
      };
      const steps = stepsOf(style, WRONG[mistake], p);
      made.set(key, {
        code: programOf(style, WRONG[mistake], three),
        steps: Object.fromEntries(Object.entries(steps).map(([name, { order, axes, parts }]) => [name, {
          order,
          parts: Object.entries(parts).map(([part, x]) => ({
            part, shape: shapeText(style, axes, x.shape), cells: elements(inOrder(x, order, axes, sizes)),
          })),
        }])),
      });
    }
    return made.get(key);
  };
  return {
    sizes: () => sizes,
    prepare: run,
    follow(mistakeOf) {
      if (!data || GIVEN.some((trait) => ui.get(trait) !== data[trait])) {
        data = Object.fromEntries(GIVEN.map((trait) => [trait, ui.get(trait)]));
        sizes = sizesOf(data);
        made.clear();
      }
      programs = NAMES.map((style, i) => {
        const mistake = mistakeOf(i);
        const old = programs[i];
        if (old && old.mistake === mistake && old.three === ui.get("three") && old.data === data) return old;
        return compared(style, mistake, run(style, ""), run(style, mistake), { three: ui.get("three"), data });
      });
      return programs;
    },
  };
}

function shapeText(style, axes, shape) {
  const list = style === "PerHeadMHA" && axes.startsWith("h ");
  return list ? `${shape[0]} × (${shape.slice(1).join(",")})` : `(${shape.join(",")})`;
}

/** The largest difference of `count` numbers from `start` on, and where it is. */
export function worst(here, right, start, count) {
  let [most, at] = [0, 0];
  for (let i = 0; i < count; i++) {
    const [a, b] = [here[start + i], right[start + i]];
    const apart = a === b ? 0 : Number.isFinite(a - b) ? Math.abs(a - b) : Number.MAX_VALUE;
    if (apart > most) [most, at] = [apart, i];
  }
  return { most, at };
}

/** A program beside the right one: how far each step is off, 0 where it is equal. */
function compared(style, mistake, right, here, rest) {
  const differs = Object.fromEntries(Object.entries(here.steps).map(([step, { parts }]) => {
    const apart = parts.map(({ cells }, p) => {
      const wanted = right.steps[step].parts[p].cells;
      const size = wanted.reduce((m, x) => (Math.abs(x) < 1e300 ? Math.max(m, Math.abs(x)) : m), 1e-9);
      const { most } = worst(cells, wanted, 0, cells.length);
      return most > EQUAL * size ? most : 0;
    });
    return [step, Math.max(...apart)];
  }));
  const first = Object.keys(differs).find((step) => differs[step]) ?? "";
  return { style, mistake, right, here, differs, first, ...rest };
}
