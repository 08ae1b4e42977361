/** The guided tour: one step per idea and notebook. Each asks a question that is answered by doing something on the page. */
import { percent, tokenName } from "./stages.js";
import { forward } from "./vit.js";

const atMost = (numbers) => numbers.indexOf(Math.max(...numbers));
const inkOf = (patch) => patch.reduce((sum, value) => sum + value, 0);
const offHeads = ({ vit }) =>
  (vit.switches.heads ?? []).flatMap((row, l) => row.flatMap((on, h) => (on ? [] : [{ l, h }])));

/** What the model would answer with some switches set differently */
function answerWith({ model, vit, state }, changes) {
  return forward(model, state.pixels, { ...vit.switches, ...changes });
}

/** "a 3 with 94%" */
function named({ digit, confidence }, { vit }) {
  const name = vit.config.class_names[digit];
  return `${name === "8" ? "an" : "a"} ${name} with ${percent(confidence)}`;
}

/**
 * notebook: its name; at: a selector of what it is about; text, task: strings, or functions of the page
 * enter(page): prepares the page; choices(page): [label, whether it is right, what to say]
 * check(page, memory): {done: why the answer is right}, {hint: what is still missing}, or nothing
 */
const STEPS = [
  {
    notebook: "00_start_here", at: "#draw-title", title: "From ink to answer",
    text: "A Vision Transformer turns an image into ten probabilities, one per digit. This page shows everything that " +
      "happens in between, from top to bottom.",
    task: "Can it read your handwriting? Draw any digit so that the model is at least 90% sure.",
    check(page) {
      const { state } = page;
      if (state.source !== "hand" || !state.still || state.empty) return null;
      if (state.seen.confidence < 0.9) return { hint: `So far it reads ${named(state.seen, page)}. Go on, or clear and ` +
        "try again." };
      return { done: `It reads ${named(state.seen, page)}. If you drew something else, you have found one of its ` +
        "mistakes, because a model can be sure and still be wrong." };
    },
  },
  {
    notebook: "01_patches", at: "#patches-figure", title: "Patches",
    text: "The model reads the image as 16 patches. To the model, each of them is just a list of 16 numbers.",
    task: "Which patch contains the most ink? Click it or tap it, or select its token in step 3.",
    enter(page) {
      const inks = page.state.seen.patches.map(inkOf);
      page.state.patch = inks.indexOf(Math.min(...inks)); // so that the frame does not give the answer away
      page.pick(0);
    },
    check({ state: { token, seen } }) {
      const inks = seen.patches.map(inkOf);
      if (!token) return null;
      if (inks[token - 1] < Math.max(...inks) - 1e-6) {
        return { hint: `The numbers of patch ${token} sum to ${inks[token - 1].toFixed(1)}. There is a patch with more.` };
      }
      return { done: `Its 16 numbers sum to ${inks[token - 1].toFixed(1)}, more than in any other patch. The model does ` +
        "not know that they form a square, or which pixels were neighbors. It has to learn all of that." };
    },
  },
  {
    notebook: "02_embeddings", at: "#bug-list", title: "Positions",
    text: "The position embeddings are all that the model knows about where a patch was. Let's take them away.",
    task: "Turn on “No position embeddings” and remember the answer. Then turn on “Shuffled patches” as well. Does the " +
      "answer change now?",
    enter: (page) => page.restore(),
    check(page) {
      const { positions, shufflePatches } = page.vit.switches, here = named(page.state.seen, page);
      if (positions && shufflePatches) return { hint: `Shuffled, it reads ${here}. Now take the position embeddings away ` +
        "too." };
      if (positions) return null;
      if (!shufflePatches) return { hint: `Without positions it reads ${here}. Now shuffle the patches as well.` };
      return { done: `No, it still reads ${here}. Without position embeddings, self-attention treats the tokens as a set: ` +
        "if the patches change places, so do their tokens, and the class token gets the same weighted average. This " +
        "property is called permutation equivariance." };
    },
  },
  {
    notebook: "03_attention", at: "#head-figure", title: "Attention",
    text: "Each token distributes its attention over all tokens. The weights depend on its query, so each token attends " +
      "to something else. Some spread their weight evenly and others concentrate it.",
    task: (page) => `In head 1 of block 1, find a patch's token that puts at least ${huntFor(page)}% of its attention on ` +
      "a single token. Choose one token after another above the table, or point at them in step 3.",
    enter(page) {
      page.pick(0);
      page.choose(0, 0);
    },
    check(page) {
      const { token, block, head, seen } = page.state;
      if (block || head) return { hint: "This is another head. Choose block 1 and head 1 again." };
      if (!token) return null;
      const weights = Array.from(seen.attention[0][0][token]), most = atMost(weights);
      const whom = most === token ? "itself" : tokenName(most);
      if (weights[most] * 100 < huntFor(page)) {
        return { hint: `The largest weight of token ${token} is ${percent(weights[most])}, on ${whom}. Find one that has ` +
          "a larger one." };
      }
      return { done: `Token ${token} puts ${percent(weights[most])} on ${whom}, because among all keys, that one ` +
        "fits its query best. Of all values, its own has the largest share in the output " +
        (most === token ? "of this token." : `of token ${token}.`) };
    },
  },
  {
    notebook: "04_encoder", at: "#block-list", title: "Heads and the residual stream",
    text: "Every head adds something to the residual stream. If a head is off, the stream simply continues without its " +
      "contribution.",
    task: "How many heads can you switch off before the answer changes, or before its probability falls by 20 points?",
    enter: (page) => page.restore(),
    check(page) {
      const off = offHeads(page).length, count = `${off} ${off === 1 ? "head" : "heads"}`;
      if (!off || page.state.empty) return null;
      const before = answerWith(page, { heads: null }), now = page.state.seen, left = now.probabilities[before.digit];
      if (now.digit === before.digit && left > before.confidence - 0.2) {
        return { hint: `With ${count} off it reads ${named(now, page)}. Switch off another one.` };
      }
      return { done: `With ${count} off, the model reads ${named(now, page)} instead of ${named(before, page)}. It often ` +
        "survives the loss of a few heads, because the residual connections carry everything else past the gap, and because " +
        "other heads do similar work." };
    },
  },
  {
    notebook: "05_vit", at: "#lens", title: "The whole model",
    text: "The classification head reads the class token after the last block. The table shows what it would read earlier.",
    task: "From which point on is the final answer in the lead, and stays there?",
    enter: (page) => page.restore(),
    choices(page) {
      const { lens, digit } = page.state.seen, leaders = lens.map((parts) => atMost(Array.from(parts)));
      const lead = leaders.findLastIndex((leader) => leader !== digit) + 1, names = page.vit.config.class_names;
      const when = (l) => (l ? `after block ${l}` : "before block 1");
      return lens.map((parts, l) => [when(l), l === lead, l === lead
        ? (l ? `Yes, from there on it is the most likely digit, with ${percent(parts[digit])} ${when(l)}. ` : "Yes, but only by " +
          "chance. ") + "Before block 1 nothing can be known yet, because the class token is then the same for every image."
        : leaders[l] !== digit ? `No, ${when(l)} the most likely digit is ${names[leaders[l]]}.`
          : `It is in the lead there, but ${l > lead ? "it was already before" : "loses it again"}.`]);
    },
  },
  {
    notebook: "06_data", at: "#draw-title", title: "Data",
    text: "A model can be trusted only with data like its training data. That is why the page prepares your drawing " +
      "exactly as the training digits were prepared.",
    task: "Clear, and draw a digit that is smaller than a third of the drawing area. Does it reach the model smaller, too?",
    check({ state }) {
      if (state.source !== "hand" || !state.still || state.empty) return null;
      const size = Math.max(state.box.bottom - state.box.top, state.box.right - state.box.left) / state.box.of;
      if (size >= 1 / 3) return { hint: `This one is ${percent(size)} as large as the drawing area. Clear, and draw a ` +
        "smaller one." };
      return { done: `Your drawing is ${percent(size)} as large as the drawing area, but its ink reaches from edge to edge of ` +
        "the 16 × 16 pixels along its longer side, because the page crops it to the ink. Only the stroke looks thicker." };
    },
  },
  {
    notebook: "07_training", at: "#bug-untrained", title: "Training",
    text: "All that this model knows is in its weights, and training has put it there. Before training, the weights are " +
      "random, and those of the classification head are zero.",
    task: "What does the model answer before any training? Turn on “Untrained weights”.",
    enter: (page) => page.restore(),
    check: ({ vit }) => vit.switches.untrained && {
      done: "Every digit gets exactly 10%, so the loss of any image (the error that training reduces) is −ln 0.1 = 2.30. " +
        "If the first loss of your own training with ten classes is far from 2.3, look for a bug before you go on.",
    },
  },
  {
    notebook: "08_inspection", at: ".block:last-child", title: "What attention maps show",
    text: "A map with one large square looks like an explanation. But does the answer depend on it?",
    task: ({ vit }) => `In block ${vit.config.depth}, find the head in which the class token has the largest single ` +
      "square, and switch it off.",
    enter(page) {
      page.restore();
      page.pick(0);
    },
    check(page) {
      const rows = page.state.seen.attention.at(-1).map((head) => Math.max(...head[0])), wanted = atMost(rows);
      const off = offHeads(page).filter(({ l }) => l === page.vit.config.depth - 1);
      if (!off.length || page.state.empty) return null;
      if (offHeads(page).length > 1) return { hint: "More than one head is off. Switch the others on again." };
      if (!off.some(({ h }) => h === wanted)) {
        return { hint: `The largest weight in this head is ${percent(rows[off[0].h])}. Another head of the block has a ` +
          "larger one." };
      }
      const before = answerWith(page, { heads: null }), after = page.state.seen.probabilities[before.digit];
      const fell = before.confidence - after;
      return { done: `Its largest weight is ${percent(rows[wanted])}. Without this head, the probability of the answer ` +
        `goes from ${percent(before.confidence)} to ${percent(after)}. ` + (fell > 0.05
        ? "Here the answer does depend on it, but only switching it off could show that. "
        : "The answer hardly depends on it, however striking the map is. ") +
        "A map shows where information comes from, and not what it is used for." };
    },
  },
  {
    notebook: "09_pretrained", at: "#bug-bareReshape", title: "Pretrained weights",
    text: "Weights from a file fit into any code with the same shapes, even if the code does something else with them.",
    task: "What happens to these weights in a model that cuts the image with a bare reshape? Try it.",
    enter: (page) => page.restore(),
    check(page) {
      if (!page.vit.switches.bareReshape) return null;
      const before = answerWith(page, { bareReshape: false });
      return { done: `All weights fit and no error appears, but the answer goes from ${named(before, page)} to ` +
        `${named(page.state.seen, page)}. So after loading weights, compare the logits of a few images with known ones.` };
    },
  },
  {
    notebook: "10_hyperparameters", at: "#block-list", title: "Is a difference real?",
    text: "Would a smaller model do? To find out, we could leave something out and count how many digits it still reads.",
    task: "Switch off one head or several, then look at three different samples. Is the smaller model good enough?",
    enter: (page) => page.restore(),
    check(page, memory) {
      const { state } = page;
      if (!offHeads(page).length) return null;
      const which = JSON.stringify(offHeads(page)); // another choice of heads is another model
      if (memory.which !== which) Object.assign(memory, { which, read: new Map() });
      if (state.source === "sample" && state.still && state.sample < 10) memory.read.set(state.sample, state.seen.digit);
      const right = [...memory.read].filter(([sample, digit]) => sample === digit).length;
      if (memory.read.size < 3) return { hint: `Samples read: ${memory.read.size} of 3, ${right} of them correctly.` };
      return { done: right < 2
        ? `It reads ${right} of 3 correctly, so it is clearly worse. How much worse, three images cannot say. Comparing ` +
          "two models takes hundreds of images, and more than one seed."
        : `It reads ${right} of 3 correctly, and we still do not know. Even with 3 of 3, a true accuracy of only 37% would ` +
          "not be ruled out, because 0.37³ is 5%. Comparing two models takes hundreds of images, and more than one seed." };
    },
  },
  {
    notebook: "11_scaling", at: "#head-figure", title: "What attention costs",
    text: ({ vit: { config: c } }) => `Every head computes one weight for each pair of tokens. With ${c.num_tokens} ` +
      `tokens that is a table of ${c.num_tokens} × ${c.num_tokens} = ${c.num_tokens ** 2} weights.`,
    task: ({ vit: { config: c } }) => `How many weights would it be for an image with ${2 * c.image_size} × ` +
      `${2 * c.image_size} ` +
      "pixels, cut into patches of the same size?",
    choices({ vit: { config: c } }) {
      const now = c.num_tokens, then = 4 * c.num_patches + 1, times = (then ** 2 / now ** 2).toFixed(0);
      const number = (n) => n.toLocaleString("en-US");
      return [
        [number(2 * now ** 2), false, "That would be twice as many. But the image has four times as many patches."],
        [number(4 * now ** 2), false, "Four times as many patches is right. But every one of them attends to all of them."],
        [number(then ** 2), true, `Yes, ${then} × ${then}. Twice the side means four times the patches, and nearly ` +
          `sixteen times the weights (${times} times, because there is still only one class token).`],
      ];
    },
  },
];

