// The page around the data of memory_html.cpp: its style, its few elements, and the script that draws.
#pragma once

#include <string_view>

namespace kiln {

inline constexpr std::string_view kMemoryPageTop = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>kiln memory</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 14px/1.45 system-ui, sans-serif; margin: 0; color: #222; background: #fff; }
main { max-width: 1400px; margin: 0 auto; padding: 16px 20px; }
h1 { font-size: 18px; margin: 0 0 2px; }
p { margin: 2px 0 8px; color: #555; }
#legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 6px 0; }
#legend span { white-space: nowrap; }
#legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border-radius: 2px; }
canvas { width: 100%; height: 380px; display: block; border: 1px solid #ddd; cursor: crosshair; touch-action: none; }
#hover { min-height: 1.5em; color: #333; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; border-bottom: 2px solid #ccc; padding: 3px 8px; position: sticky; top: 0; background: #fff; }
td { border-bottom: 1px solid #eee; padding: 3px 8px; vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
td.line { font-family: ui-monospace, monospace; font-size: 12px; overflow-wrap: anywhere; }
label { margin-right: 14px; }
button { font: inherit; }
</style></head><body><main>
<h1 id="title"></h1><p id="facts"></p>
<div id="legend"></div>
<canvas id="plot"></canvas>
<div id="hover"></div>
<p>Wheel to zoom, drag to move, double click for all of it, click for what is in use at that moment.</p>
<h1 id="moment"></h1>
<p><label>Group by <select id="group"><option value="none">nothing: the largest 100</option>
<option value="op">op</option><option value="line">source line</option><option value="scope">layer</option>
<option value="tag">tag</option></select></label><button id="topeak">go to the peak</button></p>
<table><thead id="thead"></thead><tbody id="rows"></tbody></table>
</main>
)html";

inline constexpr std::string_view kMemoryPageBottom = R"html(<script>
'use strict';
const head = JSON.parse(document.getElementById('head').textContent);
const text = atob(document.getElementById('lives').textContent);
const bytes = new Uint8Array(text.length);
for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
const words = new Uint32Array(bytes.buffer);
const N = head.events, L = words.length >> 2, T = head.tags.length;
const begin = i => words[4 * i], end = i => words[4 * i + 1], size = i => words[4 * i + 2] * 512,
      origin = i => head.origins[words[4 * i + 3]], tagOf = i => origin(i)[4];

// What each event does: +(life + 1), -(life + 1), or 0 where a segment comes or goes.
const change = new Int32Array(N);
const first = new Float64Array(T);  // in use before the first event
for (let i = 0; i < L; ++i) {
  if (i < head.before) first[tagOf(i)] += size(i); else change[begin(i)] = i + 1;
  if (end(i) < N) change[end(i)] = -(i + 1);
}
const tagOfLife = new Uint8Array(L);
for (let i = 0; i < L; ++i) tagOfLife[i] = tagOf(i);

function human(b) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0;
  while (b >= 1024 && u < 4) { b /= 1024; ++u; }
  return (u ? b.toFixed(2) : b.toFixed(0)) + ' ' + units[u];
}
const el = id => document.getElementById(id);
el('title').textContent = head.title;
document.title = head.title;
el('facts').textContent = head.device + ', ' + N.toLocaleString('en') + ' events, ' + L.toLocaleString('en') +
    ' allocations, peak ' + human(head.peak[1]) + (head.dropped ? '; ' + head.dropped.toLocaleString('en') +
    ' older events were dropped' : '');

const plot = el('plot'), g = plot.getContext('2d');
const left = 76, top_ = 22, bottom = 22;
let lo = 0, hi = Math.max(N, 1), selected = head.peak[0], columns = null;

// The highest moment of each pixel column between lo and hi, tag by tag.
function sample(width) {
  const tags = first.slice(), most = new Float64Array(width).fill(-1), at = new Int32Array(width),
        stack = new Float64Array(width * T);
  let total = tags.reduce((a, b) => a + b, 0), last = -1;
  const stop = Math.min(N, Math.ceil(hi));
  for (let i = 0; i < stop; ++i) {
    const c = change[i];
    if (c > 0) { const s = size(c - 1); tags[tagOfLife[c - 1]] += s; total += s; }
    else if (c < 0) { const s = size(-c - 1); tags[tagOfLife[-c - 1]] -= s; total -= s; }
    if (i < lo && i + 1 < lo) continue;
    const x = Math.max(0, Math.min(width - 1, Math.floor((i - lo) / (hi - lo) * width)));
    for (let k = last + 1; k < x; ++k) {  // zoomed in: an event is wider than a column
      if (last >= 0 && most[k] < 0) { most[k] = most[last]; at[k] = at[last];
        for (let t = 0; t < T; ++t) stack[k * T + t] = stack[last * T + t]; }
    }
    if (total > most[x]) { most[x] = total; at[x] = i; for (let t = 0; t < T; ++t) stack[x * T + t] = tags[t]; }
    last = x;
  }
  for (let k = last + 1; last >= 0 && k < width; ++k) {
    most[k] = most[last]; at[k] = at[last];
    for (let t = 0; t < T; ++t) stack[k * T + t] = stack[last * T + t];
  }
  return { most, at, stack, width };
}

const order = [0, 1, 2, 3, 6, 7, 4, 5];  // what stays is below what comes and goes
function draw() {
  const ratio = window.devicePixelRatio || 1, w = plot.clientWidth, h = plot.clientHeight;
  plot.width = w * ratio; plot.height = h * ratio;
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  const W = Math.max(1, Math.floor(w - left - 8)), H = h - top_ - bottom;
  columns = sample(W);
  let highest = 1;
  for (const m of columns.most) highest = Math.max(highest, m);
  const Y = b => top_ + H * (1 - b / (1.08 * highest)), X = i => left + (i - lo) / (hi - lo) * W;
  g.clearRect(0, 0, w, h);
  g.font = '12px system-ui, sans-serif';
  g.save(); g.beginPath(); g.rect(left, 0, W, h); g.clip();
  head.runs.forEach((run, k) => {
    const from = X(run[0]), to = X(k + 1 < head.runs.length ? head.runs[k + 1][0] : N);
    if (to < left || from > left + W) return;
    g.fillStyle = head.phases[run[1]][1];
    g.fillRect(from, top_, to - from, H);
    const name = head.phases[run[1]][0], a = Math.max(from, left), b = Math.min(to, left + W);
    g.fillStyle = '#555'; g.textAlign = 'center';
    if (b - a > g.measureText(name).width + 8) g.fillText(name, (a + b) / 2, h - 7);
  });
  g.restore();
  g.textAlign = 'right';
  let step = Math.pow(1024, Math.floor(Math.log(highest) / Math.log(1024))) / 1024;
  while (highest * 1.08 / step > 7) step *= 2;
  for (let b = 0; b < highest * 1.08; b += step) {
    g.fillStyle = '#555'; g.fillText(human(b), left - 6, Y(b) + 4);
    g.fillStyle = '#e0e0e0'; g.fillRect(left, Y(b), W, 1);
  }
  for (let x = 0; x < W; ++x) {
    let base = 0;
    for (const t of order) {
      const v = columns.stack[x * T + t];
      if (v <= 0) continue;
      g.fillStyle = head.tags[t][1];
      g.fillRect(left + x, Y(base + v), 1, Math.max(Y(base) - Y(base + v), 0.5));
      base += v;
    }
  }
  let free_ = left;  // marks that would overlap are left out
  for (const [event, name] of head.marks) {
    if (event < lo || event > hi || X(event) < free_) continue;
    free_ = X(event) + g.measureText(name).width + 24;
    g.fillStyle = '#333'; g.textAlign = 'left';
    g.fillRect(X(event), top_, 1, H); g.fillText(name, X(event) + 4, top_ - 8);
  }
  if (selected >= lo && selected <= hi) {
    g.fillStyle = '#d00'; g.fillRect(X(selected + 0.5), top_, 1, H);
  }
}

function total(event) {
  const tags = first.slice();
  for (let i = 0; i <= event && i < N; ++i) {
    const c = change[i];
    if (c > 0) tags[tagOfLife[c - 1]] += size(c - 1);
    else if (c < 0) tags[tagOfLife[-c - 1]] -= size(-c - 1);
  }
  return tags;
}

function show() {
  const live = [];
  for (let i = 0; i < L; ++i) if (begin(i) <= selected && selected < end(i)) live.push(i);
  const tags = total(selected), sum = tags.reduce((a, b) => a + b, 0);
  el('moment').textContent = human(sum) + ' in use after event ' + selected.toLocaleString('en') +
      (selected === head.peak[0] ? ', the peak' : '') + ', in ' + live.length.toLocaleString('en') + ' allocations';
  el('legend').replaceChildren(...order.filter(t => tags[t] > 0).map(t => {
    const s = document.createElement('span'), i = document.createElement('i');
    i.style.background = head.tags[t][1];
    s.append(i, head.tags[t][0] + ' ' + human(tags[t]));
    return s;
  }));
  const by = el('group').value, lines = [];
  let names = ['size', 'tag', 'op', 'layer', 'phase', 'line'];
  if (by === 'none') {
    live.sort((a, b) => size(b) - size(a));
    for (const i of live.slice(0, 100)) {
      const o = origin(i);
      lines.push([human(size(i)), head.tags[o[4]][0], o[0] || '(no op)', o[1], head.phases[o[3]][0], o[2]]);
    }
  } else {
    names = ['size', 'share', 'allocations', by];
    const groups = new Map();
    for (const i of live) {
      const o = origin(i), k = by === 'op' ? o[0] || '(no op)' : by === 'line' ? o[2] :
          by === 'tag' ? head.tags[o[4]][0] : o[1].split('.').slice(0, 2).join('.') || '(none)';
      const e = groups.get(k) || [0, 0];
      e[0] += size(i); ++e[1];
      groups.set(k, e);
    }
    for (const [k, e] of [...groups].sort((a, b) => b[1][0] - a[1][0]))
      lines.push([human(e[0]), (100 * e[0] / sum).toFixed(1) + ' %', e[1].toLocaleString('en'), k]);
  }
  const numeric = by === 'none' ? 1 : 3;
  const row = (cells, kind) => {
    const tr = document.createElement('tr');
    cells.forEach((c, i) => {
      const cell = document.createElement(kind);
      cell.textContent = c;
      if (i < numeric) cell.className = 'n';
      else if (kind === 'td' && names[i] === 'line') cell.className = 'line';
      tr.append(cell);
    });
    return tr;
  };
  el('thead').replaceChildren(row(names, 'th'));
  el('rows').replaceChildren(...lines.map(l => row(l, 'td')));
}

const eventAt = x => Math.max(0, Math.min(N - 1, Math.floor(lo + (x - left) / (plot.clientWidth - left - 8) * (hi - lo))));
let queued = false;
function redraw() { if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; draw(); }); } }
function clamp(a, b) {
  const span = Math.min(N, Math.max(8, b - a));
  lo = Math.max(0, Math.min(N - span, a)); hi = lo + span;
  redraw();
}
plot.addEventListener('wheel', e => {
  e.preventDefault();
  const share = Math.max(0, Math.min(1, (e.offsetX - left) / (plot.clientWidth - left - 8)));
  const span = (hi - lo) * Math.pow(1.0015, e.deltaY), at = lo + share * (hi - lo);
  clamp(at - share * span, at + (1 - share) * span);
}, { passive: false });
let drag = null;
plot.addEventListener('pointerdown', e => { drag = { x: e.offsetX, lo, hi, moved: false }; plot.setPointerCapture(e.pointerId); });
plot.addEventListener('pointermove', e => {
  if (drag) {
    const by = (drag.x - e.offsetX) / (plot.clientWidth - left - 8) * (drag.hi - drag.lo);
    drag.moved = drag.moved || Math.abs(e.offsetX - drag.x) > 3;
    if (drag.moved) clamp(drag.lo + by, drag.hi + by);
    return;
  }
  const x = Math.floor(e.offsetX - left);
  if (!columns || x < 0 || x >= columns.width || columns.most[x] < 0) return;
  const parts = order.filter(t => columns.stack[x * T + t] > 0)
      .map(t => head.tags[t][0] + ' ' + human(columns.stack[x * T + t]));
  el('hover').textContent = 'event ' + columns.at[x].toLocaleString('en') + ': ' + human(columns.most[x]) + ' (' + parts.join(', ') + ')';
});
plot.addEventListener('pointerup', e => {
  if (drag && !drag.moved) {  // the column's highest moment, which is what is drawn there
    const x = Math.floor(e.offsetX - left);
    selected = columns && x >= 0 && x < columns.width && columns.most[x] >= 0 ? columns.at[x] : eventAt(e.offsetX);
    show(); redraw();
  }
  drag = null;
});
plot.addEventListener('dblclick', () => clamp(0, N));
el('group').addEventListener('change', show);
el('topeak').addEventListener('click', () => { selected = head.peak[0]; show(); redraw(); });
window.addEventListener('resize', redraw);
draw(); show();
document.body.dataset.ready = '1';
document.body.dataset.ms = Math.round(performance.now());
</script></body></html>
)html";

}  // namespace kiln
