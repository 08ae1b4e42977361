/** The model as `window.vit`, for the console of the browser and for tests: read a drawing, set the switches. */
import { reduceInk, say } from "./ink.js";
import { forward, SWITCHES } from "./vit.js";

/**
 * @param {{config: object, weights: object}} model from `makeVit`
 * @returns {{config: object, switches: object, read: Function, forward: Function, set: Function, onSet: Function}}
 */
export function makeApi(model) {
  const listeners = [];
  let switches = { ...SWITCHES };
  return {
    config: model.config,

    /** The switches in use */
    get switches() {
      return structuredClone(switches);
    },

    /**
     * Read a drawing of any size.
     * @param {ArrayLike<number>} ink width * height numbers from 0 (paper) to 1 (ink), row by row
     * @returns {object} digit, confidence, probabilities [K], logits [K], attention [block][head][query][key],
     *   tokens [block][token][feature] (before the first block and after each), pixels [H * W]: plain arrays
     */
    read(ink, width, height) {
      const pixels = reduceInk(ink, width, height, model.config.image_size);
      const { digit, confidence, probabilities, logits, attention, tokens } = forward(model, pixels, switches);
      return plain({ digit, confidence, probabilities, logits, attention, tokens, pixels });
    },

    /** Everything that `forward` in vit.js computes from H * W pixels, as plain arrays */
    forward(pixels) {
      return plain(forward(model, pixels, switches));
    },

    /** Change some switches, as in set({positions: false}); the others stay as they are. @returns {object} all of them */
    set(changes) {
      checkSwitches(changes, model.config);
      switches = { ...switches, ...structuredClone(changes) };
      for (const listener of listeners) listener(structuredClone(switches));
      return structuredClone(switches);
    },

    /** Call listener(switches) whenever a switch changes */
    onSet(listener) {
      listeners.push(listener);
    },
  };
}

/** Throw a TypeError for a switch that does not exist, or for a value that it cannot have. */
function checkSwitches(changes, { depth, num_heads }) {
  if (changes === null || typeof changes !== "object" || Array.isArray(changes)) {
    throw new TypeError("switches are an object, as in set({positions: false})");
  }
  const isArray = (value, length) => Array.isArray(value) && value.length === length;
  const isRow = (row) => isArray(row, num_heads) && Array.from(row).every((on) => typeof on === "boolean");
  for (const [name, value] of Object.entries(changes)) {
    if (!Object.hasOwn(SWITCHES, name)) {
      throw new TypeError(`no switch is called ${name}; there are ${Object.keys(SWITCHES).join(", ")}`);
    }
    if (name === "heads" && value !== null && !(isArray(value, depth) && Array.from(value).every(isRow))) {
      throw new TypeError(`heads must be null, or ${depth} arrays of ${num_heads} booleans`);
    }
    if (name === "softmaxAxis" && value !== "keys" && value !== "queries") {
      throw new TypeError(`softmaxAxis must be "keys" or "queries", got ${say(value)}`);
    }
    if (typeof SWITCHES[name] === "boolean" && typeof value !== "boolean") {
      throw new TypeError(`${name} must be true or false, got ${say(value)}`);
    }
  }
}

/** Arrays instead of typed arrays, all the way down, as JSON and tests need them */
function plain(value) {
  if (ArrayBuffer.isView(value)) return Array.from(value);
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, inside]) => [name, plain(inside)]));
}
