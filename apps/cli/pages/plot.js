const byId = id => document.getElementById(id);
const make = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };
const svg = (tag, attributes, text) => { const e = document.createElementNS('http://www.w3.org/2000/svg', tag); for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v); if (text !== undefined) e.textContent = text; return e; };
const palette = ['#3b7dd8', '#d9822b', '#2a9d6f', '#c2458a', '#7a5cc0', '#b79a1f', '#3aa6b9', '#8a8f94'];
const dashes = ['', '6 3', '2 3', '9 3 2 3'];
const number = x => { const a = Math.abs(x); return a !== 0 && (a < 1e-3 || a >= 1e5) ? x.toExponential(2) : String(+x.toPrecision(4)); };
const percent = x => number(+(100*x).toPrecision(4)) + ' %';
const groups = [
  ['Exact match, held out', ['evaluation.exact_match'], percent], ['Exact match of completions', ['exact_match'], percent],
  ['Reward', ['reward']], ['Validation loss, on fixed noise', ['evaluation.validation_loss']], ['Loss', ['loss']], ['Largest |ratio - 1| before the first update', ['ratio_error']],
  ['KL to the initial model', ['kl']], ['Gradient norm before clipping', ['grad_norm']], ['Learning rate', ['lr']],
  ['Seconds by phase', ['rollout_seconds', 'reward_seconds', 'update_seconds', 'evaluation_seconds']],
  ['Tokens per completion', ['tokens']], ['Standard deviation of rewards', ['reward_std']], ['Groups with equal rewards', ['flat_groups'], percent],
  ['Clipped tokens', ['clipped_low', 'clipped_high'], percent], ['Completions cut off', ['truncated'], percent]];
const known = new Set(groups.flatMap(g => g[1]));
const others = [...new Set(runs.flatMap(r => Object.keys(r.series)))].filter(k => !known.has(k));
const of_kind = prefix => others.filter(k => k.startsWith(prefix));
if (of_kind('reward.').length) groups.splice(3, 0, ['Each reward', of_kind('reward.')]);
for (const k of others) if (!k.startsWith('reward.')) groups.push([k, [k]]);
const shown = runs.map(() => true);

function smoothed(points, weight) {  // an exponential mean, corrected for its beginning
  let sum = 0, norm = 0;
  return points.map(([x, y]) => { sum = weight*sum + (1 - weight)*y; norm = weight*norm + 1 - weight; return [x, sum/norm]; });
}

function ticks(low, high, most) {
  const step = 10 ** Math.floor(Math.log10((high - low)/most)), unit = [1, 2, 5, 10].map(k => k*step).find(u => (high - low)/u <= most) || 10*step;
  const out = [];
  for (let k = Math.ceil(low/unit - 1e-9); k*unit <= high + unit*1e-9; ++k) out.push(+(k*unit).toPrecision(12));
  return out;
}

function lines_of([, keys]) {
  const out = [], weight = +byId('smooth').value;
  runs.forEach((r, i) => keys.forEach((k, j) => {
    const raw = r.series[k];
    if (!shown[i] || !raw || !raw.length) return;
    out.push({run: i, key: k, raw, points: weight > 0 ? smoothed(raw, weight) : raw, color: palette[(runs.length > 1 ? i : j) % palette.length], dash: runs.length > 1 ? dashes[j % dashes.length] : ''});
  }));
  return out;
}

