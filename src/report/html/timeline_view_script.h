// The second half of the viewer page's script: it draws what is in sight, adds it up, and answers the
// pointer.
#pragma once

#include <string_view>

namespace kiln {

inline constexpr std::string_view kTimelineView = R"js(
const colours = { matmul: '#3b7dd8', attention: '#8b5cf6', softmax: '#c084fc', norm: '#14a38b', elementwise: '#e0a100',
  embedding: '#6b8e23', reduction: '#d9577a', 'copy/cast': '#8a94a3', optimizer: '#e4683a', call: '#7c93ad', wait: '#d64545',
  exposed: '#d64545', hidden: '#2f9e63', gradient: '#b07cc6', forward: '#3b7dd8', backward: '#e4683a', update: '#14a38b',
  all_reduce: '#2f9e63', all_gather: '#2f7f9e', reduce_scatter: '#9e7f2f', broadcast: '#7f9e2f' };
function colourOf(d) {
  const kind = head.details[d][1];
  if (holds.has(kind)) return null;
  if (colours[kind]) return colours[kind];
  let h = 0;
  for (const c of kind) h = (h * 31 + c.charCodeAt(0)) % 360;
  return 'hsl(' + h + ' 45% 55%)';
}
const colour = head.details.map((d, i) => colourOf(i));
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function time(ns) {
  if (ns >= 1e9) return (ns / 1e9).toFixed(3) + ' s';
  if (ns >= 1e6) return (ns / 1e6).toFixed(3) + ' ms';
  if (ns >= 1e3) return (ns / 1e3).toFixed(2) + ' µs';
  return ns.toFixed(0) + ' ns';
}
function tick(ns) {  // as time(), without zeros that say nothing
  if (ns === 0) return '0';
  const [unit, name] = ns >= 1e9 ? [1e9, 's'] : ns >= 1e6 ? [1e6, 'ms'] : ns >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
  return Number((ns / unit).toFixed(6)) + ' ' + name;
}
function bytes(b) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0;
  while (b >= 1024 && u < 4) { b /= 1024; ++u; }
  return (u ? b.toFixed(2) : b.toFixed(0)) + ' ' + units[u];
}
const whole = n => n.toLocaleString('en');
el('title').textContent = document.title = head.title;
el('facts').textContent = whole(head.spans) + ' spans in ' + lanes.length + ' lanes, ' + time(last);

const plot = el('plot'), g = plot.getContext('2d');
g.font = '11px system-ui, sans-serif';
const left = Math.ceil(Math.min(240, Math.max(90, ...lanes.map(l => g.measureText(l.name).width + 18))));
const kRow = 18, kGap = 10, kAxis = 24, kCounter = 70;
let lo = 0, hi = last, selected = null, lit = null, shape = [];
const height = kAxis + lanes.reduce((a, l) => a + l.rows.length * kRow + kGap, 0) + counters.length * (kCounter + kGap) + 6;

function drawRow(levels, y, X, W) {
  const base = levels[0];
  const from = above(base.end, base.n, lo), to = above(base.begin, base.n, hi);
  let k = 0;
  for (let n = to - from; n > 2 * W && k + 1 < levels.length; n /= kEight) ++k;
  const step = Math.pow(kEight, k), level = levels[k], a = Math.floor(from / step), b = Math.min(level.n, Math.ceil(to / step));
  for (let i = a; i < b; ++i) {
    const x = Math.max(left, X(level.begin[i])), right = Math.min(left + W, X(level.end[i])), d = level.detail[i];
    const width = Math.max(right - x, 0.6), fill = colour[d];
    g.globalAlpha = lit && !lit[d] ? 0.12 : k === 0 ? 1 : 0.3 + 0.7 * level.busy[i] / Math.max(1, level.end[i] - level.begin[i]);
    g.fillStyle = fill || row_;
    g.fillRect(x, y, width, kRow - 3);
    if (k === 0 && selected && selected.levels === levels && selected.i === i) {
      g.globalAlpha = 1; g.strokeStyle = hot_; g.lineWidth = 2; g.strokeRect(x, y, width, kRow - 3);
    }
    if (k > 0 || width < 30) continue;
    g.fillStyle = fill ? '#fff' : ink_;
    const name = head.details[d][0], most = Math.floor((width - 8) / 6.2);
    if (most > 2) g.fillText(name.length <= most ? name : name.slice(0, most - 1) + '…', x + 4, y + 11.5);
  }
  g.globalAlpha = 1;
}

