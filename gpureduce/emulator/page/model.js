"use strict";
/* The model: from a replay's steps to the state after each of them, forwards and backwards. */

const BARRIERS = ["__syncthreads", "cluster.sync", "grid.sync"];
const ACCESSES = ["load", "store", "atomic"];
const LANES = 32;

class Model {
  constructor(data) {
    this.data = data;
    this.steps = data.steps;
    this.memory = new Map(); // word -> {value, part}
    this.registers = new Map(); // warp.lane -> {value, part}: what the lane has last handled
    this.ended = new Map(); // warp -> mask of lanes
    this.times = new Map(); // file:line -> executions
    this.counters = new Map();
    this.undo = []; // for each step taken: what to put back
    this.warps = new Map(); // warp -> numbers of its steps
    this.firstOfLaunch = [];
    this.input = data.arrays.findIndex((one) => one.launch === 0 && one.space === "global");
    this.inputBase = this.input < 0 ? -1 : data.arrays[this.input].base;
    this.steps.forEach((step, i) => {
      step.warpKey = `${step.launch}.${step.block}.${step.warp}`;
      if (!this.warps.has(step.warpKey)) this.warps.set(step.warpKey, []);
      this.warps.get(step.warpKey).push(i);
      this.firstOfLaunch[step.launch] ??= i;
    });
    this.parts = data.parts.map((part) => new Part(part, data.n));
    this.elements = new Map();
  }

  get at() {
    return this.undo.length - 1;
  }
  get step() {
    return this.steps[this.at];
  }

  go(to) {
    while (this.at < to) this.take(this.steps[this.at + 1]);
    while (this.at > to) this.putBack();
  }

  take(step) {
    const undo = [];
    const set = (map, key, value) => {
      undo.push([map, key, map.get(key)]);
      map.set(key, value);
    };
    if (ACCESSES.includes(step.kind)) this.takeAccess(step, set);
    else if (step.kind === "copy") this.takeCopy(step, set);
    else if (step.kind === "end") {
      const mask = step.lanes.reduce((all, lane) => all | (1 << lane), 0);
      set(this.ended, step.warpKey, (this.ended.get(step.warpKey) || 0) | mask);
    } else if (step.results) { // in a shuffle, lanes show what they pass: arrows show who gets it
      const [values, parts] = step.sources ? [step.values, step.parts] : [step.results, step.result_parts];
      step.lanes.forEach((lane, i) =>
        set(this.registers, `${step.warpKey}.${lane}`, { value: values[i], part: this.part(parts, i), lanes: maskOf(step, values[i]) }));
    }
    if (step.line) {
      const place = `${step.file}:${step.line}`;
      set(this.times, place, (this.times.get(place) || 0) + 1);
    }
    for (const [name, count] of Object.entries(step.counts || {}))
      set(this.counters, name, (this.counters.get(name) || 0) + count);
    this.undo.push(undo);
  }

  putBack() {
    for (const [map, key, before] of this.undo.pop().reverse())
      before === undefined ? map.delete(key) : map.set(key, before);
  }

  takeAccess(step, set) {
    step.lanes.forEach((lane, i) => {
      const after = step.kind === "atomic" ? step.results[i] : step.values[i];
      const part = this.part(step.kind === "atomic" ? step.result_parts : step.parts, i);
      if (step.kind !== "atomic")
        set(this.registers, `${step.warpKey}.${lane}`, { value: step.values[i], part });
      for (const word of this.words(step, i)) {
        const value = Array.isArray(after) ? after[word.number] : after;
        const own = word.element === null ? (word.number ? null : part) : this.element(word.element);
        const same = step.kind === "load" ? this.memory.get(word.key)?.element : undefined;
        set(this.memory, word.key, { value, part: own, element: word.element ?? same ?? null });
      }
    });
  }

  takeCopy(step, set) {
    const [offset, array] = step.sources, from = this.data.arrays[array];
    const to = this.words(step, 0)[0];
    for (let i = 0; i * from.element < step.bytes; i++) {
      const element = offset / from.element + i;
      const key = this.key(step, step.block, to.byte + i * from.element);
      set(this.memory, key, { value: this.data.elements[element], part: this.element(element) });
    }
  }

  /* The first and the last element that a block handles: its colours spread over these. */
  window(launch, block) {
    this.windows ??= new Map();
    const name = `${launch}.${block}`;
    if (!this.windows.has(name)) {
      let low = Infinity, high = 0;
      for (const step of this.steps) {
        if (step.launch !== launch || step.block !== block) continue;
        for (const number of [...(step.parts || []), ...(step.result_parts || [])]) {
          const part = number === null ? null : this.parts[number];
          if (!part || !part.count) continue;
          low = Math.min(low, part.first);
          high = Math.max(high, part.last);
        }
      }
      this.windows.set(name, low > high ? [0, this.data.n - 1] : [low, high]);
    }
    return this.windows.get(name);
  }

  part(numbers, i) {
    const number = numbers && numbers[i];
    return number === undefined || number === null ? null : this.parts[number];
  }

  element(number) {
    if (!this.elements.has(number))
      this.elements.set(number, new Part({ runs: [[number, 1, 1]], repeated: [] }, this.data.n));
    return this.elements.get(number);
  }

  key(step, owner, byte) {
    return this.data.arrays[step.array].space === "shared" ? `s${step.launch}.${owner}.${byte}` : `g${byte}`;
  }

