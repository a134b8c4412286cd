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
