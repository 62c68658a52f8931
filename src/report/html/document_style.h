// The style of document_html.cpp's pages. Colours come as variables, so that dark is another set of them;
// charts are drawn on white and turned around in the dark, hues kept.
#pragma once

#include <string_view>

namespace kiln {

inline constexpr std::string_view kDocumentStyle = R"css(
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --ground: #fff; --line: #d8dee4; --row: #f6f8fa;
  --bad: #b3261e; --good: #1a6d37; --accent: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e6ea; --soft: #9aa4af; --ground: #14171b; --line: #333a43;
  --row: #1c2127; --bad: #ff8a80; --good: #7ad394; --accent: #8ab4f8; }
  figure svg, figure img { filter: invert(.92) hue-rotate(180deg); } }
body { font: 15px/1.55 system-ui, sans-serif; margin: 0; color: var(--ink); background: var(--ground); }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 27px; line-height: 1.2; margin: 8px 0 12px; }
h2 { font-size: 21px; margin: 44px 0 8px; padding-bottom: 5px; border-bottom: 1px solid var(--line); }
h3 { font-size: 16px; margin: 26px 0 6px; }
p, ul { margin: 6px 0 10px; max-width: 78ch; }
li { margin: 2px 0; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
nav { columns: 3 240px; margin: 14px 0 6px; padding: 12px 16px; background: var(--row); border-radius: 8px; }
nav a { display: block; padding: 1px 0; }
nav em { font-style: normal; color: var(--bad); }
.mark { font-size: 12px; font-weight: 400; padding: 1px 8px; border: 1px solid currentColor; border-radius: 99px;
  margin-left: 8px; vertical-align: 2px; color: var(--soft); white-space: nowrap; }
.bad { color: var(--bad); } .good { color: var(--good); }
.table { overflow-x: auto; margin: 8px 0 14px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: left; border-bottom: 2px solid var(--line); padding: 3px 10px 3px 0; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: 3px 10px 3px 0; vertical-align: top; }
th.n, td.n { text-align: right; } td.n { white-space: nowrap; }
tbody tr:hover { background: var(--row); }
figure { margin: 10px 0 16px; } figure svg, figure img { max-width: 100%; height: auto; border-radius: 6px; }
pre { background: var(--row); padding: 8px 12px; border-radius: 6px; overflow-x: auto; font-size: 13px; margin: 6px 0 10px; }
code { font-family: ui-monospace, monospace; font-size: .92em; }
details summary { cursor: pointer; color: var(--accent); margin: 6px 0; }
@media print { :root { --ink: #000; --soft: #444; --ground: #fff; --line: #bbb; --row: #fff; --bad: #a00; --good: #063;
    --accent: #000; color-scheme: light; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; } nav { display: none; }
  figure svg, figure img { filter: none; max-height: 20cm; } h2 { break-before: page; } h2, h3 { break-after: avoid; }
  figure, tr { break-inside: avoid; } .table { overflow: visible; } table { font-size: 8.5pt; }
  pre { white-space: pre-wrap; border: 1px solid #ccc; } details > * { display: block; } }
)css";

}  // namespace kiln