  /* The words that the i-th lane of an access reads or writes. */
  words(step, i) {
    const array = this.data.arrays[step.array];
    const size = step.bytes % array.element ? step.bytes : array.element;
    const owner = step.owner ? step.owner[i] : step.block;
    const count = step.kind === "copy" ? 1 : Math.max(step.bytes / size, 1);
    const isInput = array.space === "global" && array.base === this.inputBase;
    const found = [];
    for (let number = 0; number < count; number++) {
      const offset = step.offsets[i] + number * size, byte = array.base + offset;
      const element = isInput && step.launch === 0 ? offset / array.element : null;
      found.push({ key: this.key(step, owner, byte), byte, size, number, owner, element });
    }
    return found;
  }

  /* The words that a step accesses. */
  wordsOf(step) {
    return ACCESSES.includes(step.kind) ? step.lanes.flatMap((_, i) => this.words(step, i)) : [];
  }

  /* What a lane does now: "runs", "off" (the warp runs without it), "waits" (at a barrier), "ended",
   * "new" (not started) or "ready". */
  status(launch, block, warp, lane) {
    const key = `${launch}.${block}.${warp}`, bit = 1 << lane, own = this.warps.get(key);
    if (!own || own[0] > this.at) return "new";
    if (this.step.warpKey === key && this.step.lanes.includes(lane)) return "runs";
    if ((this.ended.get(key) || 0) & bit) return "ended";
    if (this.step.warpKey === key && !BARRIERS.includes(this.step.kind)) return "off";
    const next = this.steps[own[upper(own, this.at)]];
    return next && BARRIERS.includes(next.kind) && next.lanes.includes(lane) ? "waits" : "ready";
  }

  /* The step at whose line a warp is: that of the barrier where it waits, or its last one. */
  lineOf(launch, block, warp) {
    const key = `${launch}.${block}.${warp}`, own = this.warps.get(key) || [], at = upper(own, this.at);
    const next = this.steps[own[at]];
    if (at && next && isBarrier(next) && this.step.warpKey !== key) return next;
    for (let i = at - 1; i >= 0; i--)
      if (this.steps[own[i]].line) return this.steps[own[i]];
    return null;
  }

  /* The next step after `from` that `is` holds for, or -1. */
  find(from, is) {
    for (let i = from + 1; i < this.steps.length; i++) if (is(this.steps[i], i)) return i;
    return -1;
  }
}

/* How many of the sorted numbers are at most `most`. */
function upper(numbers, most) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Votes return a bit for each lane. */
function maskOf(step, value) {
  if (!["__ballot_sync", "__match_any_sync"].includes(step.kind)) return undefined;
  const lanes = Array.from({ length: LANES }, (_, lane) => lane).filter((lane) => (value >>> lane) & 1);
  return `a mask of lanes: ${lanes.join(", ") || "none"}`;
}

function isBarrier(step) {
  return BARRIERS.includes(step.kind);
}
function conflicts(step) {
  return (step.counts?.shared_load_conflicts || 0) + (step.counts?.shared_store_conflicts || 0);
}

/* The elements that a partial sum contains. */
class Part {
  constructor(part, n) {
    Object.assign(this, part);
    this.n = n;
    let sum = 0;
    this.count = 0;
    this.first = n;
    this.last = 0;
    for (const [first, step, count] of part.runs) {
      sum += count * first + (step * count * (count - 1)) / 2;
      this.count += count;
      this.first = Math.min(this.first, first);
      this.last = Math.max(this.last, first + step * (count - 1));
    }
    this.middle = this.count ? sum / this.count : 0;
    this.known = new Map();
  }

  /* Where the elements lie between two of them, from 0 to 1. */
  hue([low, high]) {
    return Math.max(0, Math.min((this.middle - low) / Math.max(high - low, 1), 1));
  }

  /* How much of each of `bins` equal stretches between two elements is in it, from 0 to 1. */
  bins(bins, [low, high], runs = this.runs) {
    const name = `${bins}.${low}.${high}.${runs === this.runs}`;
    if (!this.known.has(name)) {
      const found = new Array(bins).fill(0), share = bins / (high - low + 1);
      for (const [first, step, count] of runs)
        for (let bin = 0; step === 1 && bin < bins; bin++)
          found[bin] += Math.max(Math.min((first + count - low) * share, bin + 1) - Math.max((first - low) * share, bin), 0);
      for (const [first, step, count] of runs)
        for (let i = 0; step > 1 && i < count; i++) {
          const from = (first + i * step - low) * share, to = Math.max(Math.ceil(from + share), Math.floor(from) + 1);
          for (let bin = Math.floor(from); bin < to; bin++)
            if (bin >= 0 && bin < bins) found[bin] += Math.min(share, 1);
        }
      this.known.set(name, found.map((one) => Math.min(one, 1)));
    }
    return this.known.get(name);
  }

  get text() {
    if (this.foreign && !this.count) return this.foreign;
    if (!this.count) return "no element";
    const spans = this.runs.slice(0, 3).map(([first, step, count]) =>
      count === 1 ? `${first}` : count === 2 ? `${first} and ${first + step}` : step === 1 ? `${first} to ${first + count - 1}`
        : `${first}, ${first + step}, .., ${first + step * (count - 1)}`);
    const more = this.runs.length > 3 ? `, and ${this.runs.length - 3} more spans` : "";
    const twice = this.repeated.length ? "; some of them more than once" : "";
    const foreign = this.foreign ? `; and ${this.foreign}` : "";
    return `${this.count} element${this.count > 1 ? "s" : ""}: ${spans.join("; ")}${more}${twice}${foreign}`;
  }
}
