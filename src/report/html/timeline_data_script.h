// The scripts of the viewer page: reading its numbers into lanes, rows and levels; then drawing, and
// answering the pointer.
#pragma once

#include <string_view>

namespace kiln {

inline constexpr std::string_view kTimelineData = R"js('use strict';
const el = id => document.getElementById(id);
const head = JSON.parse(el('head').textContent);
const raw = atob(el('numbers').textContent);
let place = 0;
function next() {  // beyond 32 bits too: no shifts
  let n = 0, scale = 1, b;
  do { b = raw.charCodeAt(place++); n += (b & 127) * scale; scale *= 128; } while (b > 127);
  return n;
}
const holds = new Set(['range', 'step', 'phase']);  // kinds of spans that hold others
const D = head.details.length;
const isLeaf = new Uint8Array(D);
head.details.forEach((d, i) => { isLeaf[i] = holds.has(d[1]) ? 0 : 1; });

const kEight = 8;
// Spans of one row follow one another. A level takes eight of the one below for one: from the first's begin to the last's
// end, how much of that was busy, and which span was the longest.
function levelsOf(row) {
  const levels = [row];
  while (levels.at(-1).n > 64) {
    const low = levels.at(-1), n = Math.ceil(low.n / kEight);
    const up = { n, begin: new Float64Array(n), end: new Float64Array(n), busy: new Float64Array(n), detail: new Uint32Array(n) };
    for (let g = 0; g < n; ++g) {
      const from = g * kEight, to = Math.min(low.n, from + kEight);
      let busy = 0, longest = -1;
      for (let i = from; i < to; ++i) {
        const b = low.busy ? low.busy[i] : low.end[i] - low.begin[i];
        busy += b;
        if (b > longest) { longest = b; up.detail[g] = low.detail[i]; }
      }
      up.begin[g] = low.begin[from]; up.end[g] = low.end[to - 1]; up.busy[g] = busy;
    }
    levels.push(up);
  }
  return levels;
}

let last = 1;  // the end of all, ns
const lanes = [];
for (const [name, n] of head.lanes) {
  const begin = new Float64Array(n), end = new Float64Array(n), detail = new Uint32Array(n), row = new Uint8Array(n);
  const ends = [], counts = [];
  let at = 0;
  for (let i = 0; i < n; ++i) {
    at += next();
    begin[i] = at; end[i] = at + next(); detail[i] = next();
    let r = 0;
    while (r < 24 && r < ends.length && ends[r] > at) ++r;
    ends[r] = Math.max(ends[r] || 0, end[i]); counts[r] = (counts[r] || 0) + 1; row[i] = r;
    if (end[i] > last) last = end[i];
  }
  if (n === 0) continue;
  const rows = counts.map(c => ({ n: 0, begin: new Float64Array(c), end: new Float64Array(c), detail: new Uint32Array(c) }));
  for (let i = 0; i < n; ++i) {
    const r = rows[row[i]];
    r.begin[r.n] = begin[i]; r.end[r.n] = end[i]; r.detail[r.n++] = detail[i];
  }
  lanes.push({ name, spans: n, rows: rows.map(levelsOf) });
}
// Counters: the highest value of each eight.
const counters = head.counters.map(([name, n]) => {
  const at = new Float64Array(n), value = new Float64Array(n);
  let t = 0, v = 0, most = 0;
  for (let i = 0; i < n; ++i) {
    t += next();
    const z = next();
    v += z % 2 ? -(z + 1) / 2 : z / 2;
    at[i] = t; value[i] = v; most = Math.max(most, v);
    if (t > last) last = t;
  }
  const levels = [{ n, at, value }];
  while (levels.at(-1).n > 64) {
    const low = levels.at(-1), m = Math.ceil(low.n / kEight), up = { n: m, at: new Float64Array(m), value: new Float64Array(m) };
    for (let g = 0; g < m; ++g) {
      up.at[g] = low.at[g * kEight];
      for (let i = g * kEight; i < Math.min(low.n, (g + 1) * kEight); ++i) up.value[g] = Math.max(up.value[g], low.value[i]);
    }
    levels.push(up);
  }
  return { name, most, levels };
});

// The first of a sorted list that is above x.
function above(list, n, x) {
  let a = 0, b = n;
  while (a < b) { const m = (a + b) >> 1; if (list[m] > x) b = m; else a = m + 1; }
  return a;
}
)js";

}  // namespace kiln
