/* The page: one or two players with common controls. */

const COLOURS = ["paper", "ink", "faint", "empty", "line", "read", "write", "atomic", "barrier", "diverged", "race", "now", "light", "chroma"];
const page = { players: [], view: { block: null, warp: null }, place: 0, timer: 0, colours: {} };

class Player {
  constructor(data, root) {
    this.model = new Model(data);
    this.picked = null;
    this.root = root;
    root.className = "player";
    root.innerHTML = `<div class="head"><h2></h2><p class="summary"></p><p class="sentence" aria-live="polite"></p></div>
      <div class="stage"><canvas role="img" tabindex="0"></canvas></div>
      <div class="side"><p class="file"></p><div class="code" aria-label="The kernel's text"></div><table><tbody></tbody></table></div>`;
    this.part = (selector) => root.querySelector(selector);
    this.order = data.schedule.replace(/^lockstep \d+/, "lockstep, last warp first");
    this.part("h2").textContent = data.strategy + (this.order === "lockstep" && !data.marks ? "" : `: ${this.order}`);
    this.part(".summary").textContent = data.summary;
    this.canvas = this.part("canvas");
    this.canvas.addEventListener("mousemove", (event) => this.point(event, false));
    this.canvas.addEventListener("click", (event) => this.point(event, true));
    this.canvas.addEventListener("mouseleave", () => (tip.hidden = true));
    this.file = null;
  }

  get count() {
    return this.model.steps.length;
  }

  show(number) {
    this.model.go(Math.max(0, Math.min(number, this.count - 1)));
    const step = this.model.step;
    this.scene = stage(this.model, { ...page.view, picked: this.picked });
    const least = page.players.length > 1 && innerWidth >= 700 ? 0.5 : 1;
    this.scale = Math.max(least, Math.min(this.part(".stage").clientWidth / WIDE, 1.3));
    paint(this.scene, this.canvas, page.colours, window.devicePixelRatio || 1, this.scale);
    const sentence = `Step ${this.model.at + 1} of ${this.count}. ${step.sentence}${this.remark()}`;
    this.part(".sentence").textContent = sentence;
    this.canvas.setAttribute("aria-label", step.sentence);
    this.showCode(step);
  }

  /* What the step races with, if it is one of the two that were asked for; or why the kernel fails. */
  remark() {
    const { marks, race, fault } = this.model.data, here = marks ? marks.indexOf(this.model.at) : -1;
    if (fault && this.model.at === this.count - 1) return ` Then the kernel fails: ${fault}.`;
    return here < 0 ? "" : ` It races with step ${marks[1 - here] + 1}; ${race}.`;
  }

  showCode(step) {
    const code = this.part(".code");
    const file = step.line && this.model.data.texts[step.file] ? step.file : this.file ?? Object.keys(this.model.data.texts)[0];
    if (file !== this.file) this.openFile(code, file);
    if (!this.lines) return;
    const block = page.view.block ?? step.block, threads = this.model.data.launches[step.launch][1];
    const warps = new Map();
    for (let warp = 0; warp * LANES < threads; warp++) {
      const last = this.model.lineOf(step.launch, block, warp);
      if (last && last.file === file) warps.set(last.line, [...(warps.get(last.line) || []), warp]);
    }
    this.lines.forEach((line, number) => {
      const isNow = step.file === file && step.line === number;
      line.root.classList.toggle("now", isNow);
      const times = this.model.times.get(`${file}:${number}`), at = warps.get(number);
      write(line.times, times ? `${times}×` : "");
      write(line.warps, at ? `w${at.length > 1 ? `${at[0]}-${at[at.length - 1]}` : at[0]}` : "");
      if (isNow && line !== this.scrolledTo) {
        this.scrolledTo = line;
        const top = line.root.offsetTop - code.clientHeight / 2;
        if (Math.abs(code.scrollTop - top) > code.clientHeight / 3) code.scrollTop = top;
      }
    });
  }

