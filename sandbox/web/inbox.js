// What arrived, as the server tells it. Text is set as text and never as HTML: all of it came from outside.
'use strict';

const LABELS = { mail: 'Mail', sms: 'SMS', push: 'Push', webhook: 'Webhook', refused: 'Refused' };
const MOST = 500; // lines that stay while others arrive
const find = (id) => document.getElementById(id);

let shown = [];
let more = false; // whether there is something older than the last of them
let kind = '';
let containing = '';
let asking = null; // the question for the newest; one at a time, so that what keeps arriving never overtakes every answer
let wanted = false; // whether it is to be asked again then
// Counted, so that a late answer to an earlier question changes nothing.
let choices = 0;
let openings = 0;
let source = null;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null && child !== ''));
  return element;
}

function when(text) {
  const time = new Date(text);
  const today = time.toDateString() === new Date().toDateString();
  const said = today ? time.toLocaleTimeString() : time.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
  return make('time', { datetime: text, title: time.toISOString() }, said);
}

async function ask(path, signal) {
  const answer = await fetch(path, { signal });
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

function say(text, state = 'live') {
  find('state').textContent = text;
  find('state').dataset.state = state;
}

// The list.

function page(last, signal) {
  const query = new URLSearchParams({ kind, containing });
  if (last) query.set('before', `${last.received_at}~${last.ref}`);
  return ask(`/inbox/arrivals?${query}`, signal);
}

async function refresh() {
  wanted = asking !== null;
  if (wanted) return;
  const question = new AbortController();
  asking = question;
  try {
    const newest = await page(null, question.signal);
    if (question !== asking) return;
    const known = new Set(newest.arrivals.map((one) => one.ref));
    const kept = shown.filter((one) => !known.has(one.ref));
    // Older pages stay where the newest one reaches down to them. Else there is a gap, and they can be asked for again.
    const joined = kept.length > 0 && kept.length < shown.length;
    const all = joined ? [...newest.arrivals, ...kept] : newest.arrivals;
    more = (joined ? more : newest.more) || all.length > MOST;
    shown = all.slice(0, MOST);
    draw();
    say('Live');
  } catch {
    if (question === asking) say('The sandbox does not answer', 'lost');
  } finally {
    if (question === asking) {
      asking = null;
      if (wanted) refresh();
    }
  }
}

async function showOlder() {
  const choice = choices;
  const next = await page(shown.at(-1));
  if (choice !== choices) return;
  const known = new Set(shown.map((one) => one.ref));
  shown = [...shown, ...next.arrivals.filter((one) => !known.has(one.ref))];
  more = next.more;
  draw();
}

function draw() {
  const list = find('arrivals');
  const before = new Map([...list.children].map((item) => [item.dataset.ref, item]));
  const items = shown.map((one) => {
    const text = JSON.stringify(one);
    const known = before.get(one.ref);
    if (known?.dataset.text === text) return known;
    const item = line(one);
    item.dataset.text = text;
    if (!known && before.size > 0) item.classList.add('fresh');
    return item;
  });
  const focused = document.activeElement?.closest('li')?.dataset.ref;
  if (items.length !== before.size || items.some((item, index) => item !== list.children[index])) {
    list.replaceChildren(...items);
    if (focused) items.find((item) => item.dataset.ref === focused)?.querySelector('a').focus();
  }
  mark();
  find('older').hidden = !more;
  const filtered = kind !== '' || containing !== '';
  find('nothing').hidden = shown.length > 0 || filtered;
  find('unmatched').hidden = shown.length > 0 || !filtered;
  find('refused').hidden = kind === 'refused';
}

function line(one) {
  const link = make('a', { href: `#${one.ref}` },
    make('span', { class: `kind ${one.kind}` }, LABELS[one.kind] ?? one.kind),
    make('span', { class: 'to' }, one.address),
    when(one.received_at),
    make('span', { class: 'title' }, one.title && make('b', {}, one.title), ` ${one.preview}`),
    badges(one));
  return make('li', { 'data-ref': one.ref }, link);
}

function badges(one) {
  const told = make('span', { class: 'badges' });
  if (one.verified === true) told.append(make('span', { class: 'good' }, '✓ verified'));
  if (one.verified === false) told.append(make('span', { class: 'bad' }, 'not verified'));
  if (one.times > 1) told.append(make('span', { class: 'note' }, `delivered ${one.times} times`));
  return told;
}

function mark() {
  const open = location.hash.slice(1);
  for (const item of find('arrivals').children) {
    const link = item.firstElementChild;
    if (item.dataset.ref === open) link.setAttribute('aria-current', 'true');
    else link.removeAttribute('aria-current');
  }
}

// What is opened.

async function open() {
  const ref = location.hash.slice(1);
  const question = ++openings;
  const place = find('opened');
  document.body.classList.toggle('reading', ref !== '');
  find('unopened').hidden = ref !== '';
  mark();
  if (!ref) {
    place.hidden = true;
    place.replaceChildren();
    return;
  }
  let parts;
  try {
    parts = read(await ask(`/inbox/arrivals/${encodeURIComponent(ref)}`));
  } catch {
    parts = [back(), make('p', {}, 'It is not there any more, or the sandbox does not answer.')];
  }
  if (question !== openings) return;
  place.replaceChildren(...parts);
  place.hidden = false;
  place.scrollTop = 0;
  if (getComputedStyle(find('list')).display === 'none') place.focus();
}

function back() {
  return make('p', { class: 'back' }, make('a', { href: '#' }, '← Inbox'));
}

function read(one) {
  const parts = [
    back(),
    make('p', { class: 'above' }, make('span', { class: `kind ${one.kind}` }, LABELS[one.kind] ?? one.kind), when(one.received_at)),
    make('h2', {}, one.title || (one.kind === 'sms' ? 'Text message' : '(no subject)')),
  ];
  if (one.warning) parts.push(make('p', { class: 'warning' }, one.warning));
  const first = ['From', 'To', 'Reply-To', 'Message-ID'];
  const head = one.kind === 'mail' && one.source
    ? first.flatMap((name) => one.facts.filter((fact) => fact[0] === name)) : one.facts;
  const rest = one.facts.filter((fact) => !head.includes(fact));
  parts.push(facts(head));
  // Nothing in it may run, open, submit or lead anywhere, whatever its own policy says.
  if (one.html) parts.push(make('iframe', { sandbox: '', src: one.html, title: 'The mail as HTML', referrerpolicy: 'no-referrer' }));
  if (one.html && one.text) parts.push(folded('Plain text', make('pre', {}, one.text)));
  else if (one.text) parts.push(make('pre', { class: one.kind === 'webhook' ? 'code' : 'body' }, one.text));
  if (one.links?.length) parts.push(folded(`Links (${one.links.length})`, make('ul', { class: 'links' }, ...one.links.map((link) => make('li', {}, link)))));
  if (rest.length) parts.push(folded(`All headers (${one.facts.length})`, facts(one.facts)));
  parts.push(requests(one));
  if (one.source) parts.push(make('p', {}, make('a', { href: one.source, target: '_blank', rel: 'noreferrer' }, 'As it was sent')));
  return parts;
}

function facts(pairs) {
  return make('dl', {}, ...pairs.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value))));
}