function drawCounter(c, y, X, W) {
  const base = c.levels[0];
  const from = Math.max(0, above(base.at, base.n, lo) - 1), to = above(base.at, base.n, hi);
  let k = 0;
  for (let n = to - from; n > 2 * W && k + 1 < c.levels.length; n /= kEight) ++k;
  const step = Math.pow(kEight, k), level = c.levels[k], a = Math.floor(from / step), b = Math.min(level.n, Math.ceil(to / step));
  const Y = v => y + kCounter - kCounter * v / (c.most * 1.05 || 1);
  g.fillStyle = area_; g.strokeStyle = main_; g.lineWidth = 1;
  g.beginPath();
  let line = y + kCounter, x = left;
  g.moveTo(left, line);
  for (let i = a; i < b; ++i) {
    x = Math.max(left, Math.min(left + W, X(level.at[i])));
    g.lineTo(x, line); line = Y(level.value[i]); g.lineTo(x, line);
  }
  x = Math.max(left, Math.min(left + W, X(to < base.n ? hi : last)));
  g.lineTo(x, line); g.stroke(); g.lineTo(x, y + kCounter); g.lineTo(left, y + kCounter); g.fill();
}

let row_, ink_, hot_, area_, main_;
function draw() {
  const ratio = window.devicePixelRatio || 1, w = plot.clientWidth, W = Math.max(50, w - left - 8);
  plot.width = w * ratio; plot.height = height * ratio; plot.style.height = height + 'px';
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  row_ = css('--line'); ink_ = css('--ink'); hot_ = css('--hot'); area_ = css('--area'); main_ = css('--main');
  const soft = css('--soft'), X = t => left + (t - lo) / (hi - lo) * W;
  g.clearRect(0, 0, w, height);
  g.font = '11px system-ui, sans-serif';
  let step = Math.pow(10, Math.floor(Math.log10((hi - lo) / 4)));
  for (const f of [2, 2.5, 2]) if ((hi - lo) / step > 10) step *= f;
  g.textAlign = 'center';
  for (let t = Math.ceil(lo / step) * step; t <= hi; t += step) {
    g.fillStyle = row_; g.fillRect(X(t), kAxis - 4, 1, height);
    g.fillStyle = soft; if (X(t) < left + W - 30) g.fillText(tick(t), X(t), 13);
  }
  let y = kAxis;
  shape = [];
  for (const lane of lanes) {
    g.textAlign = 'right'; g.fillStyle = ink_;
    let name = lane.name;
    while (name.length > 2 && g.measureText(name).width > left - 12) name = name.slice(0, -2) + '…';
    g.fillText(name, left - 8, y + 11.5);
    g.textAlign = 'left';
    for (const levels of lane.rows) { drawRow(levels, y, X, W); shape.push({ y, lane, levels }); y += kRow; }
    y += kGap;
  }
  for (const c of counters) {
    g.textAlign = 'right'; g.fillStyle = ink_; g.fillText(c.name, left - 8, y + 11);
    g.fillStyle = soft; g.fillText(bytes(c.most), left - 8, y + 25);
    drawCounter(c, y, X, W);
    shape.push({ y, counter: c });
    y += kCounter + kGap;
  }
}

function eachLeaf(visit) {
  for (const lane of lanes) for (const levels of lane.rows) {
    const r = levels[0], to = above(r.begin, r.n, hi);
    for (let i = above(r.end, r.n, lo); i < to; ++i)
      if (isLeaf[r.detail[i]]) visit(lane, r.detail[i], Math.min(hi, r.end[i]) - Math.max(lo, r.begin[i]), r.end[i] - r.begin[i]);
  }
}
const starred = s => s.replace(/\b\d+\b/g, '*');
function keyOf(by, lane, d) {
  const [name, kind, args] = head.details[d];
  return by === 'name' ? name : by === 'category' ? kind : by === 'lane' ? lane.name
      : by === 'scope' ? starred(args.scope || '(none)') : args.phase || '(none)';
}