  openFile(code, file) {
    this.file = file;
    this.part(".file").textContent = file;
    code.textContent = "";
    this.lines = new Map();
    (this.model.data.texts[file] || []).forEach((text, i) => {
      const root = document.createElement("button");
      root.innerHTML = `<span class="number">${i + 1}</span> <span class="warps"></span><span class="times"></span>`;
      root.append(text);
      const runs = this.model.steps.some((step) => step.file === file && step.line === i + 1);
      root.classList.toggle("runs", runs);
      root.tabIndex = runs ? 0 : -1;
      if (runs) {
        root.title = "to its next execution";
        root.addEventListener("click", () => this.toLine(file, i + 1));
      }
      code.append(root);
      this.lines.set(i + 1, { root, times: root.querySelector(".times"), warps: root.querySelector(".warps") });
    });
  }

  toLine(file, line) {
    const is = (step) => step.file === file && step.line === line;
    const next = this.model.find(this.model.at, is);
    goTo(next < 0 ? this.model.find(-1, is) : next, this);
  }

  showCounters(other) {
    const body = this.part("tbody"), own = this.model.counters;
    if (!this.rows) {
      this.rows = new Map();
      if (other) body.innerHTML = "<tr><th></th><th></th><th></th></tr>";
      const name = ({ model, order }) => (model.data.marks ? order : model.data.strategy);
      if (other) [this, other].forEach((one, i) => (body.rows[0].cells[i + 1].textContent = name(one)));
    }
    for (const name of Object.keys(this.model.data.counters)) {
      const value = own.get(name) || 0, theirs = other ? other.model.counters.get(name) || 0 : null;
      const total = this.model.data.counters[name] || (other && other.model.data.counters[name]);
      if (!total) continue;
      if (!this.rows.has(name)) {
        const row = body.insertRow();
        row.innerHTML = "<td></td><td></td>" + (other ? "<td></td>" : "");
        row.cells[0].textContent = name.replaceAll("_", " ");
        this.rows.set(name, row);
      }
      const row = this.rows.get(name);
      write(row.cells[1], value.toLocaleString("en"));
      if (other) write(row.cells[2], theirs.toLocaleString("en"));
      row.classList.toggle("differs", other !== null && value !== theirs);
      row.classList.toggle("grew", Boolean(this.model.step.counts && this.model.step.counts[name]));
    }
  }

  point(event, isClick) {
    const box = this.canvas.getBoundingClientRect(), x = (event.clientX - box.left) / this.scale, y = (event.clientY - box.top) / this.scale;
    const item = this.scene.items.findLast((one) => one.title && x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + one.height);
    tip.hidden = !item;
    if (item) {
      const held = item.held, part = held && held.part;
      tip.textContent = item.title + (held ? `: ${held.value}` : "") + (part ? `; ${part.text}` : "");
      tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 330)}px`;
      tip.style.top = `${event.clientY + 14}px`;
    }
    if (isClick) {
      this.picked = (item && item.held) || null;
      showAll();
    }
  }
}

const byId = (id) => document.getElementById(id);
const tip = byId("tip");

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/* Shows the step of the first player; the others follow by their share of steps. */
function goTo(number, player = page.players[0]) {
  if (number < 0) return;
  player.picked = null;
  page.place = player.count > 1 ? Math.min(number, player.count - 1) / (player.count - 1) : 0;
  for (const one of page.players) {
    if (one !== player) one.picked = null;
    one.target = one === player ? number : Math.round(page.place * (one.count - 1));
  }
  showAll();
}

function showAll() {
  const first = page.players[0], wide = byId("timeline").clientWidth; // before anything changes
  for (const one of page.players) one.show(one.target);
  page.players.forEach((one, i) => one.showCounters(page.players[1 - i] || null));
  const slider = byId("step");
  slider.value = longest().model.at;
  slider.setAttribute("aria-valuetext", first.model.step.sentence);
  page.linking ||= setTimeout(link, 300);
  showTimeline(wide);
}

/* Puts the step in the address, now and then: browsers allow few changes a second, and none of a
 * page inside a notebook. */
function link() {
  page.linking = 0;
  try {
    history.replaceState(null, "", `#step=${longest().model.at}`);
  } catch (error) {
    page.linking = -1;
  }
}

