// The page that shows a run while it trains: three files a server hands out, and no others. It asks for
// /data.json (studies/watch/dashboard.cpp) and draws on canvases.
#pragma once

#include <string_view>

namespace kiln {

inline constexpr std::string_view kDashboardHtml = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>kiln train</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/dashboard.css">
</head><body><main>
<header><h1 id="run"></h1><span id="state"></span></header>
<p id="facts"></p>
<div id="bar"><div id="done"></div></div>
<p id="progress"></p>
<section id="loss"><h2>loss</h2><b id="loss-value"></b>
<label><input type="checkbox" id="log"> log scale</label>
<canvas id="loss-plot" height="300"></canvas><div class="hover" id="loss-hover"></div></section>
<div id="tiles"></div>
<p id="note" role="status"></p>
</main><script src="/dashboard.js"></script></body></html>
)html";

inline constexpr std::string_view kDashboardCss = R"css(
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2430; --soft: #5b6472; --line: #d9dee6; --card: #f6f8fa; --main: #1f5fbf;
  --band: rgba(31, 95, 191, .16); --second: #c2410c; --good: #15803d; --bad: #b42318; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #12161c; --ink: #e6eaf0; --soft: #9aa4b2; --line: #2d3540; --card: #1a2029; --main: #6ea8fe;
    --band: rgba(110, 168, 254, .22); --second: #fb923c; --good: #4ade80; --bad: #f87171; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 18px 20px 40px; }
header { display: flex; align-items: baseline; gap: 14px; flex-wrap: wrap; }
h1 { font-size: 20px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 14px; font-weight: 600; color: var(--soft); margin: 0; }
p { margin: 4px 0; color: var(--soft); }
#state { font-size: 13px; padding: 1px 10px; border-radius: 10px; border: 1px solid var(--line); }
#state.training { color: var(--good); border-color: var(--good); }
#state.stopped, #state.quiet { color: var(--bad); border-color: var(--bad); }
#bar { height: 8px; border-radius: 4px; background: var(--line); overflow: hidden; margin: 10px 0 4px; }
#done { height: 100%; width: 0; background: var(--main); }
#progress { color: var(--ink); font-variant-numeric: tabular-nums; min-height: 1.45em; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; position: relative; }
section b { font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
section small { color: var(--soft); margin-left: 8px; }
#loss { margin: 12px 0; }
label { position: absolute; right: 14px; top: 10px; font-size: 13px; color: var(--soft); }
#tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(330px, 1fr)); gap: 12px; }
canvas { display: block; width: 100%; margin-top: 6px; }
.hover { position: absolute; left: 0; right: 0; bottom: 6px; text-align: center; font-size: 12px; color: var(--soft); font-variant-numeric: tabular-nums; }
#note { color: var(--bad); }
)css";

inline constexpr std::string_view kDashboardScript = R"js('use strict';
const el = id => document.getElementById(id);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let data = null;

function duration(s) {
  if (s < 10) return s.toFixed(1) + ' s';
  s = Math.round(s);
  const two = n => String(n).padStart(2, '0');
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ':' + two(s % 60) + ' min';
  if (s < 172800) return Math.floor(s / 3600) + ':' + two(Math.floor(s % 3600 / 60)) + ' h';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}
const digits = (x, n) => x === null || !isFinite(x) ? '–' : Math.abs(x) >= 1e5 ? Math.round(x).toLocaleString('en')
    : String(Number(x.toPrecision(n || 4)));
const percent = x => x === null ? '–' : (100 * x).toFixed(1) + ' %';
function rate(x) {
  if (x === null) return '–';
  return x >= 1e6 ? digits(x / 1e6, 3) + ' M' : x >= 1e4 ? digits(x / 1e3, 4) + ' k' : x.toFixed(0);
}
function bytes(x) {
  if (x === null) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0;
  while (x >= 1024 && u < 4) { x /= 1024; ++u; }
  return (u ? x.toFixed(1) : x.toFixed(0)) + ' ' + units[u];
}