/** The bar for step 3, in percent: three of the patches' tokens reach it */
function huntFor({ state }) {
  const most = state.seen.attention[0][0].slice(1).map((weights) => Math.max(...weights)).sort((a, b) => b - a);
  return Math.floor(most[2] * 100);
}

/**
 * @param {object} page what a step may read and do: state, vit, model, pick(token), choose(block, head), restore(),
 *   drawSample(digit)
 * @returns {{start: function(): void, check: function(): void}} check: look whether the visitor has just answered
 */
export function makeTour(page) {
  const part = (name) => document.getElementById(`tour-${name}`), panel = document.getElementById("tour");
  let now = -1, solved = false, memory = {};

  function show(n) {
    document.querySelector(".in-focus")?.classList.remove("in-focus");
    if (n >= STEPS.length || n < 0) return close();
    const step = STEPS[n];
    [now, solved, memory] = [n, false, {}];
    if (page.state.empty) page.drawSample(3);
    step.enter?.(page);
    panel.hidden = false;
    document.body.classList.add("touring");
    const link = document.querySelector(`[data-notebook="${step.notebook}"]`).cloneNode(true);
    part("count").textContent = `${n + 1} of ${STEPS.length}`;
    part("notebook").replaceChildren("· Notebook ", link);
    part("title").textContent = step.title;
    part("back").disabled = n === 0;
    part("next").textContent = n === STEPS.length - 1 ? "Finish" : "Skip";
    part("next").classList.remove("primary");
    panel.classList.remove("solved");
    say("");
    fill();
    showChoices(step);
    const target = document.querySelector(step.at), place = target.closest(".bug") ?? target;
    (place.closest("section") ?? place).classList.add("in-focus");
    leaveRoom();
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    place.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    part("title").focus({ preventScroll: true });
    check();
  }

  /** The texts, which may contain numbers of the drawing */
  function fill() {
    for (const name of ["text", "task"]) {
      const text = STEPS[now][name], filled = typeof text === "function" ? text(page) : text;
      if (part(name).textContent !== filled) part(name).textContent = filled;
    }
  }

  function showChoices(step) {
    part("choices").replaceChildren(...(step.choices?.(page) ?? []).map(([label], i) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: label });
      button.onclick = () => { // asked again, because the drawing may have changed since
        const [, right, why] = step.choices(page)[i];
        if (right) solve(why);
        else say(why);
        for (const one of part("choices").children) one.disabled = right;
        if (right) part("next").focus();
      };
      return button;
    }));
  }

  function say(text) {
    if (part("state").textContent !== text) part("state").textContent = text;
  }

  function solve(why) {
    solved = true;
    panel.classList.add("solved");
    say(why);
    part("next").textContent = now === STEPS.length - 1 ? "Finish" : "Next";
    part("next").classList.add("primary");
    leaveRoom();
  }

  function check() {
    if (now < 0 || solved || !page.state.seen) return;
    fill();
    const found = STEPS[now].check?.(page, memory);
    if (found?.done) solve(found.done);
    else if (!STEPS[now].choices) say(found?.hint ?? "");
  }

  function close() {
    now = -1;
    panel.hidden = true;
    document.body.classList.remove("touring");
    document.querySelector(".in-focus")?.classList.remove("in-focus");
    page.restore();
    document.getElementById("start-tour").focus();
  }

  /** The panel lies over the end of the page, which is made longer by as much. */
  function leaveRoom() {
    document.documentElement.style.setProperty("--dock", panel.hidden ? "0px" : `${panel.offsetHeight}px`);
  }

  new ResizeObserver(leaveRoom).observe(panel);
  part("back").onclick = () => show(now - 1);
  part("next").onclick = () => show(now + 1);
  part("close").onclick = close;
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    close();
  });
  return { start: () => show(0), check };
}