// Totals of what is in sight: of each lane, and of each group.
function total() {
  const by = el('group').value, keys = new Map(), busy = new Map(), cached = new Map();
  eachLeaf((lane, d, seen, all) => {
    busy.set(lane, (busy.get(lane) || 0) + seen);
    let mine = cached.get(lane);
    if (!mine) cached.set(lane, mine = new Array(D));
    let e = mine[d];
    if (!e) {
      const key = keyOf(by, lane, d);
      e = keys.get(key);
      if (!e) keys.set(key, e = { n: 0, sum: 0, longest: 0, worst: -1, detail: d, details: new Set() });
      e.details.add(d);
      mine[d] = e;
    }
    ++e.n; e.sum += seen;
    if (all > e.longest) { e.longest = all; e.detail = d; }
  });
  const box = (value, text) => {
    const div = document.createElement('div'), b = document.createElement('b'), s = document.createElement('span');
    b.textContent = value; s.textContent = text; div.append(b, s);
    return div;
  };
  const boxes = [box(time(hi - lo), 'in sight')];
  for (const [lane, sum] of busy) boxes.push(box((100 * sum / (hi - lo)).toFixed(1) + ' %', lane.name + ' busy, ' + time(sum)));
  for (const c of counters) boxes.push(box(bytes(c.most), c.name + ', peak'));
  el('totals').replaceChildren(...boxes);
  const sum = [...busy.values()].reduce((a, b) => a + b, 0) || 1;
  el('by').textContent = el('group').selectedOptions[0].textContent;
  el('rows').replaceChildren(...[...keys].sort((a, b) => b[1].sum - a[1].sum).slice(0, 60).map(([key, e]) => {
    const tr = document.createElement('tr'), first = document.createElement('td'), dot = document.createElement('i');
    dot.style.background = colour[e.detail] || 'transparent';
    first.append(dot, key);
    tr.append(first);
    for (const text of [whole(e.n), time(e.sum), (100 * e.sum / sum).toFixed(1) + ' %', time(e.sum / e.n), time(e.longest)]) {
      const td = document.createElement('td');
      td.className = 'n'; td.textContent = text; tr.append(td);
    }
    tr.addEventListener('click', () => {
      const same = tr.className === 'lit';
      el('rows').querySelectorAll('.lit').forEach(r => { r.className = ''; });
      light(same ? null : d => e.details.has(d));
      tr.className = same ? '' : 'lit';
    });
    return tr;
  }));
}
function light(test) {
  lit = null;
  if (test) { lit = new Uint8Array(D); for (let d = 0; d < D; ++d) lit[d] = test(d) ? 1 : 0; }
  redraw();
}

function spanAt(x, y) {
  const W = plot.clientWidth - left - 8, t = lo + (x - left) / W * (hi - lo);
  const near = shape.find(s => s.levels && y >= s.y && y < s.y + kRow);
  if (!near || x < left) return null;
  const r = near.levels[0], slack = (hi - lo) / W * 1.5;
  const i = above(r.end, r.n, t - slack);
  if (i >= r.n || r.begin[i] > t + slack) return null;
  return { lane: near.lane, levels: near.levels, i, begin: r.begin[i], end: r.end[i], detail: r.detail[i] };
}
function show(s) {
  const [name, kind, args] = head.details[s.detail];
  let n = 0, sum = 0, least = Infinity, most = 0;
  for (const lane of lanes) for (const levels of lane.rows) {
    const r = levels[0];
    for (let i = 0; i < r.n; ++i) {
      if (r.detail[i] !== s.detail) continue;
      const d = r.end[i] - r.begin[i];
      ++n; sum += d; least = Math.min(least, d); most = Math.max(most, d);
    }
  }
  const lines = [['lane', s.lane.name], ['kind', kind], ['begins', time(s.begin)], ['takes', time(s.end - s.begin)]];
  for (const [k, v] of Object.entries(args))
    lines.push([k, typeof v === 'number' ? (k === 'bytes' ? bytes(v) : whole(v)) : String(v)]);
  if (args.flops) lines.push(['rate', (args.flops / (s.end - s.begin)).toFixed(1) + ' GFLOP/s']);
  lines.push(['all like it', whole(n) + ', ' + time(sum) + '; ' + time(least) + ' to ' + time(most)]);
  el('what').textContent = name;
  el('details').replaceChildren(...lines.map(l => {
    const tr = document.createElement('tr');
    for (const text of l) { const td = document.createElement('td'); td.textContent = text; tr.append(td); }
    return tr;
  }));
}

