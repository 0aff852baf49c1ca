/* The scene: what the stage shows after a step, as boxes, texts and lines. */

const CELL = 19, LEFT = 64, BINS = 16, WIDE = LEFT + LANES * CELL + 8;

class Scene {
  constructor(window) {
    this.items = [];
    this.y = 4;
    this.window = window; // the elements over which colours spread
  }
  box(x, y, width, height, fill, more = {}) {
    this.items.push({ shape: "box", x, y, width, height, fill, ...more });
  }
  text(x, y, text, more = {}) {
    this.items.push({ shape: "text", x, y, text: String(text), size: 10, fill: "ink", ...more });
  }
  line(x1, y1, x2, y2, stroke, more = {}) {
    this.items.push({ shape: "line", x1, y1, x2, y2, stroke, ...more });
  }
  heading(text, remark = "") {
    this.y += 14;
    this.box(0, this.y - 11, text.length * 8, 14, "paper"); // over arrows
    this.text(0, this.y, text, { size: 12, bold: true });
    this.box(WIDE - 8 - remark.length * 6, this.y - 11, remark.length * 6, 14, "paper");
    this.text(WIDE - 8, this.y, remark, { fill: "faint", anchor: "end" });
    this.y += 6;
  }
  /* A value in a cell: its colour says where its elements lie in the input, the small bars at the
   * bottom say which stretches of the input are in it. */
  value(x, y, width, height, held, more = {}) {
    const part = held && held.part;
    if (held && more.title) more.held = { ...held, name: more.title };
    const fill = !held ? "empty" : !part ? "unknown" : part.count ? part.hue(this.window) : "empty";
    this.box(x, y, width - 1, height - 1, fill, more);
    if (part && part.count && height >= 12) {
      const bins = part.bins(BINS, this.window), twice = part.bins(BINS, this.window, part.repeated);
      const each = (width - 1) / BINS;
      bins.forEach((share, i) => {
        if (share > 0)
          this.box(x + i * each, y + height - 4, each, 3, twice[i] > 0 ? "write" : "ink", { alpha: 0.35 + 0.65 * share });
      });
    }
    const text = held ? shortened(held.value, width) : "";
    if (text && height >= 12) this.text(x + width / 2, y + height - 6, text, { size: text.length > 2 ? 7.6 : 8.5, anchor: "middle" });
  }
}

const BRIEF = Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });

function shortened(value, width) {
  const add = (a, b) => (typeof a === "number" && typeof b === "number" ? a + b : "");
  const one = Array.isArray(value) ? value.reduce(add, 0) : value;
  const fits = (text) => text.length * 5.6 < width - 1, forms = [];
  if (fits(String(one))) return String(one);
  if (typeof one === "number") {
    if (!Number.isInteger(one)) forms.push(one.toPrecision(3), one.toPrecision(2));
    forms.push(BRIEF.format(one).replace(/^(-?)0\./, "$1."));
  } else if (/^-?\d+$/.test(one)) forms.push(Number(one).toExponential(0)); // an integer beyond 2^53
  return forms.find(fits) || "";
}

/* The stage for the step that the model is at. `view` has the block and the warp that were chosen,
 * or null, and the value that was picked. */
function stage(model, view) {
  const step = model.step, block = view.block ?? step.block, all = [0, model.data.n - 1];
  const scene = new Scene(model.window(step.launch, block));
  const lanes = drawLanes(scene, model, block, view.warp);
  const shuffles = step.sources && step.kind !== "copy" && step.block === block;
  if (shuffles) drawShuffle(scene, step, lanes);
  scene.y += 38;
  const words = drawShared(scene, model, block);
  drawQueue(scene, step);
  if (step.owner) drawFar(scene, model, step, words);
  const sectors = drawSectors(scene, model, step);
  if (step.block === block) drawArrows(scene, model, step, lanes, new Map([...words, ...sectors]));
  drawInput(scene, model, step);
  scene.window = all;
  drawResults(scene, model);
  drawContents(scene, model, view.picked ?? firstValue(model, step));
  scene.height = scene.y + 8;
  return scene;
}

function firstValue(model, step) {
  if (!ACCESSES.includes(step.kind) && !step.results) return null;
  const held = model.registers.get(`${step.warpKey}.${step.lanes[0]}`);
  return held && { ...held, name: `lane ${step.lanes[0]} of warp ${step.warp}` };
}

