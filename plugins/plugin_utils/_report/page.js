"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const app = document.getElementById("app");

/* ---- elements: texts only ever become text nodes or attribute values ---- */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(9)) if (child !== null && child !== undefined && child !== false && child !== "" && child !== 0) element.append(child);
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const put = (element, ...children) => { element.replaceChildren(); return fill(element, null, children); };
const t = (x, y, look, text) => s("text", {x, y, class: look}, String(text));
const many = (count, thing) => count + " " + thing + (count === 1 ? "" : "s");
const naturally = new Intl.Collator("en", {numeric: true}).compare;
const maximum = (values, least) => values.reduce((one, other) => Math.max(one, other), least);

function expand(cpulist) {
  const cpus = [];
  for (const part of String(cpulist || "").split(",")) {
    if (!part) continue;
    const [first, last] = part.split("-").map(Number);
    for (let cpu = first; cpu <= (last === undefined ? first : last); cpu++) cpus.push(cpu);
  }
  return cpus;
}
function compress(cpus) {
  const parts = [];
  for (const cpu of [...cpus].sort((a, b) => a - b)) {
    const end = parts[parts.length - 1];
    if (end && end[1] === cpu - 1) end[1] = cpu;
    else parts.push([cpu, cpu]);
  }
  return parts.map(([first, last]) => first === last ? first : first + "-" + last).join(",");
}
function size(mib) {
  if (mib === null || mib === undefined) return "";
  if (mib >= 10240) return (mib / 1024).toFixed(mib >= 102400 ? 0 : 1) + " GiB";
  return Math.round(mib) + " MiB";
}

/* ---- states ---- */
const STATES = {
  drifted: ["drifted", "!", "The kernel differs from the plan in force."],
  refused: ["refused", "×", "A bind would not touch this host, or it could not be compared."],
  "no answer": ["silent", "?", "This host could not be reached."],
  "bound, workloads not": ["warned", "!", "Bound as planned, but work on its accelerators runs on other CPUs."],
  "bound with warnings": ["warned", "!", "Bound as planned, and there is something to look at."],
  "not bound": ["unbound", "–", "Never bound."],
  bound: ["bound", "✓", "Bound, and the kernel is as planned."],
  "no accelerator": ["none", "∅", "Nothing to bind: no NPU and no GPU."],
};
const ORDER = Object.keys(STATES);
const pill = state => h("span", {class: "state s-" + STATES[state][0], "data-sign": STATES[state][1]}, state);

for (const host of data.hosts) {
  host.views = host.views.map(place => data.views[place]);
  host.shape = host.machine === undefined ? null : data.machines[host.machine];
  host.plan = host.views.find(view => !view.refused) || null;
  host.gpus = host.npus.filter(npu => npu.label.startsWith("GPU")).length;
  host.divided = host.plan && host.npus.length ? JSON.stringify([host.machine, host.plan.strategy, Object.values(host.plan.npus).map(entry => entry.pool)]) : "";
  host.text = [host.name, host.state, host.why, host.product, host.plan && host.plan.strategy,
    ...host.drift.map(entry => entry.object + " " + entry.code + " " + entry.cause + " " + entry.remark), ...host.users.map(user => user.name), ...host.holders.map(user => user.title), ...host.remarks].join(" ").toLowerCase();
}

/* ---- colour scheme ---- */
const THEMES = ["auto", "light", "dark"];
function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem("npu-affinity-theme", value);
    return localStorage.getItem("npu-affinity-theme");
  } catch { return null; } // a page from a file, or with storage switched off
}
let theme = THEMES.includes(stored()) ? stored() : "auto";
function applyTheme() {
  document.documentElement.dataset.theme = theme;
  for (const button of document.querySelectorAll(".theme")) button.textContent = "Theme: " + theme;
}
function nextTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  stored(theme);
  applyTheme();
}
const themeButton = () => h("button", {type: "button", class: "theme noprint", onclick: nextTheme, title: "Light, dark, or as the system has it (t)"}, "Theme: " + theme);
const helpButton = () => h("button", {type: "button", class: "noprint", "aria-label": "Keyboard", title: "Keyboard (?)", onclick: help}, "?");