function folded(title, content) {
  return make('details', {}, make('summary', {}, title), content);
}

function requests(one) {
  const rows = one.requests.map((request) => make('li', {}, when(request.received_at), ` ${request.action}`));
  return folded(`Requests to this address (${one.requests.length === 20 ? 'the last 20' : one.requests.length})`, make('ul', { class: 'requests' }, ...rows));
}

// What is asked for.

function choose(changes) {
  ({ kind, containing } = { kind, containing, ...changes });
  for (const button of document.querySelectorAll('#kinds button')) {
    button.setAttribute('aria-pressed', String(button.dataset.kind === kind));
  }
  if (find('containing').value.trim() !== containing) find('containing').value = containing;
  const query = new URLSearchParams([['kind', kind], ['q', containing]].filter(([, value]) => value)).toString();
  history.replaceState(null, '', `${location.pathname}${query && `?${query}`}${location.hash}`);
  choices += 1;
  shown = [];
  more = false;
  find('arrivals').replaceChildren();
  asking?.abort();
  asking = null;
  refresh();
}

function step(by) {
  const items = [...find('arrivals').children];
  const at = items.findIndex((item) => item.dataset.ref === location.hash.slice(1));
  const item = items[Math.min(Math.max(at + by, 0), items.length - 1)];
  if (!item) return;
  location.hash = item.dataset.ref; // at once, for the next key may come before anything is opened
  item.firstElementChild.focus();
}

function search() {
  find('containing').focus();
  find('containing').select();
}

function press(event) {
  const typing = event.target.matches?.('input');
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape' && typing) choose({ containing: '' });
  else if (event.key === 'Escape') location.hash = '';
  else if (typing) return;
  else if (event.key === '/') search();
  else if (event.key === 'j') step(1);
  else if (event.key === 'k') step(-1);
  else return;
  event.preventDefault();
}

function listen() {
  source?.close();
  source = null;
  if (document.hidden) return; // a browser has few connections for all its tabs
  source = new EventSource('/inbox/changes');
  source.addEventListener('message', refresh);
  source.addEventListener('error', () => say('Looking for the sandbox', 'lost'));
}

let typed = 0;
find('containing').addEventListener('input', (event) => {
  clearTimeout(typed);
  typed = setTimeout(() => choose({ containing: event.target.value.trim() }), 150);
});
find('search').addEventListener('submit', (event) => event.preventDefault());
find('kinds').addEventListener('click', (event) => {
  if (event.target.dataset.kind !== undefined) choose({ kind: event.target.dataset.kind });
});
find('refused').addEventListener('click', () => choose({ kind: 'refused' }));
find('clear').addEventListener('click', () => choose({ kind: '', containing: '' }));
find('older').addEventListener('click', showOlder);
document.addEventListener('keydown', press);
document.addEventListener('visibilitychange', listen);
window.addEventListener('hashchange', open);

const asked = new URLSearchParams(location.search);
choose({ kind: Object.hasOwn(LABELS, asked.get('kind')) ? asked.get('kind') : '', containing: asked.get('q') ?? '' });
open();
listen();