/* The player with most steps: its steps are those of the slider. */
function longest() {
  return page.players.reduce((a, b) => (b.count > a.count ? b : a));
}

/* The marks of all steps, and where the players are. */
function showTimeline(wide) {
  const canvas = byId("timeline"), ratio = window.devicePixelRatio || 1;
  const size = [wide, ratio, page.colours.paper].join();
  if (page.marksFor !== size) {
    page.marksFor = size;
    canvas.width = wide * ratio;
    canvas.height = 34 * ratio;
    page.marks = new OffscreenCanvas(Math.max(canvas.width, 1), canvas.height);
    paintMarks(page.marks.getContext("2d"), wide, ratio);
  }
  const pen = canvas.getContext("2d"), high = 34 / page.players.length;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(page.marks, 0, 0);
  pen.scale(ratio, ratio);
  pen.strokeStyle = page.colours.ink;
  page.players.forEach((player, row) =>
    pen.strokeRect(placeOf(player, player.model.at, wide), high * row + 0.5, Math.max(wide / player.count, 2), high - 1));
}

function placeOf(player, number, wide) {
  return player.count > 1 ? (number / (player.count - 1)) * (wide - 2) : 0;
}

function paintMarks(pen, wide, ratio) {
  const high = 34 / page.players.length;
  pen.scale(ratio, ratio);
  page.players.forEach((player, row) => {
    const bar = (i, colour, from, to) => {
      pen.fillStyle = page.colours[colour];
      pen.fillRect(placeOf(player, i, wide), high * (row + from), Math.max(wide / player.count, 1), high * (to - from));
    };
    player.model.steps.forEach((step, i) => {
      if (isBarrier(step)) bar(i, "barrier", 0.75, 1);
      else if (conflicts(step)) bar(i, "write", 0.55 - 0.5 * Math.min(conflicts(step) / 8, 1), 0.6);
      else if (step.kind === "atomic") bar(i, "atomic", 0.2, 0.6);
      else if (ACCESSES.includes(step.kind) && step.lanes.length < LANES) bar(i, "diverged", 0.62, 0.72);
    });
    for (const i of player.model.data.marks || []) bar(i, "race", 0, 1);
    player.model.firstOfLaunch.slice(1).forEach((i) => bar(i, "ink", 0, 1));
  });
}

function play(isOn) {
  const button = document.querySelector('[data-do="play"]');
  cancelAnimationFrame(page.timer);
  page.timer = 0;
  button.setAttribute("aria-pressed", String(isOn));
  button.textContent = isOn ? "pause" : "play";
  if (!isOn) return;
  const player = longest(), since = performance.now(), from = player.model.at >= player.count - 1 ? -1 : player.model.at;
  let shown = player.model.at;
  const tick = (now) => {
    const to = from + Math.floor(((now - since) / 1000) * Number(byId("speed").value)) + 1;
    if (to !== shown) goTo((shown = Math.min(to, player.count - 1)), player);
    if (shown >= player.count - 1) play(false);
    else page.timer = requestAnimationFrame(tick);
  };
  page.timer = requestAnimationFrame(tick);
}

function act(what) {
  const player = longest(), at = player.model.at, model = player.model;
  const actions = {
    first: () => goTo(0, player),
    last: () => goTo(player.count - 1, player),
    next: () => goTo(Math.min(at + 1, player.count - 1), player),
    back: () => goTo(Math.max(at - 1, 0), player),
    barrier: () => goTo(model.find(at, (step, i) => isBarrier(step) && !(i && isBarrier(model.steps[i - 1]))), player),
    conflict: () => {
      for (const one of page.players) {
        const next = one.model.find(one.model.at, (step) => conflicts(step) > 0);
        if (next >= 0) return goTo(next, one);
      }
    },
    launch: () => goTo(model.firstOfLaunch.find((i) => i > at) ?? -1, player),
    play: () => play(!page.timer),
    full: () => {
      if (document.fullscreenElement) document.exitFullscreen();
      else if (document.fullscreenEnabled) document.documentElement.requestFullscreen();
    },
  };
  if (what !== "play") play(false);
  actions[what]();
}

