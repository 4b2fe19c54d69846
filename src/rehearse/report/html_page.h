#pragma once

#include <string_view>

namespace ratelimit::rehearse {

// The page of --html besides its data. It loads nothing, and what it shows is made of text nodes.

inline constexpr std::string_view page_style = R"css(
:root { color-scheme: light dark; --line: #2f6db3; --ok: #6a9a3a; --bad: #c62828; --soft: #8888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; }
h2 { font-size: 1.15rem; margin: 0; }
section { border: 1px solid var(--soft); border-radius: 8px; margin: 1rem 0; padding: 1rem; }
.problem { color: var(--bad); font-weight: 600; margin: 0.3rem 0; }
.soft { opacity: 0.75; margin: 0.2rem 0; }
.quota { font: 600 1.2rem ui-monospace, monospace; }
.verdict { min-height: 3.2em; margin: 0.4rem 0; }
label { display: block; margin-top: 0.8rem; }
input[type=range] { display: block; accent-color: var(--line); }
svg { display: block; margin-top: 0.6rem; }
svg text { font-size: 11px; fill: currentColor; }
.curve { fill: none; stroke: var(--line); stroke-width: 2; }
.requests { fill: none; stroke: var(--ok); stroke-width: 2; stroke-dasharray: 5 4; }
.axis { stroke: var(--soft); }
.now { stroke: var(--bad); stroke-width: 1.5; }
.dot { fill: var(--bad); }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; margin-top: 0.8rem; }
caption { text-align: left; font-weight: 600; }
th, td { text-align: left; padding: 0.15rem 0.9rem 0.15rem 0; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) {
  tr, td, td.number { display: block; text-align: left; overflow-wrap: anywhere; }
  tr + tr { margin-top: 0.6rem; }
  th { display: none; }
  td::before { content: attr(data-title) ': '; opacity: 0.75; }
}
)css";