function drawLanes(scene, model, block, only) {
  const launch = model.step.launch, [blocks, threads] = model.data.launches[launch];
  const warps = Math.ceil(threads / LANES), height = warps > 8 && only === null ? 10 : CELL;
  const places = new Map();
  const arcs = warps > 8 || !model.steps.some((one) => one.kind.startsWith("__shfl")) ? 0 : 13; // room for them
  scene.heading(`Lanes of block ${block}`, `launch ${launch + 1} of ${model.data.launches.length}${blocks > 1 ? `, ${blocks} blocks` : ""}`);
  for (let lane = 0; lane < LANES; lane += 4)
    scene.text(LEFT + (lane + 0.5) * CELL, scene.y + 6, lane, { size: 8, fill: "faint", anchor: "middle" });
  scene.y += 9;
  for (let warp = 0; warp < warps; warp++) {
    if (only !== null && only !== warp) continue;
    scene.text(LEFT - 6, scene.y + height - 4, `warp ${warp}`, { size: 9, fill: "faint", anchor: "end" });
    for (let lane = 0; lane < LANES && warp * LANES + lane < threads; lane++) {
      const x = LEFT + lane * CELL, y = scene.y;
      const held = model.registers.get(`${launch}.${block}.${warp}.${lane}`);
      const status = model.status(launch, block, warp, lane);
      const alpha = { runs: 1, off: 0.3, waits: 0.75, ended: 0.3, new: 0.6, ready: 0.75 }[status];
      const title = `lane ${lane} of warp ${warp}, ${STATUS[status]}`;
      const ring = { runs: "ink", waits: "barrier", off: "diverged" }[status];
      scene.value(x, y, CELL, height, status === "new" ? null : held,
        { alpha, ring, role: "lane", status, lane, warp, title });
      const ends = status === "ended" || (status === "runs" && model.step.kind === "end");
      if (ends) scene.line(x + 2, y + height - 3, x + CELL - 4, y + 2, "faint");
      places.set(`${warp}.${lane}`, { x: x + CELL / 2, y: y + height });
    }
    scene.y += height + (only === null ? 1 : 2) + arcs;
  }
  return places;
}

const STATUS = {
  runs: "executing", off: "masked off", waits: "waiting at a barrier", ended: "ended",
  new: "not yet started", ready: "ready",
};

/* The words of a block's shared memory that its launch uses, by bank. Returns their places. */
function drawShared(scene, model, block) {
  const launch = model.step.launch, places = new Map(), now = touched(model);
  const used = wordsOf(model, launch, block);
  if (!used.length) return places;
  const rows = [...new Set(used.map((word) => Math.floor(word.byte / 128)))].sort((a, b) => a - b);
  const shown = rowsToShow(rows, now, used), height = shown.length > 10 ? 12 : CELL;
  const hidden = (scene.hidden = rows.length - shown.length);
  scene.heading(`Shared memory of block ${block}`, hidden ? `${hidden} more rows of 32 banks` : "a column is a bank");
  for (const row of shown) {
    const inRow = used.filter((word) => Math.floor(word.byte / 128) === row);
    const first = inRow[0];
    scene.text(LEFT - 6, scene.y + height - 4, `${first.name}[${first.index}]`, { size: 8.5, fill: "faint", anchor: "end" });
    for (const word of inRow) {
      const x = LEFT + ((word.byte % 128) / 4) * CELL, width = Math.max((word.size / 4) * CELL, 4);
      const held = model.memory.get(word.key), kind = now.get(word.key);
      const title = `${word.name}[${word.index}], bank ${Math.floor((word.byte % 128) / 4)}`;
      scene.value(x, scene.y, width, height, held,
        { ring: kind && RINGS[kind], role: "word", name: title, title });
      places.set(word.key, { x: x + width / 2, y: scene.y, bottom: scene.y + height });
    }
    scene.y += height;
  }
  for (let bank = 0; bank < LANES; bank += 4)
    scene.text(LEFT + (bank + 0.5) * CELL, scene.y + 8, bank, { size: 8, fill: "faint", anchor: "middle" });
  scene.y += 11;
  return places;
}

/* Words of other blocks' shared memory, which a block of a cluster may access. */
function drawFar(scene, model, step, places) {
  scene.heading("Shared memory of other blocks", "of the same cluster");
  step.lanes.forEach((lane, i) => {
    const [word] = model.words(step, i), x = LEFT + lane * CELL;
    if (places.has(word.key)) return;
    const held = model.memory.get(word.key), title = `a word of block ${word.owner}`;
    scene.value(x, scene.y, CELL, CELL, held, { ring: RINGS[step.kind], role: "far", title });
    scene.text(x + CELL / 2, scene.y + CELL + 8, `b${word.owner}`, { size: 8, fill: "faint", anchor: "middle" });
    places.set(word.key, { x: x + CELL / 2, y: scene.y, bottom: scene.y + CELL });
  });
  scene.y += CELL + 12;
}

