/** What the tour says of an answer: computed from what the model read before and after, so that it agrees with both. */
import { percent } from "./stages.js";

const HARDLY = 0.05; // a probability that changes by less has hardly changed
export const FELL = 0.2; // how far it must fall to count as the end of an answer

/** What the model reads: {name, confidence}. seen: of a forward pass */
export function readingOf({ digit, confidence }, names) {
  return { name: names[digit], confidence };
}

const article = (name) => (name === "8" ? "an" : "a");

/** "a 3 with 94%" */
export function readAs({ name, confidence }) {
  return `${article(name)} ${name} with ${percent(confidence)}`;
}

const headCount = (count) => `${count} ${count === 1 ? "head" : "heads"}`;

/** Whether the answer survives.  left: the probability after the change of what was read before */
export function survives(before, now, left) {
  return now.name === before.name && left > before.confidence - FELL;
}

/** count: how many heads are off; survived: how many of them the answer survived before, or 0 */
export function praiseHeads(before, now, count, survived) {
  const end = now.name === before.name
    ? `it still reads ${article(now.name)} ${now.name}, but with ${percent(now.confidence)} instead of ` +
      `${percent(before.confidence)}`
    : `the model reads ${readAs(now)} instead of ${readAs(before)}`;
  return `With ${headCount(count)} off, ${end}. ` + (survived
    ? `It survived the loss of ${headCount(survived)}, because the residual connections carry everything else past the gap, ` +
      "and perhaps because other heads do similar work."
    : `For this drawing, the answer depends on ${count === 1 ? "this head" : "these heads"}. The residual connections carry ` +
      "everything else past the gap, but that was not enough.");
}

/** weight: the largest of the head that is off; left: the probability without it of what was read before */
export function praiseMap(before, now, left, weight) {
  const fell = before.confidence - left, changed = now.name !== before.name;
  const lesson = changed || fell > HARDLY ? "Here the answer does depend on it, but only switching it off could show that. "
    : fell < -HARDLY ? "The model is even surer without it, however striking the map is. "
      : "The answer hardly depends on it, however striking the map is. ";
  return `Its largest weight is ${percent(weight)}. Without this head, the probability of the ${before.name} goes from ` +
    `${percent(before.confidence)} to ${percent(left)}` + (changed ? `, and the model reads ${readAs(now)}. ` : ". ") +
    lesson + "A map shows where information comes from, and not what it is used for.";
}

/** A bug that raises no error */
export function praiseReshape(before, now) {
  const advice = "after loading weights, compare the logits of a few images with known ones.";
  if (now.name !== before.name) {
    return `All weights fit and no error appears, but the answer goes from ${readAs(before)} to ${readAs(now)}. So ${advice}`;
  }
  const moved = Math.abs(now.confidence - before.confidence) > HARDLY;
  return `All weights fit, no error appears, and for this drawing the model still reads ${article(now.name)} ${now.name}, ` +
    (moved ? `although with ${percent(now.confidence)} instead of ${percent(before.confidence)}. `
      : `with ${percent(now.confidence)}, nearly as surely as before. `) + `One answer does not show the bug, so ${advice}`;
}

/** right, whole: how many of the images are read correctly, by the smaller and by the whole model */
export function praiseSamples(right, whole, images) {
  const compared = right === whole ? "as many as" : right > whole ? "more than" : "fewer than";
  const read = `It reads ${right} of ${images} correctly, ${compared} with all heads on` +
    (right === whole ? "" : ` (${whole} of ${images})`);
  const advice = "Comparing two models takes hundreds of images, and more than one seed.";
  if (whole - right > 1) return `${read}. So it is worse, but how much worse, ${images} images cannot say. ${advice}`;
  const chance = right === images && images === 3
    ? "Even with 3 of 3, a true accuracy of only 37% would not be ruled out, because 0.37³ is 5%. " : "";
  return `${read}, and we still do not know. ${chance}${advice}`;
}

/** size: of the drawing, as a part of the drawing area's side */
export function praiseSmall(size, now) {
  return `No. Your drawing is ${percent(size)} as large as the drawing area, but its ink reaches from edge to edge of the ` +
    "16 × 16 pixels along its longer side, because the page crops it to the ink. The pen became finer with it, as in the " +
    `training digits. The model reads ${readAs(now)}.`;
}