inline constexpr std::string_view page_script = R"js(
'use strict';
(() => {
  const report = JSON.parse(document.getElementById('report').textContent);
  const total = report.total;
  const main = document.querySelector('main');
  const add = (parent, name, text, kind) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return parent.appendChild(element);
  };
  const draw = (parent, name, attributes, text) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return parent.appendChild(element);
  };
  const number = (value) => value.toLocaleString('en');
  const share = (part, whole) => whole ? `${(100 * part / whole).toPrecision(3)} %` : '0 %';

  const table = (section, keys) => {
    if (!keys.length) return;
    const all = add(add(section, 'div', undefined, 'table'), 'table');
    add(all, 'caption', 'Refused as it is configured');
    const head = add(all, 'tr');
    const titles = ['key', 'refused', 'with 2xx', 'first refusal', 'main path', 'main user agent'];
    const kinds = ['', 'number', 'number', '', '', ''];
    titles.forEach((title, i) => add(head, 'th', title, kinds[i]));
    for (const key of keys) {
      const row = add(all, 'tr');
      [key.key, number(key.refused), number(key.succeeded), key.first, key.path, key.user_agent]
        .forEach((text, i) => { add(row, 'td', text, kinds[i]).dataset.title = titles[i]; });
    }
  };

  // In pixels, so that text keeps its size, and the middle of the slider's thumb is above its point of the chart.
  let wide = 0;
  const measure = () => { wide = Math.max(280, Math.min(800, main.clientWidth - 36)); };
  measure();
  const high = 180, left = 44, top = 10, right = 12, bottom = 24, thumb = 16;
  const x = (limit, i) => left + (wide - left - right) * i / Math.max(1, limit.points.length - 1);
  const y = (part, whole) => top + (high - top - bottom) * (1 - (whole ? part / whole : 0));

  const chart = (section, limit) => {
    const svg = draw(section, 'svg', { width: wide, height: high, role: 'img' });
    draw(svg, 'title', {}, 'The share of keys (solid) and of requests (dashed) that each quota would refuse');
    for (const part of [0, 0.5, 1]) {
      draw(svg, 'line', { class: 'axis', x1: left, x2: wide - right, y1: y(part, 1), y2: y(part, 1) });
      draw(svg, 'text', { x: left - 6, y: y(part, 1) + 4, 'text-anchor': 'end' }, `${100 * part} %`);
    }
    const path = (value, whole) => limit.points
      .map((point, i) => `${i ? 'L' : 'M'}${x(limit, i).toFixed(1)} ${y(point[value], whole).toFixed(1)}`).join('');
    draw(svg, 'path', { class: 'requests', d: path(1, limit.requests) });
    draw(svg, 'path', { class: 'curve', d: path(3, limit.keys) });
    const labels = Math.min(wide < 500 ? 4 : 6, limit.points.length);
    for (let i = 0; i < labels; ++i) {
      const at = labels > 1 ? Math.round(i * (limit.points.length - 1) / (labels - 1)) : 0;
      draw(svg, 'text', { x: x(limit, at), y: high - 6, 'text-anchor': 'middle' }, number(limit.points[at][0]));
    }
    return { svg, line: draw(svg, 'line', { class: 'now', y1: top, y2: high - bottom }), dot: draw(svg, 'circle', { class: 'dot', r: 4 }) };
  };

  const slider = (section, limit) => {
    const label = add(section, 'label', 'Quota: ');
    const quota = add(label, 'span', '', 'quota');
    const input = add(label, 'input');
    input.type = 'range';
    input.min = 0;
    input.max = limit.points.length - 1;
    input.value = limit.points.findIndex((point) => point[0] === limit.quota);
    const verdict = add(section, 'p', '', 'verdict');
    verdict.setAttribute('aria-live', 'polite');
    const drawing = add(section, 'div');
    add(section, 'p', 'Solid: the share of keys that each quota would refuse. Dashed: of requests.', 'soft');
    let mark;
    const show = () => {
      const [value, refused, succeeded, keys] = limit.points[Number(input.value)];
      const text = `${limit.before}${value}${limit.after}`;
      quota.textContent = text + (value === limit.quota ? ' (as configured)' : '');
      input.setAttribute('aria-valuetext', text);
      verdict.textContent = `would refuse ${number(keys)} of ${number(limit.keys)} keys (${share(keys, limit.keys)}) and `
        + `${number(refused)} of ${number(limit.requests)} requests (${share(refused, limit.requests)})`
        + (refused && total.succeeded !== null ? `, of which ${number(succeeded)} were answered with 2xx at that time.` : '.');
      const at = x(limit, Number(input.value));
      mark.line.setAttribute('x1', at);
      mark.line.setAttribute('x2', at);
      mark.dot.setAttribute('cx', at);
      mark.dot.setAttribute('cy', y(keys, limit.keys));
    };
    const place = () => {
      input.style.width = `${wide - left - right + thumb}px`;
      input.style.margin = `0 0 0 ${left - thumb / 2}px`;
      if (mark) mark.svg.remove();
      mark = chart(drawing, limit);
      show();
    };
    input.addEventListener('input', show);
    window.addEventListener('resize', () => { measure(); place(); });
    place();
  };

  add(main, 'h1', 'Rehearsal of rate limits');
  for (const problem of report.problems) add(main, 'p', `NOT USABLE: ${problem}`, 'problem');
  for (const failure of report.failed) add(main, 'p', `FAILED: ${failure}`, 'problem');
  add(main, 'p', `${number(report.lines)} lines, ${number(report.skipped)} skipped`
    + (report.first ? `, from ${report.first} to ${report.last}` : ''), 'soft');
  add(main, 'p', `All limits together, as they are configured, would refuse ${number(total.refused)} of `
    + `${number(total.requests)} requests (${share(total.refused, total.requests)})`
    + (total.refused && total.succeeded !== null ? `, of which ${number(total.succeeded)} were answered with 2xx at that time` : '')
    + (total.clients === null ? '.' : `, and ${number(total.clients_refused)} of ${number(total.clients)} clients `
      + `(${share(total.clients_refused, total.clients)}).`));
  for (const limit of report.limits) {
    const section = add(main, 'section');
    add(section, 'h2', `${limit.zone} at ${limit.location}`);
    add(section, 'p', limit.policy, 'soft');
    if (!limit.requests) add(section, 'p', 'No request reached it.', 'problem');
    else if (limit.points.length) slider(section, limit);
    else add(section, 'p', 'Its rate is a variable, which has no slider.', 'soft');
    table(section, limit.top_refused);
  }
  add(main, 'p', 'Each quota is one of a zone, at all its locations: all requests are decided again with it, while the other zones stay as they are configured.', 'soft');
})();
)js";

}  // namespace ratelimit::rehearse