const RINGS = { load: "read", store: "write", atomic: "atomic", copy: "write" };
const MOST_ROWS = 16;

/* The rows near the words that the step accesses, if there are too many. */
function rowsToShow(rows, now, used) {
  if (rows.length <= MOST_ROWS) return rows;
  const word = used.find((one) => now.has(one.key));
  const at = word ? rows.indexOf(Math.floor(word.byte / 128)) : 0;
  const first = Math.min(Math.max(at - MOST_ROWS / 2, 0), rows.length - MOST_ROWS);
  return rows.slice(first, first + MOST_ROWS);
}

/* The words of the current step, with its kind. */
function touched(model) {
  return new Map(model.wordsOf(model.step).map((word) => [word.key, model.step.kind]));
}

/* The words of a block's shared memory that a launch uses; without a launch, those of arrays in
 * global memory that are written. Sorted by their places. */
function wordsOf(model, launch, block) {
  const name = `${launch}.${block}`;
  model.used ??= new Map();
  if (!model.used.has(name)) {
    const found = new Map();
    const writes = model.steps.filter((one) => one.kind === "store" || one.kind === "atomic");
    const written = new Set(writes.map((one) => model.data.arrays[one.array].base));
    for (const step of model.steps) {
      if (!ACCESSES.includes(step.kind)) continue;
      const array = model.data.arrays[step.array], isShared = array.space === "shared";
      if (isShared ? step.launch !== launch : launch !== undefined || !written.has(array.base)) continue;
      for (const word of model.wordsOf(step))
        if (word.element === null && (!isShared || word.owner === block) && !found.has(word.key))
          found.set(word.key, { ...word, name: array.name, index: Math.floor((word.byte - array.base) / array.element) });
    }
    model.used.set(name, [...found.values()].sort((a, b) => a.byte - b.byte));
  }
  return model.used.get(name);
}

/* A bank conflict, as the queue that it is: a row for each wavefront, with the lanes it serves. */
function drawQueue(scene, step) {
  if (!step.queue) return;
  const rows = step.queue.length;
  scene.heading(`${rows} wavefronts where ${rows - conflicts(step)} would do`, "a number is the lane that a bank serves");
  step.queue.forEach((row, number) => {
    if (number >= 8) return;
    scene.text(LEFT - 6, scene.y + 9, number + 1, { size: 8.5, fill: "faint", anchor: "end" });
    row.forEach((lane, bank) => {
      const late = number >= rows - conflicts(step);
      scene.box(LEFT + bank * CELL, scene.y, CELL - 1, 11, lane === null ? "empty" : late ? "write" : "read", { role: "queue" });
      if (lane !== null) scene.text(LEFT + (bank + 0.5) * CELL, scene.y + 9, lane, { size: 8, fill: "paper", anchor: "middle" });
    });
    scene.y += 12;
  });
  if (rows > 8) scene.text(LEFT, (scene.y += 10), `and ${rows - 8} more`, { fill: "faint" });
}

/* Global memory: the sectors of 32 bytes that the step fetches, and the words that it uses. */
function drawSectors(scene, model, step) {
  const places = new Map();
  if (!ACCESSES.includes(step.kind) || model.data.arrays[step.array].space !== "global") return places;
  const sectors = new Map(), array = model.data.arrays[step.array];
  for (const word of model.wordsOf(step)) {
    const number = Math.floor(word.byte / 32);
    if (!sectors.has(number)) sectors.set(number, []);
    sectors.get(number).push(word);
  }
  const queue = step.kind === "atomic" ? Math.max(...countBy(step.offsets).values()) : 0;
  scene.heading(`Global memory: ${sectors.size} sector${sectors.size > 1 ? "s" : ""} of 32 bytes`,
    queue > 1 ? `${queue} lanes queue at one address` : `of ${array.name}`);
  const each = 8 * CELL;
  [...sectors.keys()].sort((a, b) => a - b).slice(0, 32).forEach((number, i) => {
    const x = LEFT + (i % 4) * each, y = scene.y + Math.floor(i / 4) * 16;
    scene.box(x, y, each - 3, 14, "empty", { ring: "line", role: "sector", title: `sector ${number}` });
    for (const word of sectors.get(number)) {
      if (places.has(word.key)) continue;
      const at = x + ((word.byte % 32) / 4) * (CELL - 0.3), width = Math.max((word.size / 4) * (CELL - 0.3), 3);
      const held = model.memory.get(word.key);
      const title = `${array.name}[${Math.floor((word.byte - array.base) / array.element)}]`;
      scene.value(at, y, width, 15, held, { ring: RINGS[step.kind], role: "used", title });
      places.set(word.key, { x: at + width / 2, y, bottom: y + 14 });
    }
  });
  scene.y += Math.ceil(Math.min(sectors.size, 32) / 4) * 16 + 2;
  return places;
}