const KEYS = { " ": "play", ArrowRight: "next", ArrowLeft: "back", Home: "first", End: "last", b: "barrier", c: "conflict", l: "launch", f: "full" };

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of COLOURS) page.colours[name] = style.getPropertyValue(`--${name}`).trim();
  page.colours.unknown = page.colours.line;
}

/* ?measure: how long each step takes to draw, and how many frames a second are shown at 60 steps a
 * second. */
async function measure() {
  const player = longest(), times = [];
  for (let i = 0; i < player.count; i++) {
    const begin = performance.now();
    goTo(i, player);
    times.push(performance.now() - begin);
  }
  times.sort((a, b) => a - b);
  const at = (share) => times[Math.floor(share * (times.length - 1))].toFixed(1);
  const frames = Math.round(await framesWhilePlaying());
  page.measured = { steps: times.length, median: Number(at(0.5)), most: Number(at(0.99)), frames };
  byId("legend").textContent = `${times.length} steps; to draw one: median ${at(0.5)} ms, 99% within ${at(0.99)} ms; ${frames} frames a second`;
  goTo(0, player);
}

/* Plays 60 steps a second for two seconds. */
async function framesWhilePlaying() {
  goTo(0, longest());
  byId("speed").value = "60";
  for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame); // frames are late after a long script
  play(true);
  const seen = await new Promise((done) => {
    const times = [];
    const look = (now) => (times.push(now) && now - times[0] < 2000 && page.timer ? requestAnimationFrame(look) : done(times));
    requestAnimationFrame(look);
  });
  play(false);
  return (1000 * (seen.length - 1)) / (seen[seen.length - 1] - seen[0]);
}

function listen() {
  document.querySelector('[data-do="full"]').hidden = !document.fullscreenEnabled; // by a frame, such as VS Code's
  byId("controls").addEventListener("click", (event) => {
    if (!event.target.dataset.do) return;
    if (event.detail) event.target.blur(); // a click of the mouse: keys are for the page again
    act(event.target.dataset.do);
  });
  byId("step").addEventListener("input", (event) => {
    play(false);
    goTo(Number(event.target.value), longest());
  });
  byId("timeline").addEventListener("click", (event) => {
    play(false);
    goTo(Math.round((event.offsetX / event.target.clientWidth) * (longest().count - 1)), longest());
  });
  for (const name of ["block", "warp"])
    byId(name).addEventListener("change", (event) => {
      page.view[name] = event.target.value === "" ? null : Number(event.target.value);
      event.target.blur();
      showAll();
    });
  document.addEventListener("keydown", (event) => {
    const inField = event.target.matches("select") || (event.target.matches("button") && event.key === " ");
    if (!KEYS[event.key] || inField || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(KEYS[event.key]);
  });
  addEventListener("resize", showAll);
  addEventListener("hashchange", fromLink);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    showAll();
  });
}

function fromLink() {
  const step = /step=(\d+)/.exec(location.hash);
  if (step) return goTo(Math.min(Number(step[1]), longest().count - 1), longest());
  goTo(page.players[0].model.data.start);
  for (const player of page.players) if (player.model.data.start) player.target = player.model.data.start;
  showAll();
}

async function start() {
  const packed = Uint8Array.from(atob(byId("data").textContent.trim()), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = await new Response(stream).json();
  readColours();
  byId("players").classList.toggle("two", Boolean(data.beside));
  for (const one of data.beside ? [data, data.beside] : [data])
    page.players.push(new Player(one, byId("players").appendChild(document.createElement("section"))));
  const most = (of) => Math.max(...page.players.map((one) => Math.max(...one.model.data.launches.map(of))));
  for (let i = 0; i < most((launch) => launch[0]); i++) byId("block").add(new Option(i, i));
  for (let i = 0; i < Math.ceil(most((launch) => launch[1]) / LANES); i++) byId("warp").add(new Option(i, i));
  byId("step").max = longest().count - 1;
  listen();
  fromLink();
  if (location.search.includes("measure")) await measure();
  page.ready = true;
}

start().catch((error) => {
  byId("problem").hidden = false;
  byId("problem").textContent = `This page needs a newer browser: ${error.message}`;
});
