"use strict";
// Opens an experiment: unpacks its piece, writes its story as text (never as markup) and draws its timeline.
(() => {
  const $ = (id) => document.getElementById(id);
  const index = JSON.parse($("index").textContent);
  const groupOf = new Map();
  for (const group of index.groups) for (const i of group) groupOf.set(i, group);
  const pieces = document.querySelectorAll("script.piece");
  const opened = new Map();
  let cameFrom = null;

  function unpack(number) {
    if (!opened.has(number)) {
      const bytes = Uint8Array.from(atob(pieces[number].textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      opened.set(number, new Response(stream).json());
    }
    return opened.get(number);
  }

  function make(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  async function route() {
    const found = /^#e(\d+)$/.exec(location.hash);
    const number = found ? Number(found[1]) : -1;
    if (!index.where || !index.where[number]) return leave();
    if (!cameFrom) cameFrom = document.activeElement;
    const [piece, position] = index.where[number];
    let record;
    try {
      if (!("DecompressionStream" in window)) throw new Error("this browser cannot unpack data (DecompressionStream)");
      record = (await unpack(piece))[position];
    } catch (error) {
      record = { subject: `Experiment ${number}`, fault: "", place: "", words: "not shown", status: "na", replay: "",
        sentence: `It cannot be opened here: ${error.message}. results.json holds all of it.` };
    }
    if (location.hash === found[0]) show(number, record);
  }

  function leave() {
    if ($("overview").hidden) {
      $("detail").hidden = true;
      $("overview").hidden = false;
      document.title = title;
      if (cameFrom && cameFrom.isConnected) cameFrom.focus();
    }
    cameFrom = null;
  }
  const title = document.title;

  function show(number, e) {
    $("overview").hidden = true;
    $("detail").hidden = false;
    const name = `${e.subject}: ${e.fault} at ${e.place}`;
    document.title = `${e.words}, ${name}`;
    $("d-title").textContent = name;
    $("d-sentence").textContent = e.sentence;
    $("d-replay").textContent = e.replay;
    $("d-copied").textContent = "";
    $("d-chips").replaceChildren(make("span", { class: `chip ${e.status}` }, e.words));
    if (e.source) $("d-chips").append(make("span", { class: "hint" }, `from ${e.source}`));
    siblings(number);
    around(number);
    const body = $("d-body");
    body.replaceChildren();
    if (e.draw && e.draw.bars) timeline(body, e);
    if (e.paragraph) body.append(make("h2", {}, "The story"), make("p", { class: "story" }, e.paragraph));
    else body.append(make("p", { class: "note" }, "This page is kept small: the events of this experiment are in results.json."));
    facts(body, e);
    if (e.text) fold(body, "Timeline as text", make("pre", { class: "timeline", tabindex: "0" }, e.text), e.status === "bad");
    for (const worker of e.workers || []) {
      if (worker.log) fold(body, `What ${worker.name} printed`, make("pre", { tabindex: "0" }, worker.log));
    }
    if (e.events && e.events.length) {
      const lines = e.events.map((event) => JSON.stringify(event)).join("\n");
      fold(body, `Raw events (${e.events.length})`, make("pre", { tabindex: "0" }, lines));
    }
    window.scrollTo(0, 0);
    $("d-title").focus({ preventScroll: true });
  }

  function facts(body, e) {
    const list = make("dl", { class: "facts" });
    const add = (key, value) => value !== undefined && value !== null && value !== "" &&
      list.append(make("dt", {}, key), make("dd", {}, String(value)));
    add("verdict", e.verdict);
    add("expected", e.expected);
    add("declared hole", e.hole);
    add("reason", e.reason);
    add("charges in the ledger", e.charges);
    add("the fault landed", e.landed === undefined ? null : e.landed ? "yes, seen by a second witness" : "no");
    add("a second worker contended", e.contended === undefined ? null : e.contended ? "yes" : "no");
    add("lease asked for", e.ttl_ms && `${e.ttl_ms} ms`);
    if (e.recovery_s !== null && e.recovery_s !== undefined) add("locked for the next worker", `${e.recovery_s.toFixed(2)} s`);
    if (e.attempts && e.attempts.length > 1) add("attempts", e.attempts.map((a) => `${a.verdict}${a.reason ? ` (${a.reason})` : ""}`).join("; "));
    add("workers", (e.workers || []).map((w) => `${w.name} ${w.exit === null ? "was killed" : `ended with ${w.exit}`}`).join(", "));
    if (list.children.length) body.append(make("h2", {}, "What is known"), list);
  }

  function fold(body, name, content, open) {
    const details = make("details", {}, make("summary", {}, name), content);
    details.open = Boolean(open);
    body.append(details);
  }

  function siblings(number) {
    const group = groupOf.get(number);
    $("d-siblings").replaceChildren();
    if (!group) return;
    const select = make("select", { id: "d-run" });
    group.forEach((i, n) => select.append(new Option(`run ${n + 1} of ${group.length}`, i, i === number, i === number)));
    select.addEventListener("change", () => { location.hash = `#e${select.value}`; });
    $("d-siblings").append(make("p", {}, make("label", { for: "d-run" }, "This point was tried more than once: "), select));
  }

  function around(number) {
    const cells = [...document.querySelectorAll("table[data-grid] td a, .failures a")].map((a) => a.getAttribute("href"));
    const order = [...new Set(cells)];
    const at = order.indexOf(`#e${number}`);
    for (const [id, to] of [["d-prev", order[at - 1]], ["d-next", at < 0 ? undefined : order[at + 1]]]) {
      $(id).hidden = to === undefined;
      if (to !== undefined) $(id).setAttribute("href", to);
    }
  }

  // ---- the drawing -------------------------------------------------------------------------------------------------
  const LANE = { A: 54, B: 54, C: 46, lock: 58, processor: 92, fault: 46 };
  const NAMES = { A: ["worker A", "meets the fault"], B: ["worker B", "contends"], C: ["worker C", "comes last"],
    lock: ["lock", "by its server"], processor: ["processor", "the money"], fault: ["fault", ""] };
  const TOP = 30;

  function svg(name, attributes = {}, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  const stamp = (ms) => Math.abs(ms) < 999.5 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;

  function timeline(body, e) {
    const d = e.draw;
    const draw = (scaled) => {
      const old = body.querySelector(".stage");
      const stage = make("div", { class: "stage" });
      old ? old.replaceWith(stage) : body.append(stage);
      const point = body.querySelector(".point");
      drawInto(stage, d, e, scaled, point);
    };
    const even = make("button", { type: "button", "aria-pressed": "true" }, "Readable");
    const scale = make("button", { type: "button", "aria-pressed": "false" }, "To scale");
    const press = (scaled) => {
      even.setAttribute("aria-pressed", String(!scaled));
      scale.setAttribute("aria-pressed", String(scaled));
      draw(scaled);
    };
    even.addEventListener("click", () => press(false));
    scale.addEventListener("click", () => press(true));
    body.append(make("div", { class: "tools", role: "group", "aria-label": "How time is drawn" }, "Time:", even, scale));
    const point = make("p", { class: "point" }, HELP);
    draw(false);
    body.append(point);
    body.querySelector(".stage").replaceWith(make("div", { class: "stage" }));
    draw(false);
  }
  const HELP = "Point at anything in the drawing, or go through it with the arrow keys, to read what happened. Hatched: frozen, or the " +
    "fault. Faint lines: quick questions to the lock's server. Dashed red: the moment a lease was over. Coins: charges."; 

  function spread(d, width, scaled) {
    const times = new Set([d.start, d.end]);
    for (const bar of d.bars) times.add(bar.from).add(bar.to);
    for (const mark of d.marks) times.add(mark.at);
    for (const coin of d.coins) times.add(coin.at);
    for (const arrow of d.arrows) if (arrow.kind !== "exchange") times.add(arrow.t0).add(arrow.t1);
    const keys = [...times].sort((a, b) => a - b);
    const gaps = keys.slice(1).map((t, i) => t - keys[i]);
    const floor = gaps.map((gap) => (scaled ? 0 : 11 * Math.min(1, gap / 0.5)));
    const weight = gaps.map((gap) => (scaled ? gap : Math.sqrt(gap)));
    const floors = floor.reduce((a, b) => a + b, 0);
    const weights = weight.reduce((a, b) => a + b, 0) || 1;
    const total = Math.max(width, floors + 260);
    const at = [0];
    gaps.forEach((_, i) => at.push(at[i] + floor[i] + ((total - floors - 70) * weight[i]) / weights));
    const x = (t) => {
      let i = keys.findIndex((key) => key >= t);
      if (i < 0) i = keys.length - 1;
      if (i === 0) return 24;
      const part = (t - keys[i - 1]) / (keys[i] - keys[i - 1] || 1);
      return 24 + at[i - 1] + part * (at[i] - at[i - 1]);
    };
    return [x, total];
  }

  function drawInto(stage, d, e, scaled, point) {
    const top = {};
    let height = TOP;
    for (const lane of d.lanes) { top[lane] = height; height += LANE[lane]; }
    height += 8;
    const mid = (lane) => top[lane] + LANE[lane] / 2;
    const small = window.innerWidth < 600;
    const names = svg("svg", { width: small ? 78 : 112, height, "aria-hidden": "true" });
    for (const lane of d.lanes) {
      names.append(svg("line", { class: "rule", x1: 0, x2: 200, y1: top[lane], y2: top[lane] }),
        svg("text", { class: "lane-name", x: small ? 7 : 10, y: mid(lane) + (NAMES[lane][1] && !small ? -2 : 5) }, NAMES[lane][0]));
      if (NAMES[lane][1] && !small) names.append(svg("text", { class: "lane-note", x: 10, y: mid(lane) + 14 }, NAMES[lane][1]));
    }
    const scroller = make("div", { class: "scroll", role: "region", "aria-label": "Timeline", tabindex: "0" });
    stage.append(make("div", {}, names), scroller);
    const [x, width] = spread(d, scroller.clientWidth - 2, scaled);
    const root = svg("svg", { width, height, role: "group", "aria-label": "Timeline. " + (e.sentence || "") });
    scroller.append(root);
    root.append(svg("defs", {},
      svg("pattern", { id: "ice", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 7 })),
      svg("pattern", { id: "harm", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(-45)" }, svg("line", { class: "harm", x1: 0, x2: 0, y1: 0, y2: 6 }))));
    d.lanes.forEach((lane, i) => {
      if (i % 2) root.append(svg("rect", { class: "band", x: 0, y: top[lane], width, height: LANE[lane] }));
      root.append(svg("line", { class: "rule", x1: 0, x2: width, y1: top[lane], y2: top[lane] }));
    });
    const shapes = [];
    const item = (t, label, ...children) => {
      const node = svg("g", { "data-t": t, role: "img", "aria-label": label, tabindex: "-1" }, ...children);
      node.tell = () => { point.textContent = `${stamp(t)}: ${label}`; };
      shapes.push(node);
      root.append(node);
      return node;
    };
    ticks(root, d, x, height);
    for (const arrow of d.arrows) if (arrow.kind === "exchange") root.append(line(arrow, x, mid, d));
    for (const bar of d.bars) barShape(bar, x, top, item);
    for (const arrow of d.arrows) if (arrow.kind !== "exchange") item(arrow.t0, arrow.title, line(arrow, x, mid, d));
    tokens(root, d, x, mid);
    for (const mark of d.marks) markShape(mark, x, top, mid, height, item);
    coins(root, d, x, top, item);
    keys(root, shapes);
  }

  function ticks(root, d, x, height) {
    const wanted = [0, ...d.marks.filter((m) => m.kind === "expired" || m.kind === "lost").map((m) => m.at), ...d.coins.map((c) => c.at), d.end];
    for (let lease = 1; lease * d.ttl < d.end; lease += 1) wanted.push(lease * d.ttl);
    const taken = [];
    for (const t of wanted) {
      const at = x(t);
      if (taken.some((other) => Math.abs(other - at) < 58)) continue;
      taken.push(at);
      root.append(svg("line", { class: "grid", x1: at, x2: at, y1: TOP - 6, y2: height }),
        svg("text", { class: "tick", x: at, y: 16, "text-anchor": "middle" }, stamp(t)));
    }
  }

  function barShape(bar, x, top, item) {
    const left = x(bar.from), wide = Math.max(x(bar.to) - left, 3), lane = top[bar.lane];
    const sizes = { life: [10, LANE[bar.lane] - 24], frozen: [8, LANE[bar.lane] - 20], lease: [16, 26],
      flight: [bar.who === "B" ? 18 : bar.who === "C" ? 28 : 8, 8], fault: [9, 20] };
    const [down, tall] = sizes[bar.kind];
    const looks = { life: `who-${bar.lane}`, frozen: "frozen", lease: `who-${bar.who}`, flight: `flight who-${bar.who}`, fault: "fault-bar" };
    const rect = svg("rect", { class: `focusable ${looks[bar.kind]}${bar.open ? " open-end" : ""}`, x: left, y: lane + down, width: wide, height: tall, rx: bar.kind === "life" ? 4 : 3 });
    const node = item(bar.from, bar.title, rect);
    const fits = (text) => text.length * 6.9 + 12 < wide;
    if (bar.kind === "lease") {
      const label = fits(bar.label) ? bar.label : fits(bar.who) || wide > 14 ? bar.who : "";
      if (label) node.append(svg("text", { x: left + 6, y: lane + down + 17 }, label));
    } else if (bar.kind === "frozen" && fits("frozen")) {
      node.append(svg("rect", { class: `who-${bar.lane}`, x: left + 8, y: lane + down + 7, width: 52, height: 19, rx: 3 }), svg("text", { x: left + 14, y: lane + down + 21 }, "frozen"));
    } else if (bar.kind === "fault") {
      node.append(svg("text", { x: left + 4, y: lane + down + 15, class: "alarm" }, fits(bar.label) ? bar.label : ""));
    }
  }

  function line(arrow, x, mid, d) {
    const lanes = d.lanes.includes(arrow.from) && d.lanes.includes(arrow.to);
    const x0 = x(arrow.t0), x1 = x(arrow.t1);
    const up = mid(arrow.from) > mid(arrow.to) ? -1 : 1;
    const edge = (lane) => (lane === "processor" ? 26 : lane === "lock" ? 13 : 15);
    const y0 = mid(arrow.from) + up * edge(arrow.from), y1 = mid(arrow.to) - up * edge(arrow.to);
    const who = "ABC".includes(arrow.from) ? arrow.from : arrow.to;
    const group = svg("g", { class: `arrow ${arrow.kind} from-${who}` });
    if (!lanes) return group;
    let ex = x1, ey = y1;
    if (arrow.kind === "lost") { ex = x0 + (x1 - x0) / 2; ey = y0 + (y1 - y0) / 2; }
    group.append(svg("line", { class: "halo", x1: x0, y1: y0, x2: ex, y2: ey }), svg("line", { class: "focusable", x1: x0, y1: y0, x2: ex, y2: ey }));
    if (arrow.kind === "lost") {
      group.append(svg("path", { class: "lost-mark", d: `M${ex - 5} ${ey - 5}l10 10m0 -10l-10 10` }));
    } else if (arrow.kind !== "exchange") {
      const angle = (Math.atan2(y1 - y0, x1 - x0) * 180) / Math.PI;
      group.append(svg("path", { d: "M0 0L-8 -3.6L-8 3.6Z", transform: `translate(${x1} ${y1}) rotate(${angle})` }));
    }
    return group;
  }

  function tokens(root, d, x, mid) {
    const taken = [];
    for (const arrow of d.arrows) {
      if (arrow.to !== "processor" || arrow.label !== "charge" || !d.lanes.includes(arrow.from)) continue;
      const text = arrow.token ? `charge \u00b7 token ${arrow.token}` : "charge";
      const at = x(arrow.t0) + 7, y = mid(arrow.from) + 28;
      if (taken.some(([tx, ty]) => Math.abs(tx - at) < 100 && Math.abs(ty - y) < 12)) continue;
      taken.push([at, y]);
      root.append(svg("text", { class: "tag", x: at, y }, text));
    }
  }

  function markShape(mark, x, top, mid, height, item) {
    if (!(mark.lane in top)) return;
    const at = x(mark.at), y = mid(mark.lane), bad = (d) => svg("path", { class: "mark-bad focusable", d });
    const plain = (d) => svg("path", { class: "mark-shape focusable", d });
    const shapes = {
      expired: () => [svg("line", { class: "expiry focusable", x1: at, x2: at, y1: top[mark.lane] + 3, y2: top[mark.lane] + LANE[mark.lane] + 88 }), svg("text", { class: "alarm", x: at + 5, y: top[mark.lane] + 12 }, "expired")],
      lost: () => [svg("line", { class: "expiry focusable", x1: at, x2: at, y1: top[mark.lane] + 3, y2: top[mark.lane] + LANE[mark.lane] + 88 }), svg("text", { class: "alarm", x: at + 5, y: top[mark.lane] + 12 }, "lock lost")],
      renewed: () => [plain(`M${at} ${y + 16}v-8m-3 3l3 -3l3 3`)],
      released: () => [plain(`M${at - 4} ${y + 20}h8l-4 -6z`)],
      refused: () => [svg("circle", { class: "mark-bad focusable", cx: at, cy: y, r: 10 }), bad(`M${at - 7} ${y - 7}l14 14`), svg("text", { class: "alarm", x: at + 14, y: y + 4 }, "refused")],
      replayed: () => [plain(`M${at - 6} ${y}a6 6 0 1 0 3 -5l-4 -2m4 2l-1 4`)],
      killed: () => [bad(`M${at - 8} ${y - 8}l16 16m0 -16l-16 16`), svg("text", { class: "alarm", x: at + 13, y: y + 5 }, "killed")],
      reset: () => [bad(`M${at - 4} ${y - 9}l6 7l-5 3l6 8`)],
      landed: () => [plain(`M${at} ${y + 9}l5 5l-5 5l-5 -5z`)],
      stall: () => [bad(`M${at - 6} ${y - 8}h12l-12 16h12z`)],
      said: () => [svg("circle", { class: "mark-shape focusable", cx: at, cy: y, r: 3.5 })],
      ended: () => [plain(`M${at} ${y - 12}v24`)],
      "gave-up": () => [bad(`M${at} ${y - 12}v24`)],
      crashed: () => [bad(`M${at} ${y - 12}v24m-4 -12h8`)],
    };
    item(mark.at, mark.title, ...(shapes[mark.kind] || (() => [bad(`M${at} ${y - 9}v12m0 4v2`)]))());
  }

  function coins(root, d, x, top, item) {
    const y = top.processor + 50;
    const tags = d.coins.map((coin) => `${coin.n > 1 ? "charged again" : "charged"}: ${coin.who}` +
      (coin.token ? ` \u00b7 token ${coin.token}` : "") + (coin.next ? ", next invoice" : ""));
    const tagAt = apart(d.coins.map((coin) => x(coin.at)), tags.map((tag, i) => tag.length * (d.coins[i].n > 1 ? 7.3 : 6.1) + 8));
    d.coins.forEach((coin, i) => {
      const at = x(coin.at);
      const node = item(coin.at, coin.title, svg("circle", { class: "coin focusable", cx: at, cy: y, r: 13 }),
        svg("text", { class: "coin-number", x: at, y: y + 5 }, String(coin.n)),
        svg("text", { class: coin.n > 1 ? "alarm" : "tag", x: tagAt[i], y: y + 34, "text-anchor": "middle" }, tags[i]));
      if (coin.n > 1) node.prepend(svg("circle", { class: "coin-ring", cx: at, cy: y, r: 18 }));
    });
    const second = d.coins.find((coin) => coin.n === 2);
    if (second) {
      const first = d.coins.find((coin) => coin.n === 1 && coin.next === second.next);
      const [one, two] = [x(first.at) + 15, x(second.at) - 20];
      if (two - one > 24) {
        root.append(svg("path", { class: "apart", d: `M${one} ${y}H${two}` }));
        if (two - one > 90) root.append(svg("text", { class: "alarm", x: (one + two) / 2, y: y - 6, "text-anchor": "middle" }, `${stamp(second.at - first.at)} apart`));
      }
    }
  }

  // Where labels go so that none covers the next: the first gives way to the left, the others to the right.
  function apart(wanted, widths) {
    const at = [...wanted];
    if (at.length > 1) at[0] = Math.max(widths[0] / 2, Math.min(at[0], at[1] - (widths[0] + widths[1]) / 2));
    for (let i = 1; i < at.length; i += 1) at[i] = Math.max(at[i], at[i - 1] + (widths[i - 1] + widths[i]) / 2);
    return at;
  }

  function keys(root, shapes) {
    const order = [...shapes].sort((a, b) => a.dataset.t - b.dataset.t);
    if (order.length) order[0].setAttribute("tabindex", "0");
    const to = (node) => {
      for (const other of order) other.setAttribute("tabindex", "-1");
      node.setAttribute("tabindex", "0");
      node.focus();
    };
    for (const node of order) {
      node.addEventListener("focus", node.tell);
      node.addEventListener("mouseenter", node.tell);
      node.addEventListener("click", node.tell);
    }
    root.addEventListener("keydown", (event) => {
      const at = order.indexOf(document.activeElement);
      const step = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: order.length - 1 }[event.key];
      if (at < 0 || step === undefined || !order[step]) return;
      event.preventDefault();
      to(order[step]);
    });
  }

  // ---- tables by keyboard ------------------------------------------------------------------------------------------
  for (const table of document.querySelectorAll("table[data-grid]")) {
    const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.querySelector("a")).slice(1));
    const links = rows.flat().filter(Boolean);
    links.forEach((link, i) => link.setAttribute("tabindex", i ? "-1" : "0"));
    table.addEventListener("focusin", (event) => {
      if (links.includes(event.target)) for (const link of links) link.setAttribute("tabindex", link === event.target ? "0" : "-1");
    });
    table.addEventListener("keydown", (event) => {
      const y = rows.findIndex((row) => row.includes(document.activeElement));
      if (y < 0) return;
      const x = rows[y].indexOf(document.activeElement);
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      let found = null;
      if (step && step[1]) for (let c = x + step[1]; c >= 0 && c < rows[y].length && !found; c += step[1]) found = rows[y][c];
      if (step && step[0]) for (let r = y + step[0]; rows[r] && !found; r += step[0]) found = nearest(rows[r], x);
      if (event.key === "Home") found = rows[y].find(Boolean);
      if (event.key === "End") found = rows[y].filter(Boolean).pop();
      if (!step && !found) return;
      event.preventDefault();
      if (found) found.focus();
    });
  }

  // The link of a row that is closest to a column: rows may have gaps.
  function nearest(row, x) {
    const near = row.map((link, c) => [Math.abs(c - x), link]).filter(([, link]) => link);
    return near.length ? near.reduce((a, b) => (b[0] < a[0] ? b : a))[1] : null;
  }

  async function copy() {
    const text = $("d-replay").textContent;
    try {
      await navigator.clipboard.writeText(text);
      $("d-copied").textContent = "copied";
    } catch {
      getSelection().selectAllChildren($("d-replay"));
      $("d-copied").textContent = "selected: press Ctrl+C";
    }
  }

  $("d-copy").addEventListener("click", copy);
  $("d-back").addEventListener("click", (event) => { event.preventDefault(); home(); });
  $("home").addEventListener("click", (event) => { event.preventDefault(); home(); });
  function home() {
    if ($("detail").hidden) return;
    history.pushState(null, "", location.pathname + location.search);
    leave();
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") home(); });
  window.addEventListener("hashchange", route);
  route();
})();
