/** The example draws itself once when the page opens, until the reader does anything. */

const MILLISECONDS = 3000; // about as long as a hand takes for a digit
const LONGEST = 100; // milliseconds that a frame may count as, so that a slow computer shows each piece, too
const TAKES = ["pointerdown", "keydown", "click"]; // a screen reader's click comes without the other two

/**
 * The part of a drawing that is there after a pen has gone some of the way.
 * @param {number[][][]} strokes lists of points [x, y]
 * @param {number} part from 0, the first point alone, to 1, all of them
 */
export function strokesUntil(strokes, part) {
  if (part >= 1) return strokes;
  const steps = strokes.map((stroke) => stroke.slice(1).map(([x, y], i) => Math.hypot(x - stroke[i][0], y - stroke[i][1])));
  let left = part * steps.flat().reduce((sum, length) => sum + length, 0);
  const drawn = [];
  for (const [s, stroke] of strokes.entries()) {
    const points = [stroke[0]];
    drawn.push(points);
    for (const [i, length] of steps[s].entries()) {
      if (left < length) {
        const [from, to] = [stroke[i], stroke[i + 1]];
        if (left > 0) points.push(from.map((z, axis) => z + ((to[axis] - z) * left) / length));
        return drawn;
      }
      points.push(stroke[i + 1]);
      left -= length;
    }
  }
  return drawn;
}

/**
 * @param {object} pen from `makePen`
 * @param {number[][][]} strokes the example
 * @param {function(): void} read reads what is drawn, at once
 * @param {boolean} calm no motion: the example is there at once
 * @returns {{start: function(): void, stop: function(): void}} stop: the whole example, now, if it is still being drawn
 */
export function makeDemo({ pen, strokes, read, calm }) {
  let frame = 0, before = null, time = 0, running = false;

  function start() {
    if (calm) return pen.show(strokes, { example: true });
    running = true;
    for (const take of TAKES) addEventListener(take, stop, true); // before the pen, the tour or a button hears of it
    pen.show(strokesUntil(strokes, 0), { example: true });
    frame = requestAnimationFrame(draw);
  }

  function draw(now) {
    time += Math.min(LONGEST, now - (before ?? now)) / MILLISECONDS;
    before = now;
    if (time >= 1) return end();
    const part = time - Math.sin(2 * Math.PI * time) / (4 * Math.PI); // slower where it starts and where it ends
    pen.show(strokesUntil(strokes, part), { example: true });
    frame = requestAnimationFrame(draw);
  }

  function end() {
    running = false;
    cancelAnimationFrame(frame);
    for (const take of TAKES) removeEventListener(take, stop, true);
    pen.show(strokes, { example: true });
  }

  function stop() {
    if (!running) return;
    end();
    read();
  }

  return { start, stop };
}
