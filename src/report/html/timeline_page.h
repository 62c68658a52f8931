// What stands around the data of timeline_html.cpp: the page's style and its few elements.
#pragma once

#include <string_view>

namespace kiln {

inline constexpr std::string_view kTimelinePageTop = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<title>kiln timeline</title>
<link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2430; --soft: #5b6472; --line: #d9dee6; --card: #f6f8fa;
  --row: #eef1f5; --main: #1f5fbf; --hot: #c2410c; --area: rgba(31, 95, 191, .3); }
@media (prefers-color-scheme: dark) {
  :root { --paper: #12161c; --ink: #e6eaf0; --soft: #9aa4b2; --line: #2d3540; --card: #1a2029; --row: #1c232d;
    --main: #6ea8fe; --hot: #fb923c; --area: rgba(110, 168, 254, .3); } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
main { max-width: 1500px; margin: 0 auto; padding: 14px 18px 40px; }
h1 { font-size: 18px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 14px 0 4px; }
p { margin: 2px 0 6px; color: var(--soft); }
#totals { display: flex; flex-wrap: wrap; gap: 8px; margin: 8px 0; }
#totals div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 4px 12px; }
#totals b { display: block; font-size: 18px; font-weight: 600; font-variant-numeric: tabular-nums; }
#totals span { color: var(--soft); font-size: 12px; }
canvas { display: block; width: 100%; border: 1px solid var(--line); border-radius: 6px; cursor: crosshair; touch-action: none; }
canvas:focus-visible { outline: 2px solid var(--main); }
#hover { min-height: 1.5em; font-variant-numeric: tabular-nums; }
#below { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 22px; }
@media (max-width: 900px) { #below { grid-template-columns: 1fr; } }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; border-bottom: 2px solid var(--line); padding: 3px 8px; }
td { border-bottom: 1px solid var(--line); padding: 3px 8px; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; overflow-wrap: normal; }
#rows tr { cursor: pointer; }
#rows tr:hover, #rows tr.lit { background: var(--row); }
#rows i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
select, input, button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 5px; padding: 1px 6px; }
label { margin-right: 12px; }
</style></head><body><main>
<h1 id="title"></h1><p id="facts"></p>
<div id="totals"></div>
<canvas id="plot" tabindex="0" aria-label="timeline"></canvas>
<div id="hover"></div>
<p>Wheel or w and s to zoom, drag or a and d to move, double click or 0 for all of it, click for details.</p>
<div id="below"><div>
<h2>In sight, by <select id="group" aria-label="group by"><option value="name">name</option><option value="category">kind</option>
<option value="scope">scope</option><option value="phase">phase</option><option value="lane">lane</option></select></h2>
<p><label>find <input id="find" size="22"></label><button id="all">show all</button></p>
<table><thead><tr><th id="by">name</th><th class="n">calls</th><th class="n">total</th><th class="n">share</th><th class="n">mean</th><th class="n">longest</th></tr></thead>
<tbody id="rows"></tbody></table></div>
<div><h2 id="what">Details</h2><table><tbody id="details"><tr><td>Click a span.</td></tr></tbody></table></div></div>
</main>
)html";

}  // namespace kiln