// What each small chart shows: its title, its curve, its value, and what stands beside that.
const tiles = [
  { key: 'tokens_per_s', title: 'tokens a second', show: rate, more: d => duration(d.seconds) + ' in steps' },
  { key: 'of_peak', title: 'MFU', show: percent, more: d => 'of the measured peak' },
  { key: 'step_ms', title: 'step time, ms', show: x => digits(x, 4), more: d => d.predicted_step_ms === null ? '' :
      digits(d.predicted_step_ms, 4) + ' predicted' +
      (d.prediction_error === null ? '' : ' (' + (d.prediction_error > 0 ? '+' : '') + (100 * d.prediction_error).toFixed(1) + ' %)') },
  { key: 'peak_bytes', title: 'peak memory', show: bytes, more: d => d.predicted_peak_bytes === null ? '' :
      d.predicted_peak_bytes === d.peak_bytes ? 'as predicted, to the byte' : bytes(d.predicted_peak_bytes) + ' predicted' },
  { key: 'grad_norm', title: 'gradient norm', show: x => digits(x, 4), more: d => 'learning rate ' + digits(d.lr, 3) },
  { key: 'data_wait', title: 'data wait', show: percent, more: d => 'of a step' },
];
for (const tile of tiles) {
  const s = document.createElement('section'), h = document.createElement('h2');
  tile.value = document.createElement('b');
  tile.small = document.createElement('small');
  tile.canvas = document.createElement('canvas');
  tile.hover = document.createElement('div');
  tile.hover.className = 'hover';
  tile.canvas.height = 110;
  h.textContent = tile.title;
  s.id = tile.key;
  s.append(h, tile.value, tile.small, tile.canvas, tile.hover);
  el('tiles').append(s);
}

// Where a chart's points are, so that the pointer can be asked which one it is at.
function draw(canvas, curve, options) {
  const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = options.height;
  canvas.width = w * ratio; canvas.height = h * ratio; canvas.style.height = h + 'px';
  const g = canvas.getContext('2d');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, w, h);
  const n = curve.first.length;
  if (n === 0) return;
  const left = 62, right = w - 8, top = 8, bottom = h - 20;
  const scale = options.log ? x => Math.log10(Math.max(x, 1e-9)) : x => x;
  let low = Infinity, high = -Infinity;
  for (const [a, b] of [[curve.least, curve.most], options.beside ? [options.beside.mean, options.beside.mean] : [[], []]])
    for (let i = 0; i < a.length; ++i) { low = Math.min(low, scale(a[i])); high = Math.max(high, scale(b[i])); }
  if (!(high > low)) { const by = Math.abs(high) * 0.05 || 1; low -= by; high += by; }
  const most = Math.max(curve.last[n - 1], options.beside && options.beside.last.length ? options.beside.last.at(-1) : 0, 1);
  const X = step => left + (right - left) * step / most, Y = v => bottom - (bottom - top) * (scale(v) - low) / (high - low);
  g.font = '11px system-ui, sans-serif';
  g.fillStyle = colour('--soft'); g.strokeStyle = colour('--line'); g.lineWidth = 1;
  g.textAlign = 'right'; g.textBaseline = 'middle';
  const lines = h > 200 ? 5 : 3;
  for (let k = 0; k < lines; ++k) {
    const at = low + (high - low) * k / (lines - 1), y = bottom - (bottom - top) * k / (lines - 1);
    g.beginPath(); g.moveTo(left, Math.round(y) + .5); g.lineTo(right, Math.round(y) + .5); g.stroke();
    g.fillText(options.show(options.log ? Math.pow(10, at) : at), left - 6, y);
  }
  g.textBaseline = 'alphabetic'; g.textAlign = 'left'; g.fillText('step 0', left, h - 5);
  g.textAlign = 'right'; g.fillText(most.toLocaleString('en'), right, h - 5);
  const middle = i => (curve.first[i] + curve.last[i]) / 2;
  g.fillStyle = colour('--band');
  g.beginPath();
  for (let i = 0; i < n; ++i) g.lineTo(X(middle(i)), Y(curve.most[i]));
  for (let i = n - 1; i >= 0; --i) g.lineTo(X(middle(i)), Y(curve.least[i]));
  g.fill();
  g.strokeStyle = colour('--main'); g.lineWidth = 1.6;
  g.beginPath();
  for (let i = 0; i < n; ++i) g.lineTo(X(middle(i)), Y(curve.mean[i]));
  if (n === 1) { g.moveTo(X(middle(0)) - 2, Y(curve.mean[0])); g.lineTo(X(middle(0)) + 2, Y(curve.mean[0])); }
  g.stroke();
  if (options.beside) {
    g.fillStyle = colour('--second');
    options.beside.last.forEach((s, i) => { g.beginPath(); g.arc(X(s), Y(options.beside.mean[i]), 3, 0, 7); g.fill(); });
  }
  canvas.pick = x => {
    const step = (x - left) / (right - left) * most;
    let a = 0, b = n - 1;
    while (a < b) { const m = (a + b) >> 1; if (curve.last[m] < step) a = m + 1; else b = m; }
    return (curve.first[a] === curve.last[a] ? 'step ' + curve.first[a] : 'steps ' + curve.first[a] + ' to ' + curve.last[a]) +
        ': ' + options.show(curve.mean[a]) + (curve.first[a] === curve.last[a] ? '' :
        ' (' + options.show(curve.least[a]) + ' to ' + options.show(curve.most[a]) + ')');
  };
}