let queued = false, counting = 0;
function redraw() { if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; draw(); }); } }
function move(a, b) {
  const span = Math.min(last, Math.max(20, b - a));
  lo = Math.max(0, Math.min(last - span, a)); hi = lo + span;
  redraw();
  clearTimeout(counting);
  counting = setTimeout(total, 120);
}
function zoom(by, share) {
  const span = (hi - lo) * by, at = lo + share * (hi - lo);
  move(at - share * span, at + (1 - share) * span);
}
const shareAt = x => Math.max(0, Math.min(1, (x - left) / (plot.clientWidth - left - 8)));
plot.addEventListener('wheel', e => { e.preventDefault(); zoom(Math.pow(1.0015, e.deltaY), shareAt(e.offsetX)); }, { passive: false });
let drag = null;
plot.addEventListener('pointerdown', e => { drag = { x: e.offsetX, lo, hi, moved: false }; plot.setPointerCapture(e.pointerId); });
plot.addEventListener('pointermove', e => {
  if (drag) {
    const by = (drag.x - e.offsetX) / (plot.clientWidth - left - 8) * (drag.hi - drag.lo);
    drag.moved = drag.moved || Math.abs(e.offsetX - drag.x) > 3;
    if (drag.moved) move(drag.lo + by, drag.hi + by);
    return;
  }
  const s = spanAt(e.offsetX, e.offsetY), c = shape.find(l => l.counter && e.offsetY >= l.y && e.offsetY < l.y + kCounter);
  let text = '';
  if (s) text = head.details[s.detail][0] + ', ' + time(s.end - s.begin) + (head.details[s.detail][2].scope ? ', ' + head.details[s.detail][2].scope : '');
  else if (c && e.offsetX >= left) {
    const t = lo + shareAt(e.offsetX) * (hi - lo), base = c.counter.levels[0], i = above(base.at, base.n, t) - 1;
    if (i >= 0) text = c.counter.name + ' ' + bytes(base.value[i]) + ' at ' + time(t);
  }
  el('hover').textContent = text;
});
plot.addEventListener('pointerup', e => {
  if (drag && !drag.moved) { selected = spanAt(e.offsetX, e.offsetY); if (selected) show(selected); redraw(); }
  drag = null;
});
plot.addEventListener('dblclick', () => move(0, last));
plot.addEventListener('keydown', e => {
  const by = (hi - lo) / 5;
  if (e.key === 'w') zoom(0.7, 0.5);
  else if (e.key === 's') zoom(1 / 0.7, 0.5);
  else if (e.key === 'a' || e.key === 'ArrowLeft') move(lo - by, hi - by);
  else if (e.key === 'd' || e.key === 'ArrowRight') move(lo + by, hi + by);
  else if (e.key === '0') move(0, last);
});
el('group').addEventListener('change', total);
el('find').addEventListener('input', () => {
  const text = el('find').value.toLowerCase();
  light(text ? d => (head.details[d][0] + ' ' + (head.details[d][2].scope || '')).toLowerCase().includes(text) : null);
});
el('all').addEventListener('click', () => { el('find').value = ''; light(null); move(0, last); });
window.addEventListener('resize', redraw);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
draw();
total();
document.body.dataset.ready = '1';
document.body.dataset.ms = Math.round(performance.now());
)js";

}  // namespace kiln