function chart(group) {
  const lines = lines_of(group), show = group[2] || number;
  if (!lines.length) return null;
  const card = make('section', 'card'), head = make('div', 'head'), tip = make('div', 'tip');
  head.append(make('h2', '', group[0]));
  if (group[1].length > 1) for (const k of group[1].filter(k => lines.some(l => l.key === k))) {
    const key = make('span', 'key'), dot = make('i', 'dot'), line = lines.find(l => l.key === k);
    dot.style.background = runs.length > 1 ? 'none' : line.color;
    if (runs.length > 1) dot.style.border = '1px ' + (line.dash ? 'dashed' : 'solid') + ' var(--soft)';
    key.append(dot, document.createTextNode(k.replace(/^reward\.|_seconds$/, '')));
    head.append(key);
  }
  const values = lines.flatMap(l => l.points.map(p => p[1]).concat(l.raw.map(p => p[1]))), steps = lines.flatMap(l => [l.points[0][0], l.points.at(-1)[0]]);
  const log = byId('log').checked && values.some(v => v > 0), reach = (list, pick) => list.reduce((a, b) => pick(a, b));
  const positive = log ? values.filter(v => v > 0) : values;
  let low = reach(positive, Math.min), high = reach(positive, Math.max);
  if (low === high) { const pad = Math.abs(low)*.1 || 1; if (!log) low -= pad; high += pad; }
  const x0 = reach(steps, Math.min), x1 = Math.max(reach(steps, Math.max), x0 + 1);
  const W = 520, H = 220, L = 62, R = 10, T = 10, B = 24, scale = log ? Math.log10 : v => v;
  const X = x => L + (W - L - R)*(x - x0)/(x1 - x0), Y = y => H - B - (H - T - B)*(scale(y) - scale(low))/(scale(high) - scale(low));
  const s = svg('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': group[0]});
  const marks = log ? ticks(scale(low), scale(high), 4).map(e => 10 ** e) : ticks(low, high, 4);
  for (const y of marks) s.append(svg('line', {x1: L, x2: W - R, y1: Y(y), y2: Y(y), stroke: 'var(--line)'}), svg('text', {x: L - 6, y: Y(y) + 4, 'text-anchor': 'end', 'font-size': 11, fill: 'var(--soft)'}, show(y)));
  for (const x of ticks(x0, x1, 6)) s.append(svg('text', {x: X(x), y: H - 7, 'text-anchor': 'middle', 'font-size': 11, fill: 'var(--soft)'}, number(x)));
  for (const l of lines) {
    const path = points => points.filter(p => !log || p[1] > 0).map((p, i) => `${i ? 'L' : 'M'}${X(p[0]).toFixed(1)} ${Y(p[1]).toFixed(1)}`).join('');
    if (l.points !== l.raw) s.append(svg('path', {d: path(l.raw), fill: 'none', stroke: l.color, 'stroke-opacity': .22}));
    s.append(svg('path', {d: path(l.points), fill: 'none', stroke: l.color, 'stroke-width': 1.8, 'stroke-dasharray': l.dash, 'stroke-linejoin': 'round'}));
    if (l.points.length < 30) for (const p of l.points) if (!log || p[1] > 0) s.append(svg('circle', {cx: X(p[0]), cy: Y(p[1]), r: 2.4, fill: l.color}));
  }
  const cursor = svg('line', {y1: T, y2: H - B, stroke: 'var(--soft)', 'stroke-dasharray': '2 3', visibility: 'hidden'});
  s.append(cursor);
  s.onpointermove = e => {
    const box = s.getBoundingClientRect(), at = x0 + ((e.clientX - box.left)*W/box.width - L)/(W - L - R)*(x1 - x0);
    const nearest = l => l.raw.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
    const step = reach(lines.map(l => nearest(l)[0]), (a, b) => Math.abs(b - at) < Math.abs(a - at) ? b : a);
    cursor.setAttribute('x1', X(step)); cursor.setAttribute('x2', X(step)); cursor.setAttribute('visibility', 'visible');
    tip.replaceChildren(make('span', '', 'step ' + step), ...lines.map(l => {
      const part = make('span', 'key'), dot = make('i', 'dot'), p = nearest(l); dot.style.background = l.color;
      part.append(dot, document.createTextNode(show(p[1]) + (p[0] === step ? '' : ` (${p[0]})`)));
      return part;
    }));
  };
  s.onpointerleave = () => { cursor.setAttribute('visibility', 'hidden'); tip.replaceChildren(); };
  card.append(head, s, tip);
  return card;
}

function table() {
  const total = (r, k) => (r.totals[k] || 0), last = (r, k) => r.series[k]?.length ? r.series[k].at(-1)[1] : undefined;
  const cells = [['run', r => r.name], ['steps', r => r.step], ['reward', r => last(r, 'reward'), number],
    ['held-out exact match: first', r => r.series['evaluation.exact_match']?.[0]?.[1], percent],
    ['best', r => r.series['evaluation.exact_match']?.length ? Math.max(...r.series['evaluation.exact_match'].map(p => p[1])) : undefined, percent],
    ['last', r => last(r, 'evaluation.exact_match'), percent],
    ['rollout', r => total(r, 'rollout_seconds'), x => number(x) + ' s'], ['update', r => total(r, 'update_seconds'), x => number(x) + ' s'],
    ['evaluation', r => total(r, 'evaluation_seconds'), x => number(x) + ' s']];
  const head = make('tr');
  cells.forEach(c => head.append(make('th', '', c[0])));
  byId('table').replaceChildren(head, ...runs.map(r => {
    const row = make('tr');
    cells.forEach(([, value, show]) => { const v = value(r); row.append(make('td', '', v === undefined ? '' : show ? show(v) : v)); });
    return row;
  }));
}

function samples() {
  for (const r of runs) for (const drew of r.samples) {
    const row = make('div', 'row');
    for (const p of drew.pictures) {
      const figure = make('figure'), picture = make('img');
      picture.src = p.picture;
      picture.alt = p.prompt;
      figure.append(picture, make('figcaption', '', p.prompt));
      row.append(figure);
    }
    if (drew.pictures.length) byId('samples').append(make('h2', '', (runs.length > 1 ? r.name + ', ' : '') + 'step ' + drew.step), row);
  }
}

function draw() {
  byId('charts').replaceChildren(...groups.map(chart).filter(c => c));
  byId('none').hidden = byId('charts').children.length > 0;
}

if (runs.length > 1) runs.forEach((r, i) => {
  const key = make('span', 'key run'), dot = make('i', 'dot');
  dot.style.background = palette[i % palette.length];
  key.append(dot, document.createTextNode(r.name));
  key.onclick = () => { shown[i] = !shown[i]; key.classList.toggle('off', !shown[i]); draw(); };
  byId('runs').append(key);
}); else byId('runs').append(make('span', '', runs[0].name));
byId('smooth').oninput = draw;
byId('log').onchange = draw;
table();
samples();
draw();