function countBy(values) {
  const counts = new Map();
  values.forEach((value) => counts.set(value, (counts.get(value) || 0) + 1));
  return counts;
}

/* Arrows between the lanes of a step and the words that they read or write. */
function drawArrows(scene, model, step, lanes, words) {
  if (!ACCESSES.includes(step.kind)) return;
  step.lanes.forEach((lane, i) => {
    const from = lanes.get(`${step.warp}.${lane}`);
    if (!from) return;
    const own = model.words(step, i), first = words.get(own[0].key), last = words.get(own[own.length - 1].key);
    if (!first || !last) return;
    const to = { x: first.y === last.y ? (first.x + last.x) / 2 : first.x, y: first.y };
    const ends = step.kind === "load" ? [to.x, to.y, from.x, from.y] : [from.x, from.y, to.x, to.y];
    scene.line(...ends, RINGS[step.kind], { shape: "arrow", alpha: 0.7, role: "arrow", lane, word: own[0].key });
  });
}

function drawShuffle(scene, step, lanes) {
  const apart = step.lanes.map((lane, i) => step.sources[i] - lane).filter((distance) => distance), first = lanes.get(`${step.warp}.0`);
  if (first && apart.length && apart.every((distance) => distance === apart[0]))
    scene.text(4, first.y + 12, `from lane ${apart[0] < 0 ? "-" : "+"} ${Math.abs(apart[0])}`, { size: 9, fill: "faint" });
  step.lanes.forEach((lane, i) => {
    const from = lanes.get(`${step.warp}.${step.sources[i]}`), to = lanes.get(`${step.warp}.${lane}`);
    if (from && to && from !== to)
      scene.line(from.x, from.y, to.x, to.y, step.lanes.includes(step.sources[i]) ? "read" : "write", { shape: "arrow", bend: 24, alpha: 0.7, role: "arrow", lane, source: step.sources[i] });
  });
}

/* All elements: those that were read so far are bright. */
function drawInput(scene, model, step) {
  const n = model.data.n, wide = LANES * CELL, count = Math.min(n, wide), each = wide / count;
  const array = model.data.arrays[model.input];
  if (!array) return;
  const now = new Set(), read = new Array(count).fill(false);
  for (const word of model.wordsOf(step)) if (word.element !== null) now.add(Math.floor((word.element * count) / n));
  model.inputKeys ??= Array.from({ length: n }, (_, element) => `g${array.base + element * array.element}`);
  model.inputKeys.forEach((key, element) => {
    if (model.memory.get(key)?.element === element) read[Math.floor((element * count) / n)] = true;
  });
  scene.heading("Input", `${n} element${n > 1 ? "s" : ""}; bright: read so far`);
  for (let i = 0; i < count; i++)
    scene.box(LEFT + i * each, scene.y, Math.max(each - (each > 3 ? 0.5 : 0), 1), 10, hueOf(scene, (i * n) / count), { alpha: read[i] ? 1 : 0.25, role: "input" });
  for (const i of now) scene.box(LEFT + i * each, scene.y + 11, Math.max(each, 1.5), 3, "read", { role: "reads" });
  scene.y += 16;
}

function hueOf(scene, element) {
  const [low, high] = scene.window;
  return element < low || element > high ? "line" : (element - low) / Math.max(high - low, 1);
}

/* The words of other global arrays that were read or written. */
function drawResults(scene, model) {
  const now = touched(model), words = wordsOf(model).filter((word) => model.memory.has(word.key));
  const at = words.findIndex((word) => now.has(word.key)), first = Math.max(Math.min(at - 8, words.length - 24), 0);
  const shown = words.slice(first, first + 24);
  if (!shown.length) return;
  scene.heading("Sums in global memory", words.length > 24 ? `${words.length} words` : "");
  const wide = (LANES * CELL) / 12;
  shown.forEach((word, i) => {
    const x = LEFT + (i % 12) * wide, y = scene.y + Math.floor(i / 12) * 28, title = `${word.name}[${word.index}]`;
    const held = model.memory.get(word.key);
    scene.text(x + 1, y + 8, title, { size: 8, fill: "faint" });
    scene.value(x, y + 10, wide - 2, 16, held,
      { ring: now.has(word.key) ? RINGS[now.get(word.key)] : undefined, role: "result", title });
  });
  scene.y += Math.ceil(shown.length / 12) * 28;
}