function help() {
  const rows = [["/", "search"], ["j  k", "next, previous host in the table"], ["Enter", "open the host"], ["Esc", "back to the table, or clear the search"],
    ["n  p", "next, previous host"], ["← → ↑ ↓", "walk over the CPUs of a picture that has the focus"], ["x", "swap what is shown and what it is compared with"],
    ["t", "light, dark, automatic"]];
  const dialog = h("dialog", {"aria-label": "Keyboard"}, h("table", {}, h("tbody", {}, rows.map(([key, words]) =>
    h("tr", {}, h("td", {}, key.split("  ").map(one => [h("kbd", {}, one), " "])), h("td", {}, words))))),
    h("form", {method: "dialog"}, h("button", {autofocus: true}, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/* ---- the fleet ---- */
const fleet = {words: "", states: new Set(), since: "", group: "", grouped: false, column: 1, down: false};
const SINCE = {new: "new drift", fixed: "fixed", still: "still drifted"};
const later = data.hosts.some(host => host.since);
const sinceOf = host => host.since ? Object.entries(SINCE).filter(([key]) => host.since[key].length).map(([key, words]) => host.since[key].length + " " + words).join(", ") : "";
const noun = host => !host.gpus && host.npus.length ? "NPU" : host.gpus && host.gpus === host.npus.length ? "GPU" : "accelerator";
const counted = (npus, gpus) => [npus || !gpus ? many(npus, "NPU") : "", gpus ? many(gpus, "GPU") : ""].filter(Boolean).join(", ");
const drifting = host => new Set(host.drift.filter(entry => entry.npu !== null).map(entry => entry.npu));
const local = host => host.divided && typeof host.plan.local === "number" ? host.plan.local : null;
const percent = share => share === null ? "" : Math.round(share * 1000) / 10 + " %";
const COLUMNS = [
  ["Host", host => host.name, host => h("a", {href: link(host)}, host.name), "host"],
  ["State", host => ORDER.indexOf(host.state), host => pill(host.state), ""],
  ["Why", host => host.why, host => host.why && h("div", {class: "short", title: host.why}, host.why), "why"],
  ["Accelerators", host => host.npus.length, strip, ""],
  ["CPUs", host => host.shape ? host.shape.cpus : 0, host => host.shape ? host.shape.cpus : "", "number"],
  ["Differs", host => host.drift.length, host => host.compared ? host.drift.length + " of " + host.compared : host.drift.length || "", "number"],
  ...later ? [["Since then", host => host.since ? host.since.new.length * 1e6 + host.since.still.length * 1e3 + host.since.fixed.length : -1, sinceOf, ""]] : [],
  ["Strategy", host => host.divided ? host.plan.strategy : "", host => host.divided ? host.plan.strategy : "", ""],
  ["Local", host => local(host) === null ? -1 : local(host), host => percent(local(host)), "number"],
  ["Machine", host => host.product, host => host.product, ""],
];
const link = host => "#host=" + encodeURIComponent(host.name);

function strip(host) {
  const bad = drifting(host), shapes = {ok: "", off: "", bad: "", gone: ""}, per = 16;
  host.npus.forEach((npu, index) => {
    const x = index % per * 11, y = Math.floor(index / per) * 11;
    const pool = host.plan && host.plan.npus[index];
    if (npu.gone) shapes.gone += `M${x + 1} ${y + 1}l7 7m0-7l-7 7`;
    else if (bad.has(index)) shapes.bad += `M${x + 4.5} ${y - .5}l5 5l-5 5l-5-5z`;
    else if (pool && host.bound) shapes.ok += `M${x} ${y}h9v9h-9z`;
    else shapes.off += `M${x + .5} ${y + .5}h8v8h-8z`;
  });
  const count = host.npus.length, wide = Math.min(count, per) * 11, high = Math.ceil(count / per) * 11;
  const words = counted(count - host.gpus, host.gpus) + (bad.size ? ", " + bad.size + " drifting" : host.bound ? "" : ", not bound");
  return count ? s("svg", {class: "strip", role: "img", "aria-label": words, width: wide + 1, height: high + 1, viewBox: `-1 -1 ${wide + 1} ${high + 1}`},
    s("title", {}, words), Object.entries(shapes).map(([look, path]) => path && s("path", {class: look, d: path}))) : "";
}

/* The rows of a table, each {name, make}. Of many, those near the window are there; another part is one empty row, as high as its rows were or are
   likely to be. What is printed has all of them. */
const MANY = 300, PART = 100, ROW = 43;
let drawAll = () => {};
addEventListener("beforeprint", () => drawAll());
function rowsOf(table) {
  const bodies = new Map();
  const watch = new IntersectionObserver(seen => { for (const {target, isIntersecting} of seen) if (bodies.has(target)) draw(target, isIntersecting); }, {rootMargin: "1500px 0px"});
  function draw(body, near) {
    const part = bodies.get(body);
    if (part.there === near) return;
    if (part.there) part.high = body.offsetHeight;
    part.there = near;
    if (near) return body.replaceChildren(...part.items.map(item => item.row = item.row || item.make()));
    const cell = h("td", {});
    cell.style.height = part.high + "px";
    body.replaceChildren(h("tr", {class: "gap"}, cell));
  }
  drawAll = () => { watch.disconnect(); for (const body of bodies.keys()) draw(body, true); };
  return {
    show(items) {
      watch.disconnect();
      for (const body of bodies.keys()) body.remove();
      bodies.clear();
      const size = items.length > MANY ? PART : items.length || 1;
      for (let start = 0; start < items.length; start += size) bodies.set(h("tbody", {}), {items: items.slice(start, start + size), high: ROW * size, there: null});
      table.append(...bodies.keys());
      let first = true;
      for (const body of bodies.keys()) { draw(body, first); first = false; }
      if (bodies.size > 1) for (const body of bodies.keys()) watch.observe(body);
    },
    /* Return the row of a host, which is there then. */
    find(name) {
      for (const [body, part] of bodies) {
        const item = part.items.find(one => one.name === name);
        if (item) { draw(body, true); return item.row; }
      }
      return null;
    },
  };
}

const total = number => data.hosts.reduce((sum, host) => sum + number(host), 0);
function planned(host) {
  if (!host.divided) return "no plan";
  const pools = Object.values(host.plan.npus).map(entry => expand(entry.pool).length), least = Math.min(...pools), most = maximum(pools, 0);
  return [host.plan.strategy, counted(host.npus.length - host.gpus, host.gpus), pools.length ? (least === most ? least : least + " to " + most) + " CPUs each" : "",
    local(host) === null ? "" : percent(local(host)) + " local", host.product].filter(Boolean).join(", ");
}

/* ---- downloads: of the hosts that the table shows, in its order ---- */
function save(ending, type, text) {
  const anchor = h("a", {href: URL.createObjectURL(new Blob([text], {type})), download: "npu-affinity." + ending});
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
}
const summaryOf = host => ({host: host.name, state: host.state, why: host.why, npus: host.npus.length - host.gpus, gpus: host.gpus, cpus: host.shape ? host.shape.cpus : null,
  differs: host.drift.length, compared: host.compared, strategy: host.plan ? host.plan.strategy : "", local: local(host), machine: host.product});
const jsonOf = hosts => JSON.stringify(hosts.map(host => ({...summaryOf(host), since: host.since, drift: host.drift, users: host.users, holders: host.holders, groups: host.groups, remarks: host.remarks})), null, 1);
function csvOf(hosts) {
  const rows = hosts.map(host => ({...summaryOf(host), ...later ? Object.fromEntries(Object.keys(SINCE).map(key => [key, host.since ? host.since[key].length : null])) : {}}));
  const word = value => { /* a spreadsheet takes what begins so for a formula */
    const text = String(value === null ? "" : value).replace(/^[=+@\t\r-]/, "'$&");
    return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  };
  return [Object.keys(rows[0] || {}), ...rows.map(Object.values)].map(row => row.map(word).join(",")).join("\r\n") + "\r\n";
}

function showFleet(focus) {
  document.title = data.title;
  const counts = Object.fromEntries(ORDER.map(state => [state, data.hosts.filter(host => host.state === state).length]));
  const rows = data.hosts.map(host => ({host, name: host.name, row: null, make: () => row(host), keys: COLUMNS.map(column => column[1](host))}));
  rows.sort((a, b) => naturally(a.name, b.name)).forEach((entry, place) => { entry.place = entry.keys[0] = place; });
  const said = h("p", {class: "quiet", role: "status"});
  const heads = COLUMNS.map(([title, , , look], column) => h("th", {class: "sort " + look, scope: "col"}, h("button", {type: "button", onclick: () => {
    fleet.down = fleet.column === column && !fleet.down;
    fleet.column = column;
    update();
  }}, title)));
  const tiles = ORDER.map(state => h("button", {type: "button", class: "tile", "aria-pressed": fleet.states.has(state), disabled: !counts[state], title: STATES[state][2],
    onclick: event => {
      const on = !fleet.states.delete(state);
      if (on) fleet.states.add(state);
      event.currentTarget.setAttribute("aria-pressed", on);
      update();
    }}, h("b", {}, String(counts[state])), pill(state)));
  const search = h("input", {type: "search", placeholder: "Search hosts, causes, machines …", "aria-label": "Search", value: fleet.words,
    oninput: () => { fleet.words = search.value; update(); }});

  function update() {
    const words = fleet.words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter(({host}) => (!fleet.states.size || fleet.states.has(host.state)) && words.every(word => host.text.includes(word))
      && (!fleet.group || host.groups.includes(fleet.group)) && (!fleet.since || host.since && host.since[fleet.since].length));
    const compare = (a, b) => typeof a === "number" ? a - b : naturally(a, b);
    found.sort((a, b) => compare(a.keys[fleet.column], b.keys[fleet.column]) * (fleet.down ? -1 : 1) || a.place - b.place);
    body.show(fleet.grouped ? grouped(found) : found);
    fleet.shown = found.map(entry => entry.host);
    heads.forEach((head, column) => head.setAttribute("aria-sort", column === fleet.column ? fleet.down ? "descending" : "ascending" : "none"));
    said.textContent = found.length === rows.length ? many(rows.length, "host") : found.length + " of " + many(rows.length, "host");
  }
  /* One plan after the other, the one of most hosts first; the order within a plan is that of the table. */
  function grouped(found) {
    const groups = new Map();
    for (const entry of found) groups.set(entry.host.divided, groups.get(entry.host.divided) || []).get(entry.host.divided).push(entry);
    const largest = [...groups.values()].sort((a, b) => b.length - a.length);
    found.splice(0, found.length, ...largest.flat());
    return largest.flatMap(entries => [{make: () => h("tr", {class: "group"}, h("th", {colspan: COLUMNS.length, scope: "rowgroup"}, planned(entries[0].host), h("span", {class: "quiet"}, " · " + many(entries.length, "host"))))},
      ...entries]);
  }
  const row = host => h("tr", {onclick: event => { if (!event.target.closest("a") && !String(getSelection())) go(link(host)); }},
    COLUMNS.map(([title, , cell, look]) => h("td", {class: look, "data-title": title}, cell(host))));

  const since = later && h("div", {class: "bar noprint", role: "group", "aria-label": "Since the earlier run"}, h("span", {class: "quiet"}, "Since the earlier run:"),
    Object.entries(SINCE).map(([key, words]) => h("button", {type: "button", "data-since": key, "aria-pressed": fleet.since === key, onclick: event => {
      fleet.since = fleet.since === key ? "" : key;
      for (const button of event.currentTarget.parentNode.querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.since === fleet.since);
      update();
    }}, words, " ", h("b", {}, String(data.hosts.filter(host => host.since && host.since[key].length).length)))));
  const names = [...new Set(data.hosts.flatMap(host => host.groups))].sort(naturally);
  const inGroup = h("select", {"aria-label": "Group", onchange: () => { fleet.group = inGroup.value; update(); }},
    h("option", {value: ""}, "all groups"), names.map(name => h("option", {value: name, selected: name === fleet.group}, name)));
  const group = h("input", {type: "checkbox", checked: fleet.grouped, onchange: () => { fleet.grouped = group.checked; update(); }});
  const causes = new Map();
  for (const host of data.hosts) for (const cause of new Set(host.drift.map(entry => entry.cause))) causes.set(cause, (causes.get(cause) || 0) + 1);
  let x = 0;
  const share = s("svg", {viewBox: `0 0 ${data.hosts.length || 1} 1`, preserveAspectRatio: "none", "aria-hidden": "true"}, [...ORDER].reverse().map(state => {
    x += counts[state];
    return counts[state] && s("rect", {class: "f-" + STATES[state][0], x: x - counts[state], width: counts[state], height: 1});
  }));
  const table = h("table", {id: "fleet", "aria-rowcount": data.hosts.length + 1}, h("thead", {}, h("tr", {}, heads))), body = rowsOf(table);
  put(app,
    h("a", {class: "skip", href: "#", onclick: event => { event.preventDefault(); search.focus(); }}, "To the search"),
    h("header", {class: "bar"}, h("div", {class: "grow"}, h("h1", {tabindex: -1}, data.title),
      h("div", {class: "quiet"}, [many(data.hosts.length, "host"), counted(total(host => host.npus.length - host.gpus), total(host => host.gpus)), data.generated].filter(Boolean).join(" · "))),
      themeButton(), helpButton()),
    h("div", {class: "tiles noprint", role: "group", "aria-label": "Hosts by state"}, tiles),
    h("div", {class: "share"}, share),
    h("div", {class: "bar"}, h("div", {class: "grow noprint"}, search), causes.size ? h("div", {class: "bar noprint"}, h("span", {class: "quiet"}, "Causes:"),
      [...causes].sort((a, b) => b[1] - a[1]).map(([cause, count]) => h("button", {type: "button", onclick: () => {
        fleet.words = search.value = search.value === cause ? "" : cause;
        update();
      }}, cause, " ", h("b", {}, count)))) : null, said),
    h("div", {class: "bar noprint tools"}, since, names.length > 1 ? inGroup : null, h("label", {}, group, "group by plan"), h("span", {class: "grow"}),
      h("button", {type: "button", id: "csv", onclick: () => save("csv", "text/csv", csvOf(fleet.shown))}, "Download CSV"),
      h("button", {type: "button", id: "json", onclick: () => save("json", "application/json", jsonOf(fleet.shown))}, "Download JSON")),
    h("div", {class: "scroll"}, table),
    runsTable());
  update();
  const back = focus && body.find(focus);
  if (back) { back.querySelector("a").focus(); back.scrollIntoView({block: "center"}); }
}

/* ---- drift over time ---- */
function runsTable() {
  if (!data.runs.length) return null;
  const most = maximum(data.runs.map(run => run.objects), 1), totals = new Map();
  for (const run of data.runs) for (const [cause, count] of Object.entries(run.causes)) totals.set(cause, (totals.get(cause) || 0) + count);
  const causes = [...totals].sort((a, b) => b[1] - a[1] || naturally(a[0], b[0])).map(([cause]) => cause);
  const number = (title, value) => h("td", {class: "number", "data-title": title}, String(value));
  const bar = run => s("svg", {class: "amount", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true"},
    s("rect", {class: "f-drifted", width: 100 * run.objects / most, height: 10}));
  return [h("h2", {id: "over-time"}, "Drift over time"), h("div", {class: "scroll"}, h("table", {id: "runs", "aria-labelledby": "over-time"},
    h("thead", {}, h("tr", {}, ["Run", "Compared", "Hosts differ", "Objects differ", "", ...causes].map(title =>
      title ? h("th", {scope: "col"}, title) : h("td", {class: "amount"})))),
    h("tbody", {}, data.runs.map(run => h("tr", {}, h("th", {scope: "row"}, run.label),
      number("Compared", run.compared === run.hosts ? run.hosts : `${run.compared} of ${run.hosts}`), number("Hosts differ", run.drifted),
      number("Objects differ", run.objects), h("td", {class: "amount"}, bar(run)),
      causes.map(cause => number(cause, run.causes[cause] || 0)))))))];
}

/* ---- what a CPU is in a view ---- */
const WORDS = {main: "main", pool: "pool", irq: "IRQ", kv: "KV", acl: "ACL", release: "release", housekeeping: "housekeeping", idle: "idle (in no pool)",
  left: "not divided", offline: "offline", shared: "in more than one pool"};

function read(view, shape) {
  const cpus = new Map(), empty = {owners: [], role: "left", irq: []};
  const at = cpu => { if (!cpus.has(cpu)) cpus.set(cpu, {owners: [], role: "", irq: []}); return cpus.get(cpu); };
  for (const [key, entry] of Object.entries(view ? view.npus : {})) {
    const index = Number(key), roles = new Map();
    for (const role of ["main", "kv", "acl", "release", "irq"]) for (const cpu of expand(entry[role])) roles.set(cpu, role);
    for (const cpu of expand(entry.pool)) { at(cpu).owners.push(index); at(cpu).role = roles.get(cpu) || (entry.main ? "main" : "pool"); }
    for (const cpu of expand(entry.irq)) at(cpu).irq.push(index);
  }
  const divided = new Set(expand(view && view.cpus)), kept = new Set(expand(view && view.housekeeping)), offline = new Set(expand(shape.offline));
  return cpu => {
    const found = cpus.get(cpu) || empty;
    let role = found.role;
    if (offline.has(cpu)) role = "offline";
    else if (found.owners.length > 1) role = "shared";
    else if (!found.owners.length) role = kept.has(cpu) ? "housekeeping" : divided.has(cpu) ? "idle" : "left";
    return {owners: role === "offline" ? [] : found.owners, role, irq: found.irq};
  };
}
const same = (a, b) => a.role === b.role && a.owners.join() === b.owners.join() && a.irq.join() === b.irq.join();

/* ---- the picture ---- */
const CW = 28, CH = 25, CORE = 3, LINE = 5, GROUP = 11, PAD = 12, GAP = 14, WIDE = 1240, LINKS = 46;

function grid(shape) {
  const rows = Math.max(1, Math.ceil(shape.nodes.length / 4)), perRow = Math.max(1, Math.ceil(shape.nodes.length / rows));
  const inner = Math.floor((WIDE + GAP) / perRow) - GAP - 2 * PAD, pitch = CW + CORE;
  const groups = shape.nodes.flatMap(node => node.groups), threads = maximum(groups.flatMap(group => group[1].map(core => core.length)), 1);
  const most = Math.max(1, Math.floor((inner + CORE) / pitch)), largest = maximum(groups.map(group => group[1].length), 1);
  let slot = most, columns = most;
  if (largest <= most) {
    slot = largest;
    columns = largest * Math.max(1, Math.floor((inner + GROUP) / (largest * pitch + GROUP)));
  } else for (let count = most; count > most * 2 / 3; count--) if (largest % count === 0) { slot = columns = count; break; }
  return {perRow, inner, pitch, threads, slot, columns, line: threads * CH + (threads === 1 ? CORE : LINE)};
}

function place(node, g, x, y) {
  const places = new Map(), caches = [];
  let column = 0, end = y;
  for (const [cache, cores] of node.groups) {
    const per = cores.length <= g.slot ? g.slot : g.columns;
    if (column && column + per > g.columns) { column = 0; y = end + GROUP; }
    const left = x + column * g.pitch + Math.floor(column / g.slot) * GROUP;
    cores.forEach((core, number) => core.forEach((cpu, thread) =>
      places.set(cpu, [left + number % per * g.pitch, y + Math.floor(number / per) * g.line + thread * CH])));
    const high = Math.ceil(cores.length / per) * g.line - (g.line - g.threads * CH);
    if (cache && node.groups.length > 1) caches.push([left - 4, y - 4, Math.min(cores.length, per) * g.pitch - CORE + 8, high + 8]);
    end = Math.max(end, y + high);
    column += per;
  }
  return {places, caches, end};
}

/* Boxes side by side, each as near to its wish as its neighbours let it. */
function spread(wishes, width, gap, room) {
  const lefts = [];
  wishes.forEach((wish, index) => lefts.push(Math.max(wish - width / 2, index ? lefts[index - 1] + width + gap : 0)));
  for (let index = lefts.length - 1, limit = room - width; index >= 0; index--, limit = lefts[index + 1] - width - gap) lefts[index] = Math.min(lefts[index], limit);
  return lefts;
}

const colour = npu => npu && npu.colour !== null && npu.colour !== undefined ? "c" + npu.colour + (npu.colour < data.solid ? "" : " hollow") : "";
const brief = pci => pci.replace(/^0000:/, "");

function cell(cpu, x, y, now, other, host, badge, drift) {
  const look = state => state.owners.length === 1 ? colour(host.npus[state.owners[0]]) : "";
  const special = role => ["irq", "kv", "acl", "release"].includes(role);
  const group = s("g", {class: ["cell", look(now), special(now.role) ? "role" : now.role, now.owners.length ? "" : "nobody", other ? "split" : ""].join(" "), "data-cpu": cpu === "" ? null : cpu,
    transform: `translate(${x} ${y})`});
  const add = (...parts) => group.append(...parts);
  if (other) {
    const half = (state, path) => s("path", {class: ["half", look(state), special(state.role) ? "role" : "", state.owners.length > 1 ? "many" : "",
      ["left", "offline"].includes(state.role) ? "clear" : ""].join(" "), d: path});
    add(half(now, "M1 1h26l-26 23z"), half(other, "M27 1v23h-26z"), s("path", {class: "cut", d: "M1 24L27 1"}),
      s("rect", {class: "plate", x: 2.5, y: 6.5, width: 23, height: 12, rx: 2}), t(14, 16.5, String(cpu).length > 3 ? "tiny" : "", cpu));
  } else {
    add(s("rect", {class: "fill", x: 1, y: 1, width: 26, height: 23, rx: 3}));
    if (now.role === "housekeeping") add(s("path", {class: "lines", d: "M3 9l6-6m2 0l-6 6m5 0l6-6m2 0l-6 6m5 0l6-6"}));
    if (now.role === "offline") add(s("path", {class: "lines", d: "M10 3l7 7m0-7l-7 7"}));
    if (now.role === "shared") add(s("path", {class: "lines", d: "M2.5 2.5h23v20h-23z"}));
    if (badge) add(t(3.5, 10, "l", badge));
    if (now.role === "kv") add(t(24.5, 10, "r", "K"));
    if (now.role === "acl") add(t(24.5, 10, "r", "A"));
    if (now.role === "release") add(t(24.5, 10, "r", "R"));
    add(t(14, 20, String(cpu).length > 3 ? "tiny" : "", cpu));
  }
  const irq = other ? other.irq.concat(now.irq) : now.irq, own = irq.some(index => now.owners.includes(index));
  if (irq.length && drift && !own) add(s("circle", {class: "foreign", cx: 21.5, cy: 6.8, r: 3}));
  else if (irq.length) add(s("circle", {class: "dot", cx: 21.5, cy: 6.8, r: 3}));
  if (drift) add(s("rect", {class: "ring drift", x: 1, y: 1, width: 26, height: 23, rx: 3}), s("path", {class: "tag", d: "M1 1h9l-9 9z"}));
  else if (other) add(s("rect", {class: "ring", x: 1, y: 1, width: 26, height: 23, rx: 3}));
  return group;
}

function picture(host, view, against, say, pick) {
  const shape = host.shape, g = grid(shape), now = read(view, shape), then = against && read(against, shape);
  const bad = new Map(), used = new Set();
  host.drift.forEach((entry, number) => expand(entry.cpus).forEach(cpu => bad.set(cpu, [...(bad.get(cpu) || []), number])));
  const drifted = drifting(host), ground = s("g", {}), links = s("g", {}), nodes = s("g", {}), cells = s("g", {}), boxes = s("g", {}), ports = s("g", {});
  const where = new Map(), frames = [], home = new Map();
  shape.nodes.forEach((node, number) => node.npus.forEach(index => home.set(index, number)));
  const nodeOf = new Map(shape.nodes.flatMap((node, number) => node.groups.flatMap(group => group[1].flat().map(cpu => [cpu, number]))));
  const pools = new Map(Object.entries(view ? view.npus : {}).map(([index, entry]) => {
    const share = new Map();
    for (const cpu of expand(entry.pool)) if (nodeOf.has(cpu)) share.set(nodeOf.get(cpu), (share.get(nodeOf.get(cpu)) || 0) + 1);
    return [Number(index), share];
  }));
  const tops = new Map();
  let top = 2;
  for (let start = 0; start < shape.nodes.length; start += g.perRow) {
    const row = shape.nodes.slice(start, start + g.perRow);
    const middle = column => column * (g.inner + 2 * PAD + GAP) + g.inner / 2 + PAD;
    const mine = row.flatMap((node, column) => node.npus.map((index, order) => ({index, wish: middle(column) + (order - (node.npus.length - 1) / 2) * 150})));
    const width = Math.max(30, Math.min(146, Math.floor((WIDE - 6 * (mine.length - 1)) / Math.max(1, mine.length))));
    const wishes = row.flatMap((node, column) => node.npus.map((index, order) => middle(column) + (order - (node.npus.length - 1) / 2) * (width + 6)));
    const lefts = spread(wishes, width, 6, WIDE), cards = row.flatMap(node => node.npus).map(index => host.npus[index].card);
    const shared = cards.map((card, order) => card !== undefined && (cards[order - 1] === card || cards[order + 1] === card));
    const lines = mine.map(({index}) => lined(host, index, view, width));
    const high = 30 + 14 * maximum(lines.map(one => one.length), 0), boxTop = top + (shared.some(Boolean) ? 20 : 0);
    mine.forEach(({index}, order) => {
      boxes.append(box(host, index, lines[order], lefts[order], boxTop, width, high, drifted.has(index), pools.has(index), pick));
      tops.set(index, [lefts[order] + width / 2, boxTop, boxTop + high]);
      if (shared[order] && cards[order - 1] !== cards[order]) {
        const last = cards.lastIndexOf(cards[order]), right = lefts[last] + width, words = "card " + cards[order];
        ground.append(s("path", {class: "card", d: `M${lefts[order] + 2} ${boxTop - 3}v-6h${right - lefts[order] - 4}v6`}),
          t((lefts[order] + right) / 2, boxTop - 12, "small q mid", words));
      }
    });
    const framesTop = mine.length ? boxTop + high + LINKS : top;
    const laid = row.map((node, column) => place(node, g, column * (g.inner + 2 * PAD + GAP) + PAD + Math.floor((g.inner - used_width(node, g)) / 2), framesTop + PAD + 24));
    const end = maximum(laid.map(one => one.end), framesTop + PAD + 24) + PAD;
    row.forEach((node, column) => {
      const x = column * (g.inner + 2 * PAD + GAP), count = node.groups.reduce((sum, group) => sum + group[1].reduce((all, core) => all + core.length, 0), 0);
      frames[start + column] = {x, top: framesTop, bottom: end, width: g.inner + 2 * PAD, ports: []};
      nodes.append(s("rect", {class: "node", x: x + .5, y: framesTop + .5, width: g.inner + 2 * PAD, height: end - framesTop, rx: 9}),
        t(x + PAD, framesTop + 22, "b", node.label),
        t(x + g.inner + PAD, framesTop + 22, "small q end", [many(count, "CPU"), node.mib === 0 ? "no memory" : node.mib === null && node.id !== null ? "memory not known" : size(node.mib)].filter(Boolean).join(" · ")));
      for (const [left, y, w, tall] of laid[column].caches) nodes.append(s("rect", {class: "cache", x: left, y, width: w, height: tall, rx: 5}));
      const byLine = [...laid[column].places].sort((a, b) => a[1][1] - b[1][1] || a[1][0] - b[1][0]);
      let line = null, before = null;
      for (const [cpu, [x1, y1]] of byLine) {
        const state = now(cpu), other = then && then(cpu), key = state.owners.join("+"), begins = y1 !== line || key !== before;
        const badge = begins && state.owners.length ? state.owners.length > 2 ? state.owners.length + "×" : state.owners.map(index => host.npus[index].badge).join("+") : "";
        const changed = other && !same(state, other);
        const element = cell(cpu, x1, y1, state, changed ? other : null, host, bad.has(cpu) ? "" : badge, bad.has(cpu));
        where.set(cpu, {x: x1, y: y1, element, state, other: changed ? other : null, node, drift: bad.get(cpu) || []});
        cells.append(element);
        used.add(state.role);
        line = y1;
        before = key;
      }
    });
    top = end + GAP + 8;
  }
  /* links: from the NPU to its node, and to every node that has CPUs of its pool; to another row of nodes, only both ends are drawn */
  const wires = [];
  for (const [index, [x, , y1]] of tops) {
    const share = new Map(pools.get(index) || []), total = [...share.values()].reduce((a, b) => a + b, 0);
    if (!share.has(home.get(index))) share.set(home.get(index), 0);
    for (const [number, count] of share) {
      const wire = {index, number, share: total ? count / total : 0, x1: x, y1, y2: frames[number].top, own: home.get(index) === number,
        near: Math.floor(number / g.perRow) === Math.floor(home.get(index) / g.perRow)};
      wires.push(wire);
      frames[number].ports.push(wire);
    }
  }
  for (const frame of frames) {
    const here = frame.ports.sort((a, b) => a.near - b.near || a.x1 - b.x1);
    const step = Math.min(44, frame.width / (here.length + 1)), first = frame.x + frame.width / 2 - step * (here.length - 1) / 2;
    here.forEach((wire, order) => { wire.x2 = first + order * step; });
    if (here.length === 1 && here[0].near) here[0].x2 = Math.min(Math.max(here[0].x1, frame.x + 30), frame.x + frame.width - 30);
  }
  for (const wire of wires) {
    const npu = host.npus[wire.index], bend = (wire.y2 - wire.y1) / 2, common = {"data-npu": wire.index};
    const kind = wire.share ? wire.own ? "" : "far" : "bare", look = wire.share ? colour(npu) : "";
    const line = d => links.append(s("path", {class: `link ${kind} ${look}`, "stroke-width": wire.share ? 2 + 3 * wire.share : null, ...common, d}));
    if (wire.near) line(`M${wire.x1} ${wire.y1}C${wire.x1} ${wire.y1 + bend} ${wire.x2} ${wire.y2 - bend} ${wire.x2} ${wire.y2}`);
    else {
      const aside = wire.x1 + 12 * (wires.filter(other => other.index === wire.index && !other.near).indexOf(wire));
      line(`M${aside} ${wire.y1}v14`);
      line(`M${wire.x2} ${wire.y2 - 26}v26`);
      links.append(fill(t(aside, wire.y1 + 25, "small q mid", "→ " + (shape.nodes[wire.number].id ?? "?")), common, []));
    }
    if (!wire.own && wire.share) {
      const wide = 10 + 7 * npu.badge.length;
      ports.append(s("g", {class: "mark " + look, ...common}, s("rect", {class: "chip", x: wire.x2 - wide / 2, y: wire.y2 - 8, width: wide, height: 16, rx: 4}),
        s("text", {x: wire.x2, y: wire.y2 + 4.5, class: "badge"}, npu.badge)));
    } else ports.append(s("circle", {class: "port " + look, cx: wire.x2, cy: wire.y2, r: 4, ...common}));
    used.add(kind ? "link " + kind : "link own");
  }
  const cursor = s("rect", {class: "cursor", width: CW, height: CH, rx: 4, x: -100, y: -100});
  const words = `${host.name}, ${view ? view.label : "no plan"}: ${many(shape.cpus, "CPU")} in ${many(shape.nodes.length, "NUMA node")}, ${many(host.npus.length, noun(host))}`;
  const svg = s("svg", {class: "picture", viewBox: `0 0 ${WIDE + 1} ${Math.ceil(top - GAP)}`, role: "application", tabindex: 0,
    "aria-roledescription": "CPU picture", "aria-label": words + ". Arrow keys walk over the CPUs. The tables below say the same."}, links, ground, nodes, ports, boxes, cells, cursor);
  if (where.size && shape.nodes.some(node => node.groups.length > 1)) used.add("caches");
  if (g.threads > 1) used.add("threads");
  if (bad.size) used.add("drift");
  if ([...where.values()].some(one => one.other)) used.add("split");
  let current = null;
  function walk(cpu) {
    const at = where.get(cpu);
    current = cpu;
    cursor.setAttribute("x", at.x);
    cursor.setAttribute("y", at.y);
    say(described(host, cpu, at, view, against));
  }
  svg.addEventListener("pointerover", event => {
    const hit = event.target.closest("[data-cpu]");
    if (hit) say(described(host, Number(hit.dataset.cpu), where.get(Number(hit.dataset.cpu)), view, against));
  });
  svg.addEventListener("click", event => { const hit = event.target.closest("[data-cpu]"); if (hit) walk(Number(hit.dataset.cpu)); });
  svg.addEventListener("keydown", event => {
    const step = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey || !where.size) return;
    event.preventDefault();
    event.stopPropagation();
    if (current === null) return walk(Math.min(...where.keys()));
    const from = where.get(current);
    let best = null, least = Infinity;
    for (const [cpu, at] of where) {
      const along = (at.x - from.x) * step[0] + (at.y - from.y) * step[1], across = Math.abs((at.x - from.x) * step[1]) + Math.abs((at.y - from.y) * step[0]);
      const cost = along + 6 * across;
      if (along > 0 && cost < least) { best = cpu; least = cost; }
    }
    if (best !== null) walk(best);
  });
  return {svg, used, where};
}
function used_width(node, g) {
  const at = place(node, g, 0, 0).places;
  return maximum([...at.values()].map(([x]) => x + CW), 0);
}

function lined(host, index, view, width) {
  const npu = host.npus[index], entry = view && view.npus[index], lines = [];
  if (npu.pci && width > 60) lines.push(["m q", width > 110 ? npu.pci : brief(npu.pci)]);
  if (width > 60) {
    const most = Math.max(4, Math.floor((width - 14) / 6.4)), pool = entry ? entry.pool || "no pool" : "no pool";
    let line = "";
    for (const part of pool.split(/(?<=,)/)) {
      if (line && (line + part).length > most) { lines.push(["m", line]); line = ""; }
      line += part;
    }
    lines.push(["m", line.slice(0, most)]);
    if (lines.length > 4) lines.splice(3, lines.length, ["m", "…"]);
  }
  if (npu.gone) lines.push(["small q", "lost"]);
  return lines;
}

function box(host, index, lines, x, y, width, high, drift, has, pick) {
  const npu = host.npus[index], wide = Math.min(width - 6, 10 + 9 * npu.badge.length + 6), room = Math.floor((width - wide - 16 - (drift ? 18 : 0)) / 6.4);
  const toggle = () => pick(index);
  return s("g", {class: ["npu", colour(npu), drift ? "drift" : "", has ? "" : "none"].join(" "), "data-npu": index, onclick: toggle},
    s("title", {}, [npu.label, npu.name, npu.pci, npu.node === null ? "NUMA node unknown" : "attached to NUMA node " + npu.node, npu.busy ? "busy" : ""].filter(Boolean).join(", ")),
    s("rect", {class: "box", x, y, width, height: high, rx: 7}),
    s("rect", {class: "chip", x: x + 5, y: y + 5, width: wide, height: 19, rx: 4}), t(x + 5 + wide / 2, y + 19.5, "badge", npu.badge),
    room > 3 ? t(x + wide + 12, y + 19, "small", npu.name.slice(0, room)) : null,
    drift ? [s("rect", {class: "tag", x: x + width - 19, y: y + 5, width: 14, height: 14, rx: 3}), t(x + width - 12, y + 15.8, "on-tag", "!")] : null,
    lines.map(([look, line], number) => t(x + 7, y + 38 + 14 * number, look, line)));
}

function whose(host, state) {
  const names = indexes => indexes.map(index => host.npus[index].label).join(" and ");
  const foreign = state.irq.filter(index => !state.owners.includes(index));
  return (state.owners.length ? names(state.owners) + ", " : "") + WORDS[state.role] + (foreign.length ? ", interrupts of " + names(foreign) : "");
}
function described(host, cpu, at, view, against) {
  const siblings = at.node.groups.flatMap(group => group[1]).find(core => core.includes(cpu)).filter(other => other !== cpu);
  const cache = (at.node.groups.find(group => group[1].some(core => core.includes(cpu))) || [""])[0];
  const parts = [h("b", {}, "CPU " + cpu), at.node.label, siblings.length ? "sibling " + siblings.join(", ") : "", cache ? "cache " + cache : "",
    at.other ? view.label + ": " + whose(host, at.state) + " → " + against.label + ": " + whose(host, at.other) : whose(host, at.state)].filter(Boolean);
  const line = parts.flatMap((part, number) => number ? [" · ", part] : [part]);
  for (const number of at.drift) {
    const entry = host.drift[number];
    line.push(" · ", h("span", {class: "alarm"}, `${entry.object}: expected ${entry.expected}, found ${entry.found}`));
  }
  return line;
}

/* ---- the legend: what occurs, and only that ---- */
function legend(host, used, view, against) {
  const sample = host.npus.findIndex((npu, index) => colour(npu) && view && view.npus[index]), entries = [];
  const swatch = (...parts) => s("svg", {width: CW, height: CH, viewBox: `0 0 ${CW} ${CH}`, "aria-hidden": "true"}, parts);
  const state = role => ({owners: WORDS[role] && !["housekeeping", "idle", "left", "offline"].includes(role) ? [Math.max(0, sample)] : [], role, irq: role === "irq" ? [Math.max(0, sample)] : []});
  const blank = (...given) => { const made = cell("", 0, 0, ...given); return swatch(made); };
  if (sample >= 0) entries.push([blank(state("main"), null, host, host.npus[sample].badge, false), `number of the ${noun(host)}`]);
  for (const role of Object.keys(WORDS)) if (used.has(role)) {
    const one = state(role);
    if (role === "shared") one.owners = [0, 0];
    entries.push([blank(one, null, host, "", false), WORDS[role]]);
  }
  if (used.has("drift")) entries.push([blank(state("main"), null, host, "", true), "the kernel differs: drift"]);
  if (used.has("split")) {
    const parts = [s("path", {class: "half " + (sample >= 0 ? colour(host.npus[sample]) : ""), d: "M1 1h26l-26 23z"}), s("path", {class: "half many", d: "M27 1v23h-26z"}), s("rect", {class: "ring", x: 1, y: 1, width: 26, height: 23, rx: 3})];
    entries.push([swatch(parts), `differs: ${view.label} (upper left), ${against.label} (lower right)`]);
  }
  const wire = kind => swatch(s("path", {class: "link " + kind + " " + (sample >= 0 && kind !== "bare" ? colour(host.npus[sample]) : ""), "stroke-width": 4, d: "M0 12h28"}));
  if (used.has("link own")) entries.push([wire(""), `CPUs on the ${noun(host)}'s own node`]);
  if (used.has("link far")) entries.push([wire("far"), "CPUs on another node (→ its number)"]);
  if (used.has("link bare")) entries.push([wire("bare"), "attached here, no CPUs here"]);
  if (used.has("caches")) entries.push([swatch(s("rect", {class: "cache", x: 2, y: 2, width: 24, height: 21, rx: 5})), "CPUs that share a cache"]);
  const legends = entries.map(([swatch_, words]) => h("span", {}, swatch_, words));
  if (used.has("threads")) legends.push(h("span", {class: "quiet"}, "The threads of a core are above each other."));
  return h("div", {class: "legend"}, legends);
}

/* ---- a host ---- */
function showHost(host) {
  document.title = host.name + " – " + data.title;
  const views = host.views.filter(view => !view.refused), kernel = views.find(view => view.kind === "kernel");
  let shown = views[0] || null, against = host.drift.length && kernel ? kernel : null, picked = null, side = false;
  const option = (view, number) => h("option", {value: number}, view.label);
  const choose = h("select", {"aria-label": "Show", onchange: () => { shown = views[choose.value]; draw(); }}, views.map(option));
  const other = h("select", {"aria-label": "Compare with", onchange: () => { against = views[other.value] || null; draw(); }}, h("option", {value: ""}, "nothing"), views.map(option));
  const swap = h("button", {type: "button", title: "Swap (x)", "aria-label": "Swap", onclick: swapped}, "⇄");
  const both = h("input", {type: "checkbox", onchange: () => { side = both.checked; draw(); }});
  const said = h("div", {class: "readout", role: "status"});
  const nothing = "Point at a CPU, or give the picture the focus and walk with the arrow keys. Click an NPU or GPU to show only its CPUs.";
  const say = parts => put(said, parts || nothing);
  const pictures = h("div", {class: "pictures"}), key = h("div", {}), table = h("div", {}), reason = h("div", {class: "reason"}), memory = h("div", {});
  host.swap = swapped;

  function swapped() {
    if (!against) return;
    [shown, against] = [against, shown];
    draw();
  }
  function pick(index) {
    picked = picked === index ? null : index;
    mark();
  }
  function mark() {
    for (const svg of pictures.querySelectorAll("svg.picture")) {
      svg.classList.toggle("dim", picked !== null);
      for (const element of svg.querySelectorAll("[data-npu]")) element.classList.toggle("on", Number(element.dataset.npu) === picked);
      for (const [, at] of svg.where) at.element.classList.toggle("on", picked !== null && [at.state, at.other].some(state => state && (state.owners.includes(picked) || state.irq.includes(picked))));
    }
    for (const button of table.querySelectorAll("button")) button.setAttribute("aria-pressed", Number(button.dataset.npu) === picked);
  }
  function draw() {
    choose.value = String(views.indexOf(shown));
    other.value = against ? String(views.indexOf(against)) : "";
    if (against === shown) { against = null; other.value = ""; }
    swap.disabled = both.disabled = !against;
    const wanted = side && against ? [[shown, against], [against, shown]] : [[shown, against]];
    const used = new Set();
    pictures.className = "pictures" + (wanted.length > 1 ? " two" : "");
    put(pictures, host.shape ? wanted.map(([view, with_]) => {
      const made = picture(host, view, wanted.length > 1 ? null : with_, say, pick);
      if (wanted.length > 1) {
        const mine = read(view, host.shape), theirs = read(with_, host.shape);
        for (const [cpu, at] of made.where) if (!same(mine(cpu), theirs(cpu)) && !at.drift.length) at.element.append(s("rect", {class: "ring", x: 1, y: 1, width: 26, height: 23, rx: 3}));
      }
      made.svg.where = made.where;
      made.used.forEach(one => used.add(one));
      return h("figure", {}, wanted.length > 1 ? h("figcaption", {}, view.label) : null, h("div", {class: "frameless"}, made.svg));
    }) : h("p", {class: "quiet"}, "There is no topology of this host to draw."));
    put(key, host.shape && legend(host, used, shown, against));
    put(reason, sentencesOf(host, shown, against));
    put(table, host.npus.length && npuTable(host, shown, against, pick));
    put(memory, memoryOf(host, shown));
    say(null);
    mark();
  }

  const list = fleet.shown && fleet.shown.includes(host) ? fleet.shown : data.hosts, at = list.indexOf(host);
  const step = (by, words) => { const next = list[at + by]; return next ? h("a", {href: link(next), class: "noprint", title: words}, by < 0 ? "← " + next.name : next.name + " →") : null; };
  const title = h("h1", {tabindex: -1}, host.name);
  const refusals = host.views.filter(view => view.refused).map(view => h("li", {}, h("b", {}, view.label + ": "), view.refused));
  const remarks = [...refusals, ...host.remarks.map(sentence => h("li", {}, sentence))];
  put(app,
    h("nav", {class: "bar noprint"}, h("a", {href: "#", id: "back"}, "↑ All hosts"), h("span", {class: "grow"}), step(-1, "Previous host (p)"), step(1, "Next host (n)"), themeButton(), helpButton()),
    h("header", {class: "panel"}, h("div", {class: "bar"}, title, pill(host.state), h("span", {class: "grow"}),
      h("span", {class: "quiet"}, host.compared ? `${host.drift.length} of ${host.compared} compared objects differ` : "")),
      host.why ? h("p", {class: "reason"}, host.why) : null,
      h("div", {class: "facts"}, [["Machine", host.product], ["CPUs", host.shape && host.shape.cpus], ["NPUs", host.npus.length - host.gpus], ["GPUs", host.gpus], ...host.facts].filter(([, value]) => value).map(([name, value]) => h("span", {}, name + " ", h("b", {}, value))))),
    host.drift.length ? [h("h2", {}, "What differs"), driftTable(host), command(host.bind)] : "",
    host.holders.length ? [h("h2", {}, "Work on this host"), holderTable(host)] : "",
    h("section", {class: "panel", "aria-label": "Picture"},
      h("div", {class: "bar noprint"}, views.length ? [h("label", {}, "Show ", choose), h("label", {}, "Compare with ", other), swap, h("label", {}, both, "two pictures")] : h("span", {class: "quiet"}, "There is no plan to show.")),
      reason, pictures, key, h("div", {class: "noprint"}, said)),
    host.since && host.since.fixed.length ? [h("h2", {}, "Fixed since the earlier run"), h("ul", {class: "sentences", id: "fixed"}, host.since.fixed.map(object => h("li", {}, object)))] : "",
    host.users.length ? [h("h2", {}, "Services and workloads"), userTable(host)] : "",
    host.npus.length ? h("h2", {}, noun(host)[0].toUpperCase() + noun(host).slice(1) + "s") : "", table, memory,
    remarks.length ? h("h2", {}, "Remarks") : "", remarks.length ? h("ul", {class: "sentences"}, remarks) : "");
  draw();
  scrollTo(0, 0);
  title.focus({preventScroll: true});
}

function sentencesOf(host, shown, against) {
  const one = view => view ? [h("b", {}, view.label), view.strategy ? `: ${view.strategy}. ${view.kind === "kernel" ? "What the kernel was found to have." : view.reason}` : "",
    view.kind === "plan" && typeof view.local === "number" ? ` ${percent(view.local)} of the CPUs are local to their ${noun(host)}.` : ""] : [];
  const list = view => view ? [...view.violations.map(sentence => h("li", {class: "alarm"}, sentence)), ...view.warnings.map(sentence => h("li", {}, sentence)), ...view.repaired.map(sentence => h("li", {}, "Repaired: " + sentence))] : [];
  const details = list(shown);
  return [h("div", {}, one(shown)), against ? h("div", {}, one(against)) : "", details.length ? h("details", {open: details.length < 3}, h("summary", {}, many(details.length, "remark") + " on this plan"), h("ul", {class: "sentences"}, details)) : ""].filter(Boolean);
}

function driftTable(host) {
  return h("div", {class: "scroll"}, h("table", {id: "drift"}, h("thead", {}, h("tr", {}, ["What", "Expected", "Found", "Likely cause"].map(title => h("th", {scope: "col"}, title)))),
    h("tbody", {}, host.drift.map(entry => h("tr", {}, h("td", {"data-title": "What"}, h("b", {}, entry.object), host.since && host.since.new.includes(entry.object) ? h("span", {class: "fresh"}, "new") : "", h("div", {class: "quiet"}, entry.kind + (entry.npu === null ? "" : ", " + host.npus[entry.npu].label))), h("td", {class: "mono", "data-title": "Expected"}, entry.expected), h("td", {class: "mono alarm", "data-title": "Found"}, entry.found), h("td", {"data-title": "Likely cause"}, entry.cause + ": " + entry.remark, h("div", {class: "quiet"}, entry.code + (entry.muted ? ", " + entry.muted : ""))))))));
}

/* What somebody types next, with a button that copies it; where the browser has no clipboard for this page, the text is selected. */
function command(line) {
  const code = h("code", {}, line);
  const button = h("button", {type: "button", class: "noprint", title: "Copy the command", onclick: async () => {
    try { await navigator.clipboard.writeText(line); button.textContent = "Copied"; } catch { getSelection().selectAllChildren(code); button.textContent = "Selected"; }
  }}, "Copy");
  return h("div", {class: "command"}, code, button);
}

function holderTable(host) {
  const heads = ["Work", "Runs on", "Pool", ...host.holders.some(user => user.outside) ? ["Remedy"] : []];
  return h("div", {class: "scroll"}, h("table", {id: "holders"}, h("thead", {}, h("tr", {}, heads.map(title => h("th", {scope: "col"}, title)))),
    h("tbody", {}, host.holders.map(user => {
      const cells = [[h("b", {}, user.title), user.outside ? h("div", {class: "alarm"}, user.cause || "outside its pool") : ""], parted(user.cpus), parted(user.pool), user.command ? command(user.command) : user.next];
      return h("tr", {}, heads.map((title, number) => h("td", {class: (number === 1 || number === 2 ? "mono" : "") + (number === 1 && user.outside ? " alarm" : ""), "data-title": title}, cells[number])));
    }))));
}

function userTable(host) {
  const heads = ["Name", "Uses", "CPUs", "Memory"];
  return h("div", {class: "scroll"}, h("table", {id: "users"}, h("thead", {}, h("tr", {}, heads.map(title => h("th", {scope: "col"}, title)))),
    h("tbody", {}, host.users.map(user => {
      const cells = [[h("b", {}, user.name), h("div", {class: "quiet"}, [user.kind, ...user.units].join(", "))], user.npus.join(", "), parted(user.pool), parted(user.mems)];
      return h("tr", {}, cells.map((cell, number) => h("td", {class: number > 1 ? "mono" : "", "data-title": heads[number]}, cell)));
    }))));
}

/* A cpulist that breaks between its parts only. */
const parted = cpulist => cpulist && cpulist.split(/(?<=,)/).map(part => [h("span", {class: "nowrap"}, part), h("wbr")]);

function npuTable(host, shown, against, pick) {
  const withKv = [shown, against].some(view => view && Object.values(view.npus || {}).some(npu => npu.kv));
  const drifted = drifting(host), fields = [["pool", "Pool"], ["irq", "IRQ"], ["main", "main"], ...(withKv ? [["kv", "KV"]] : []), ["acl", "ACL"], ["release", "release"], ["memory_nodes", "Memory"], ["slice", "Slice"]];
  const value = (view, index, field) => view && view.npus[index] && view.npus[index][field] || "";
  const cellOf = (index, field) => {
    const one = value(shown, index, field), two = value(against, index, field);
    return against && one !== two ? [h("del", {}, parted(one) || "none"), " → ", h("ins", {}, parted(two) || "none")] : parted(one);
  };
  return h("div", {class: "scroll"}, h("table", {id: "npus"}, h("thead", {}, h("tr", {}, [noun(host), "Name", "PCI", "Node", ...fields.map(([, title]) => title)].map(title => h("th", {scope: "col", class: title === "Node" ? "number" : ""}, title)))),
    h("tbody", {}, host.npus.map((npu, index) => h("tr", {},
      h("td", {class: "nowrap", "data-title": noun(host)}, h("button", {type: "button", "aria-pressed": false, "data-npu": index, title: "Show only its CPUs", onclick: () => pick(index)}, npu.label), drifted.has(index) ? h("span", {class: "alarm"}, " ! drift") : ""),
      h("td", {"data-title": "Name"}, npu.name), h("td", {class: "mono", "data-title": "PCI"}, npu.pci), h("td", {class: "number", "data-title": "Node"}, npu.node === null ? "?" : String(npu.node)),
      fields.map(([field, title]) => h("td", {class: "mono", "data-title": title}, cellOf(index, field))))))));
}

function memoryOf(host, view) {
  const most = maximum(host.memory.flatMap(group => group.processes.map(process => Object.values(process.memory).reduce((a, b) => a + b, 0))), 1);
  return host.memory.map(group => memoryTable(host, view, group, most));
}
function memoryTable(host, view, group, most) {
  const at = process => host.npus.findIndex(npu => npu.label.replace(/^\D+/, "") === String(process.npus[0]));
  const title = process => process.npus.length ? host.npus[at(process)].label.replace(/\d+$/, "") + compress(process.npus) + " " : "";
  const rows = group.processes.map(process => ({process, index: at(process), total: Object.values(process.memory).reduce((a, b) => a + b, 0)})).sort((a, b) => a.index - b.index || a.process.pid - b.process.pid);
  return [h("h2", {}, "Memory of processes by NUMA node", group.label ? h("span", {class: "quiet"}, " – " + group.label) : ""), h("div", {class: "memory"}, rows.map(({process, index, total}) => {
    const npu = host.npus[index], mems = process.wanted || view && view.npus[index] && view.npus[index].memory_nodes, own = new Set(mems ? expand(mems).map(String) : npu && npu.node !== null ? [String(npu.node)] : []);
    const parts = Object.entries(process.memory).filter(([, mib]) => mib > 0).sort((a, b) => own.has(b[0]) - own.has(a[0]) || naturally(a[0], b[0]));
    const near = parts.reduce((sum, [node, mib]) => sum + (own.has(node) ? mib : 0), 0), bar = s("svg", {role: "img", class: npu ? colour(npu) : "", "aria-label": parts.map(([node, mib]) => `node ${node}: ${size(mib)}`).join(", ")});
    let x = 0;
    for (const [node, mib] of parts) {
      const away = own.size && !own.has(node), w = mib / most * 100, words = `node ${node} · ${size(mib)}`;
      bar.append(s("rect", {class: "seg" + (away ? " away" : ""), x: x + "%", y: 1.5, width: w + "%", height: 21}, s("title", {}, words)));
      if (away) bar.append(s("rect", {x: x + "%", y: 1.5, width: w + "%", height: 21, fill: "url(#hatch)", "pointer-events": "none"}));
      if (w > 12) bar.append(s("text", {x: x + .6 + "%", y: 16, class: away ? "away" : ""}, words));
      else if (w > 4) bar.append(s("text", {x: x + .4 + "%", y: 16, class: away ? "away" : ""}, node));
      x += w;
    }
    return [h("div", {class: "name", title: `${process.name} (${process.pid})`}, npu ? h("b", {}, title(process)) : "", process.name, " ", h("span", {class: "quiet"}, process.pid)), bar,
      h("div", {}, size(total), total && own.size ? [" · ", h("span", {class: near < total * .95 ? "alarm" : ""}, percent(near / total) + " local")] : " · share of local memory not known")];
  })), h("p", {class: "quiet"}, "Solid: on the memory nodes of its slice. Hatched: elsewhere. Every bar has the same scale.")];
}
document.body.append(s("svg", {width: 0, height: 0, "aria-hidden": "true"}, s("defs", {}, s("pattern", {id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"}, s("path", {class: "hatch", d: "M0 0v6"})))));

/* ---- where we are, and the keyboard ---- */
let current = null, shown = null;
function route() {
  if (location.hash === shown) return;
  shown = location.hash;
  const match = /^#host=(.*)$/.exec(location.hash);
  let name = null;
  try { name = match && decodeURIComponent(match[1]); } catch { name = null; }
  const named = wanted => data.hosts.find(one => one.name === wanted);
  /* A monitoring system names a host with the port of its exporter. */
  const host = name === null ? null : named(name) || named(name.replace(/:\d+$/, "")), before = current;
  current = host || null;
  if (host) showHost(host);
  else showFleet(before && before.name);
}
/* At once: the browser says "hashchange" only later, and the next key would still work on what was shown before. */
function go(hash) {
  location.hash = hash;
  route();
}
addEventListener("hashchange", route);
addEventListener("click", event => {
  const anchor = event.target.closest("a[href^='#']");
  if (!anchor || event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(anchor.getAttribute("href"));
});
addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox", search = document.querySelector("input[type=search]");
  if (event.key === "Escape") {
    if (current) go("#");
    else if (search && search.value) { search.value = ""; search.dispatchEvent(new Event("input")); }
    else if (typing) event.target.blur();
    return;
  }
  const links = [...document.querySelectorAll("#fleet tbody a")];
  if (typing) {
    if ((event.key === "ArrowDown" || event.key === "Enter") && event.target === search && links.length) { links[0].focus(); event.preventDefault(); }
    return;
  }
  const here = links.indexOf(document.activeElement), to = step => { const next = links[Math.min(Math.max(here + step, 0), links.length - 1)]; if (next) { next.focus(); event.preventDefault(); } };
  if (event.key === "t") nextTheme();
  else if (event.key === "?") help();
  else if (event.key === "/" && search) { search.focus(); search.select(); event.preventDefault(); }
  else if (!current && (event.key === "j" || event.key === "ArrowDown" && here >= 0)) to(1);
  else if (!current && (event.key === "k" || event.key === "ArrowUp" && here >= 0)) to(-1);
  else if (current && event.key === "x") current.swap();
  else if (current && (event.key === "n" || event.key === "p")) {
    const list = fleet.shown && fleet.shown.includes(current) ? fleet.shown : data.hosts, next = list[list.indexOf(current) + (event.key === "n" ? 1 : -1)];
    if (next) go(link(next));
  }
});
applyTheme();
route();
})();