function show() {
  if (!data) return;
  const d = data.summary, c = data.curves;
  document.title = (d.steps ? Math.floor(100 * d.step / d.steps) + ' % ' : '') + d.run;
  el('run').textContent = d.run;
  el('state').textContent = d.state;
  el('state').className = d.state;
  el('facts').textContent = [d.model, d.precision, d.device, d.ranks > 1 ? d.ranks + ' ranks' : '',
      d.parameters ? d.parameters.toLocaleString('en') + ' parameters' : ''].filter(x => x).join(', ');
  el('done').style.width = d.steps ? Math.min(100, 100 * d.step / d.steps) + '%' : '0';
  el('progress').textContent = 'step ' + d.step.toLocaleString('en') + (d.steps ? ' of ' + d.steps.toLocaleString('en') : '') +
      (d.state !== 'finished' && d.seconds_left !== null ? ', ' + duration(d.seconds_left) + ' left, give or take ' + duration(d.seconds_left_error) : '') +
      (d.state === 'stopped' || d.state === 'quiet' ? ', nothing new for ' + duration(d.silent_seconds) : '') +
      (d.skipped ? ', ' + d.skipped + ' updates skipped' : '') +
      (d.unreadable_lines ? ', ' + d.unreadable_lines + ' unreadable line' + (d.unreadable_lines === 1 ? '' : 's') : '');
  el('loss-value').textContent = d.mean_loss === null ? 'no figures yet' : d.mean_loss.toFixed(4) +
      (d.validation_loss === null ? '' : ', validation ' + d.validation_loss.toFixed(4));
  draw(el('loss-plot'), c.loss, { height: 300, show: x => digits(x, 4), log: el('log').checked, beside: c.validation });
  for (const tile of tiles) {
    tile.value.textContent = tile.show(d[tile.key]);
    tile.small.textContent = tile.more(d);
    draw(tile.canvas, c[tile.key], { height: 110, show: tile.show });
  }
}

function hovers(canvas, line) {
  canvas.addEventListener('pointermove', e => { line.textContent = canvas.pick ? canvas.pick(e.offsetX) : ''; });
  canvas.addEventListener('pointerleave', () => { line.textContent = ''; });
}
hovers(el('loss-plot'), el('loss-hover'));
for (const tile of tiles) hovers(tile.canvas, tile.hover);
el('log').addEventListener('change', show);
window.addEventListener('resize', show);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);

async function ask() {
  let wait = 2000;
  try {
    const answer = await fetch('/data.json', { cache: 'no-store' });
    if (!answer.ok) throw new Error('the server answered ' + answer.status);
    data = await answer.json();
    el('note').textContent = '';
    show();
    if (data.summary.state === 'finished' || data.summary.state === 'stopped') wait = 10000;
  } catch (error) {
    el('note').textContent = 'No answer: the program that serves this page has ended. What is shown is the last it said.';
    wait = 5000;
  }
  document.body.dataset.ready = '1';
  setTimeout(ask, document.hidden ? 10000 : wait);
}
ask();
)js";

}  // namespace kiln
