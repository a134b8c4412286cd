#include "apps/cli/explain_page.h"

namespace tenon::cli {

const std::string_view kPageStyle = R"css(
:root { color-scheme: light dark; --bg:#fbfbfa; --card:#fff; --ink:#1d2327; --soft:#667079; --line:#e3e5e6; --hover:#f1f4f6;
  --select:#e2eefb; --bar:#c9d6e2; --strong:#1f6feb; --warm:#d9822b;
  --gemm:#3b6fd4; --conv2d:#0f8a6d; --attention:#b5477f; --rows:#b7791f; --groups:#7a5cc0; --map:#8a8f94; }
@media (prefers-color-scheme: dark) { :root { --bg:#15181b; --card:#1c2024; --ink:#e4e8eb; --soft:#98a2ab; --line:#2d3338;
  --hover:#23282d; --select:#1f3247; --bar:#3a4650; --strong:#6aa9ff; --warm:#e9a25b;
  --gemm:#7aa5f2; --conv2d:#4fc3a1; --attention:#e389b4; --rows:#e0b057; --groups:#b39ae8; --map:#9aa1a7; } }
* { box-sizing:border-box }
body { margin:0; background:var(--bg); color:var(--ink); font:14px/1.45 system-ui,"Segoe UI",sans-serif }
code,.mono { font:12.5px/1.5 ui-monospace,"Cascadia Code","DejaVu Sans Mono",monospace }
header { padding:18px 28px 10px; display:flex; flex-wrap:wrap; gap:6px 28px; align-items:baseline }
h1 { font-size:19px; margin:0 } h1 span { color:var(--soft); font-weight:400 }
h2 { font-size:14px; margin:0 0 8px } h3 { font-size:12px; margin:14px 0 4px; color:var(--soft); font-weight:600 }
nav { display:flex; gap:4px } nav button, .tool button { font:inherit; border:1px solid var(--line); background:var(--card); color:inherit;
  padding:3px 12px; border-radius:6px; cursor:pointer } nav button.on { background:var(--strong); color:#fff; border-color:var(--strong) }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(225px,1fr)); gap:12px; padding:6px 28px 14px }
.tile { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:10px 14px }
.tile b { font-size:21px; font-weight:600 } .tile small { color:var(--soft) } .tile p { margin:2px 0 0; color:var(--soft); font-size:12.5px }
.pair { display:grid; grid-template-columns:58px 1fr; gap:2px 8px; font-size:12px; align-items:center; margin-top:5px; color:var(--soft) }
.meter { height:7px; border-radius:4px; background:var(--bar) } .meter.now { background:var(--strong) }
main { display:grid; grid-template-columns:minmax(0,1fr) minmax(360px,34%); gap:16px; padding:0 28px }
.card { background:var(--card); border:1px solid var(--line); border-radius:10px; overflow:hidden }
.tool { display:flex; flex-wrap:wrap; gap:8px 16px; align-items:center; padding:9px 14px; border-bottom:1px solid var(--line); font-size:12.5px; color:var(--soft) }
.tool input[type=search] { font:inherit; padding:3px 9px; border:1px solid var(--line); border-radius:6px; background:var(--bg); color:inherit; width:180px }
.key { display:inline-flex; gap:5px; align-items:center } .dot { width:9px; height:9px; border-radius:3px; display:inline-block }
#list { position:relative; max-height:72vh; overflow:auto }
#edges { position:absolute; left:0; top:0; pointer-events:none }
.row { position:absolute; left:0; right:0; display:grid; grid-template-columns:104px 34px 74px minmax(0,1fr) 168px; gap:8px; align-items:center;
  padding-right:14px; cursor:pointer; white-space:nowrap }
.row:hover { background:var(--hover) } .row.on { background:var(--select) } .row.dim { opacity:.28 }
.row .n { color:var(--soft); text-align:right; font-variant-numeric:tabular-nums }
.row .what { display:flex; gap:0; overflow:hidden; white-space:pre } .row .what > * { overflow:hidden; text-overflow:ellipsis }
.row .what u { text-decoration:none; color:var(--soft); flex:0 1 auto; min-width:1.6em } .row .what b { font-weight:400; flex:0 0 auto; max-width:90% }
.row .what i { font-style:normal; color:var(--soft); flex:1 1 0; min-width:0; margin-left:8px }
.chip { border-radius:5px; padding:0 7px; font-size:11.5px; color:#fff; text-align:center; line-height:18px }
@media (prefers-color-scheme: dark) { .chip { color:#14171a } }
.cost { display:grid; grid-template-columns:1fr 70px; gap:7px; align-items:center; font-size:12px; color:var(--soft); text-align:right; font-variant-numeric:tabular-nums }
.cost .track { height:8px } .cost .fill { height:8px; border-radius:4px; background:var(--bar); margin-left:auto }
.phase { position:absolute; left:104px; right:0; font-size:11.5px; color:var(--soft); border-bottom:1px solid var(--line); display:flex; align-items:end; padding:0 0 2px 40px }
#detail { position:sticky; top:12px; align-self:start; padding:14px 18px; max-height:calc(100vh - 24px); overflow:auto }
#detail h2 { overflow-wrap:anywhere; font-size:15px; margin-bottom:2px }
.hole { display:grid; grid-template-columns:64px minmax(0,1fr); gap:3px 10px; margin:5px 0 }
.hole > span { color:var(--soft); overflow-wrap:anywhere; font-size:12.5px } .hole code { overflow-wrap:anywhere; white-space:pre-wrap }
.hole .type { color:var(--soft); font-size:11.5px } .fn { color:var(--strong) } .num { color:var(--warm) }
.apart { margin:6px 0; padding-left:10px; border-left:3px solid var(--line) } .apart div { color:var(--soft); overflow-wrap:anywhere }
a { color:var(--strong); cursor:pointer; text-decoration:none } a:hover { text-decoration:underline }
#memory { margin:16px 28px 28px; padding:14px 18px } #memory p { margin:0 0 8px; color:var(--soft); font-size:12.5px }
#memory svg { display:block; width:100%; background:var(--bg); border-radius:6px } #tip { min-height:20px; font-size:12.5px; color:var(--soft) }
@media (max-width:900px) { main { grid-template-columns:1fr } #detail { position:static; max-height:none } }
)css";

const std::string_view kPageBody = R"html(<body>
<header><h1 id="title"></h1><nav id="parts"></nav></header>
<section class="tiles" id="tiles"></section>
<main>
  <section class="card">
    <div class="tool"><input type="search" id="filter" placeholder="filter launches" aria-label="filter launches">
      <span id="keys" style="display:flex;gap:12px"></span>
      <label class="key">zoom <input type="range" id="zoom" min="14" max="44" value="28" aria-label="row height"></label></div>
    <div id="list"></div>
  </section>
  <aside class="card" id="detail"></aside>
</main>
<section class="card" id="memory"><h2>Activation memory</h2><p id="arena"></p><svg id="arenasvg" height="260" preserveAspectRatio="none"></svg><div id="tip"></div></section>
)html";

const std::string_view kPageScript = R"js(
const byId = id => document.getElementById(id);
const make = (tag, cls, html) => { const e = document.createElement(tag); if (cls) e.className = cls; if (html !== undefined) e.innerHTML = html; return e; };
const esc = s => String(s).replace(/[&<>"]/g, c => ({'&':'&amp;','<':'&lt;','>':'&gt;','"':'&quot;'}[c]));
const three = x => x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
const bytes = b => b >= 1e9 ? three(b/1e9)+' GB' : b >= 1e6 ? three(b/1e6)+' MB' : b >= 1e3 ? three(b/1e3)+' kB' : b+' B';
const work = f => f >= 1e9 ? three(f/1e9)+' GFLOP' : f >= 1e6 ? three(f/1e6)+' MFLOP' : three(f/1e3)+' kFLOP';
const time = ms => ms >= 1000 ? three(ms/1000)+' s' : ms >= 1 ? three(ms)+' ms' : three(ms*1000)+' us';
const color = k => `var(--${['gemm','conv2d','attention','rows','groups','map'].includes(k) ? k : 'map'})`;
const timesCount = (a, b) => b > 0 ? (a/b).toFixed(1).replace(/\.0$/, '') + ' x' : '';
const expression = t => esc(t).replace(/([A-Za-z_][A-Za-z0-9_]*)(?=\()/g, '<span class="fn">$1</span>').replace(/(^|[\s(,-])(\d+\.?\d*(?:e[-+]?\d+)?)(?=[\s),]|$)/g, '$1<span class="num">$2</span>');
const title = name => { const at = name.search(/[^.]+\.[^.]*(?:\.\d+)?$/); return at > 0 ? `<u>${esc(name.slice(0, at))}</u><b>${esc(name.slice(at))}</b>` : `<b>${esc(name)}</b>`; };
let net, selected = 0;

function header() {
  byId('title').innerHTML = `${esc(net.model)} <span>${esc(net.part)} on ${esc(net.device)}</span>`;
  const steps = net.launches.filter(l => l.rate === net.rate), ms = steps.reduce((s, l) => s + (l.ms || 0), 0);
  const flops = steps.reduce((s, l) => s + l.flops, 0), c = net.counts, unit = net.rate === 'step' ? 'step' : 'run', hoisted = net.launches.length - steps.length;
  const meter = (v, max, now) => `<div class="meter ${now ? 'now' : ''}" style="width:${Math.max(1, 100*v/max)}%"></div>`;
  const tiles = [`<b>${c.total}</b> <small>launches per ${unit}</small><p>${c.kernels} kernels: ${c.elementwise} elementwise, ${c.concat} concat, ${c.permute} permute, ${c.upsample} upsample` +
      (hoisted ? `; ${hoisted} more that run less often` : '') + `</p>`,
    `<b>${bytes(net.bytes.fused)}</b> <small>moved per ${unit}</small><div class="pair"><span>fused</span>${meter(net.bytes.fused, net.bytes.unfused, true)}<span>unfused</span>${meter(net.bytes.unfused, net.bytes.unfused)}</div><p>${bytes(net.bytes.unfused)} unfused, ${timesCount(net.bytes.unfused, net.bytes.fused)} as much</p>`,
    `<b>${bytes(net.peak_bytes)}</b> <small>peak memory</small><p>activations ${bytes(net.memory.activations)}, weights ${bytes(net.memory.weights)}, scratch ${bytes(net.memory.scratch)}` +
      ['states', 'places'].map(k => net.memory[k] ? `, ${k} ${bytes(net.memory[k])}` : '').join('') + `</p>`,
    ms ? `<b>${time(ms)}</b> <small>per ${unit}</small><p>${work(flops)}, ${work(flops/ms*1e3)}/s</p>`
       : `<b>${work(flops)}</b> <small>per ${unit}</small><p>not timed: use explain --time</p>`];
  byId('tiles').replaceChildren(...tiles.map(t => make('div', 'tile', t)));
  byId('keys').replaceChildren(...[...new Set(net.launches.map(l => l.skeleton))].map(k =>
    make('span', 'key', `<i class="dot" style="background:${color(k)}"></i>${esc(k)} ${net.launches.filter(l => l.skeleton === k).length}`)));
}

function layout() {  // y of every row, with a heading above each phase
  const h = +byId('zoom').value, ys = [], heads = [];
  let y = 4;
  net.launches.forEach((l, i) => {
    if (i === 0 || l.rate !== net.launches[i-1].rate) { heads.push([y, l.rate]); y += 26; }
    ys.push(y); y += h;
  });
  return {h, ys, heads, height: y + 6};
}

const phaseNames = {constant: 'once', schedule: 'once per schedule', prompt: 'once per prompt', step: 'every step'};
function list() {
  const box = byId('list'), at = layout(), timed = net.launches.some(l => l.ms);
  const cost = l => timed ? l.ms || 0 : l.bytes, most = Math.max(...net.launches.map(cost), 1e-9);
  box.replaceChildren();
  const space = make('div'); space.style.height = at.height + 'px'; box.append(space);
  for (const [y, rate] of at.heads) { const p = make('div', 'phase', phaseNames[rate] || rate); p.style.top = y + 'px'; p.style.height = '26px'; box.append(p); }
  net.launches.forEach((l, i) => {
    const summary = l.outputs.length ? l.outputs[0].text : '';
    const row = make('div', 'row', `<span></span><span class="n">${i}</span><span class="chip" style="background:${color(l.skeleton)}">${esc(l.skeleton)}</span>` +
      `<span class="what">${title(l.name)} <i class="mono">${esc(summary)}</i></span>` +
      `<span class="cost"><span class="track"><div class="fill" style="width:${100*cost(l)/most}%;background:${color(l.skeleton)}"></div></span>${timed ? (l.ms ? time(l.ms) : '') : bytes(l.bytes)}</span>`);
    row.style.top = at.ys[i] + 'px'; row.style.height = at.h + 'px'; row.dataset.i = i;
    if (at.h < 20) { row.style.fontSize = '11px'; row.children[2].style.lineHeight = at.h - 4 + 'px'; }
    row.onclick = () => select(i);
    box.append(row);
  });
  edges(box, at);
  filter();
}

function filter() {
  const q = byId('filter').value.toLowerCase();
  for (const row of byId('list').querySelectorAll('.row')) {
    const l = net.launches[row.dataset.i];
    const text = [l.name, l.skeleton, l.anchor, ...l.holes.concat(l.outputs, l.lets).map(h => h.text), ...l.why_apart].join(' ').toLowerCase();
    row.classList.toggle('dim', q !== '' && !text.includes(q));
    row.classList.toggle('on', +row.dataset.i === selected);
  }
}

function holes(lines, label) {
  return lines.map(h => `<div class="hole"><span>${esc(label || h.name)}</span><div><code>${expression(h.text)}</code>` +
    h.where.map(w => `<br><code>where ${expression(w)}</code>`).join('') +
    `<div class="type mono">${label ? esc(h.name) + ' ' : ''}${esc(h.type)}</div></div></div>`).join('');
}

function links(names, others) {
  return names.map(n => { const to = others(n); return to.length ? `<code>${esc(n)}</code> ` + to.map(i => `<a data-to="${i}">#${i}</a>`).join(' ') : `<code>${esc(n)}</code>`; }).join(', ') || 'nothing';
}

function apart(a) {  // fused into or read by other launches, or refused and why
  const to = a.into.map(p => { const i = net.launches.findIndex(o => o.name === p.launch); return `<a data-to="${i}">#${i}</a> (hole ${esc(p.hole)})`; }).join(', ');
  const fused = a.into.some(p => net.launches.some(o => o.name === p.launch && o.anchor));
  const how = a.kind === 'refused' ? `refused: ${esc(a.why)}${to ? `; ${fused ? 'fused into' : 'computed in'} ${to}` : ''}` : (a.kind === 'fused' ? 'fused into ' : 'read by ') + to;
  return `<div class="apart"><code>${esc(a.what)}</code><div>${how}</div></div>`;
}

function select(i, scroll) {
  selected = i;
  const l = net.launches[i], writers = n => net.launches.flatMap((o, k) => o.writes.includes(n) ? [k] : []), readers = n => net.launches.flatMap((o, k) => o.reads.includes(n) ? [k] : []);
  const worst = Math.max(l.bytes, l.unfused_bytes, 1);
  byId('detail').innerHTML = `<h2>#${i} ${esc(l.name)}</h2><span class="chip" style="background:${color(l.skeleton)}">${esc(l.skeleton)}</span> <span style="color:var(--soft)">${esc(l.anchor)}</span>` +
    (l.lets.length ? `<h3>computed first</h3>${holes(l.lets)}` : '') + (l.holes.length ? `<h3>fills the holes</h3>${holes(l.holes)}` : '') +
    `<h3>writes</h3>${holes(l.outputs, 'out')}` + (l.stored || []).map(s => `<div style="color:var(--soft)">${esc(s.buffer)}: ${esc(s.why)}</div>`).join('') +
    `<h3>cost</h3><div class="pair"><span>fused</span><div class="meter now" style="width:${100*l.bytes/worst}%"></div><span>unfused</span><div class="meter" style="width:${100*l.unfused_bytes/worst}%"></div></div>` +
    `<div>${bytes(l.bytes)} moved, ${bytes(l.unfused_bytes)} with one launch per node${l.flops ? `, ${work(l.flops)}` : ''}${l.ms ? `, ${time(l.ms)}${l.flops ? ` (${work(l.flops/l.ms*1e3)}/s)` : ''}` : ''}</div>` +
    (l.ms && l.gb_per_s !== null ? `<div>${three(l.gb_per_s)} GB/s${l.flop_per_byte ? `, ${three(l.flop_per_byte)} FLOP per byte` : ''}${l.roofline_share !== undefined ? `, ${(100*l.roofline_share).toFixed(0)} % of the roofline` : ''}</div>` : '') +
    (l.how ? `<div style="color:var(--soft)">${esc(l.how)}</div>` : '') +
    `<h3>neighbours</h3><div>reads ${links(l.reads, writers)}</div><div>read by ${links(l.writes, readers)}</div>` +
    (l.apart.length ? `<h3>readers outside this launch</h3>${l.apart.map(apart).join('')}` : '');
  for (const a of byId('detail').querySelectorAll('a')) a.onclick = () => select(+a.dataset.to, true);
  filter();
  edges(byId('list'), layout());
  arena();
  if (scroll) byId('list').querySelector(`.row[data-i="${i}"]`).scrollIntoView({block: 'center', behavior: 'smooth'});
}
)js";

const std::string_view kPageDrawing = R"js(
const svg = (tag, attrs) => { const e = document.createElementNS('http://www.w3.org/2000/svg', tag); for (const k in attrs) e.setAttribute(k, attrs[k]); return e; };

function edges(box, at) {  // an arc from the launch that writes a buffer to each that reads it
  byId('edges')?.remove();
  const s = svg('svg', {id: 'edges', width: 104, height: at.height}), writer = {}, x = 94;
  net.launches.forEach((l, i) => l.writes.forEach(b => writer[b] = i));
  const path = [], strong = [], faint = [];
  net.launches.forEach((l, i) => l.reads.forEach(b => {
    if (!(b in writer)) return;
    const a = at.ys[writer[b]] + at.h/2, z = at.ys[i] + at.h/2, reach = Math.min(88, 7 + 5.2*Math.sqrt(Math.max(0, i - writer[b] - 1))*2);
    const on = i === selected || writer[b] === selected;
    (on ? strong : net.launches[writer[b]].rate !== l.rate ? faint : path).push(i - writer[b] === 1 ? `M${x} ${a}V${z}` : `M${x} ${a}C${x-reach} ${a + (z-a)*.12} ${x-reach} ${z - (z-a)*.12} ${x} ${z}`);
  }));
  s.append(svg('path', {d: faint.join(''), fill: 'none', stroke: 'var(--bar)', 'stroke-width': .6, 'stroke-opacity': .45}));
  s.append(svg('path', {d: path.join(''), fill: 'none', stroke: 'var(--bar)', 'stroke-width': 1.1}), svg('path', {d: strong.join(''), fill: 'none', stroke: 'var(--strong)', 'stroke-width': 2}));
  net.launches.forEach((l, i) => s.append(svg('circle', {cx: x, cy: at.ys[i] + at.h/2, r: i === selected ? 5 : 3.4, fill: color(l.skeleton)})));
  box.append(s);
}

function arena() {  // launches to the right, offset upwards; one rectangle a buffer
  const s = byId('arenasvg'), n = Math.max(1, net.launches.length), total = Math.max(1, net.memory.activations);
  s.setAttribute('viewBox', `0 0 ${n*10} 1000`);
  s.replaceChildren();
  byId('arena').textContent = `One allocation of ${bytes(total)}: offset upwards, launches to the right. Each rectangle is a buffer, from the launch that writes it to the last one that reads it.`;
  const fills = {temporary: null, input: 'var(--bar)', output: 'var(--warm)'};
  net.buffers.forEach(b => {
    if (b.offset < 0) return;
    const l = net.launches.find(o => o.writes.includes(b.name)), near = net.launches[selected] && (net.launches[selected].reads.includes(b.name) || net.launches[selected].writes.includes(b.name));
    const r = svg('rect', {x: b.first*10 + .4, width: (b.last - b.first + 1)*10 - .8, y: 1000*(1 - (b.offset + b.bytes)/total), height: Math.max(1.5, 1000*b.bytes/total),
      fill: fills[b.role] || color(l ? l.skeleton : 'map'), 'fill-opacity': near ? 1 : .42, stroke: near ? 'var(--ink)' : 'none', 'vector-effect': 'non-scaling-stroke'});
    r.onmousemove = () => byId('tip').textContent = `${b.name} ${b.type}: ${bytes(b.bytes)} at offset ${b.offset.toLocaleString('en')}, ${b.role}, launches ${b.first} to ${b.last}`;
    if (l) { r.style.cursor = 'pointer'; r.onclick = () => select(net.launches.indexOf(l), true); }
    s.append(r);
  });
  s.append(svg('line', {x1: selected*10 + 5, x2: selected*10 + 5, y1: 0, y2: 1000, stroke: 'var(--strong)', 'stroke-width': 1, 'vector-effect': 'non-scaling-stroke'}));
}

function show(i) {
  net = networks[i]; selected = 0;
  byId('parts').replaceChildren(...(networks.length > 1 ? networks.map((n, k) => { const b = make('button', k === i ? 'on' : '', esc(n.part)); b.onclick = () => show(k); return b; }) : []));
  header(); list(); select(Math.max(0, net.launches.findIndex(l => l.rate === net.rate)));
}
byId('filter').oninput = filter;
byId('zoom').oninput = list;
document.onkeydown = e => {
  if (e.target.tagName === 'INPUT') return;
  const d = {ArrowDown: 1, j: 1, ArrowUp: -1, k: -1}[e.key];
  if (d) { e.preventDefault(); select(Math.min(net.launches.length - 1, Math.max(0, selected + d)), true); }
};
show(Math.max(0, networks.findIndex(n => n.part === 'unet')));
)js";

}  // namespace tenon::cli