/* Which elements a value contains. */
function drawContents(scene, model, held) {
  if (!held) return;
  const part = held.part, wide = LANES * CELL;
  const value = Array.isArray(held.value) ? held.value.join(", ") : held.value;
  scene.heading(`${held.name}: ${value}`, "");
  scene.y += 8;
  scene.text(LEFT, scene.y, part ? part.text : held.lanes ?? "not a plain sum of elements, or not known of which", { fill: "faint", role: "contents" });
  scene.y += 4;
  if (!part) return;
  const count = Math.min(model.data.n, wide), each = wide / count;
  const bins = part.bins(count, scene.window), twice = part.bins(count, scene.window, part.repeated);
  for (let i = 0; i < count; i++)
    scene.box(LEFT + i * each, scene.y, Math.max(each - (each > 3 ? 0.5 : 0), 1), 10,
      twice[i] > 0 ? "write" : bins[i] > 0 ? i / Math.max(count - 1, 1) : "empty", { role: "content" });
  scene.y += 14;
}

/* Paints a scene on a canvas: arrows, then boxes, lines and texts. */
function paint(scene, canvas, colours, ratio, scale) {
  const pen = canvas.getContext("2d"), high = Math.max(scene.height, canvas.tall || 0), size = [high, ratio, scale].join();
  if (canvas.size !== size) {
    canvas.tall = high; // grows only, so that what is below it stays in its place
    canvas.size = size;
    canvas.width = Math.round(WIDE * ratio * scale);
    canvas.height = Math.round(high * ratio * scale);
    canvas.style.width = `${WIDE * scale}px`;
    canvas.style.height = `${high * scale}px`;
    pen.scale(ratio * scale, ratio * scale);
  }
  pen.clearRect(0, 0, WIDE, high);
  for (const [shape, paintOne] of [["arrow", paintLine], ["box", paintBox], ["line", paintLine], ["text", paintText]])
    for (const item of scene.items)
      if (item.shape === shape) {
        pen.globalAlpha = item.alpha ?? 1;
        paintOne(pen, item, colours);
      }
  pen.globalAlpha = 1;
}

function paintText(pen, item, colours) {
  pen.font = `${item.bold ? "bold " : ""}${item.size}px DejaVu Sans, Verdana, sans-serif`;
  pen.textAlign = item.anchor === "middle" ? "center" : item.anchor || "start";
  pen.fillStyle = colours[item.fill];
  pen.fillText(item.text, item.x, item.y);
}

function paintBox(pen, item, colours) {
  const hue = typeof item.fill === "number";
  pen.fillStyle = hue ? `hsl(${Math.round(item.fill * 290)}, ${colours.chroma}, ${colours.light})` : colours[item.fill] || colours.line;
  pen.fillRect(item.x, item.y, item.width, item.height);
  if (!item.ring) return;
  pen.globalAlpha = 1;
  pen.strokeStyle = colours[item.ring];
  pen.lineWidth = item.ring === "line" ? 1 : 2;
  pen.strokeRect(item.x + 0.5, item.y + 0.5, item.width - 1, item.height - 1);
}

function paintLine(pen, item, colours) {
  pen.strokeStyle = pen.fillStyle = colours[item.stroke];
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(item.x1, item.y1);
  const middle = [(item.x1 + item.x2) / 2, Math.max(item.y1, item.y2) + (item.bend || 0)];
  if (item.bend) pen.quadraticCurveTo(...middle, item.x2, item.y2);
  else pen.lineTo(item.x2, item.y2);
  pen.stroke();
  if (item.shape !== "arrow") return;
  const from = item.bend ? middle : [item.x1, item.y1];
  const turn = Math.atan2(item.y2 - from[1], item.x2 - from[0]);
  pen.beginPath();
  pen.moveTo(item.x2, item.y2);
  for (const side of [-0.45, 0.45]) pen.lineTo(item.x2 - 5 * Math.cos(turn + side), item.y2 - 5 * Math.sin(turn + side));
  pen.fill();
}
