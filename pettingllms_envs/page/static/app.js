"use strict";
// The page: filters and list at the side, the summary or an episode beside it, all of it reachable by keyboard.

const KEYS = [["j / k", "next, previous episode; in the list also ↓ / ↑"], ["→ / ←", "next, previous step"], ["s", "summary"], ["/", "search"], ["d", "what changed since an agent's last reply"],
  ["c", "tree of candidates"], ["x", "no filter"], ["t", "dark or light"], ["?", "this list"]];

/** `#/12/3` is step 3 of episode 12, counted from 1; anything else the summary. */
function address() {
  const found = location.hash.match(/^#\/(\d+)(?:\/(\d+))?$/);
  const open = found ? Number(found[1]) - 1 : null;
  return { open: open !== null && open < data.rows.length ? open : null, now: found?.[2] ? Number(found[2]) - 1 : 0 };
}

function App() {
  const [place, setPlace] = useState(address);
  const [filter, setFilter] = useState(EVERYTHING);
  const [diff, setDiff] = useState(false);
  const [tree, setTree] = useState(true);
  const help = useRef(null);
  const rows = useMemo(() => data.rows.filter((row) => passes(row, filter)), [filter]);
  const go = (open, now = 0) => { location.hash = open === null ? "#/" : now ? `#/${open + 1}/${now + 1}` : `#/${open + 1}`; };
  useEffect(() => {
    const moved = () => setPlace(address());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const step = (change) => rows.length && go(rows[Math.min(rows.length - 1, Math.max(0, rows.findIndex((row) => row.i === place.open) + change))].i);
  useEffect(() => {
    const pressed = (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      if (/INPUT|SELECT|TEXTAREA/.test(e.target.tagName)) { if (e.key === "Escape") e.target.blur(); return; }
      const last = place.open === null ? 0 : data.rows[place.open].num_steps - 1;
      const actions = {
        j: () => step(1), k: () => step(-1), s: () => go(null), "/": () => { const search = document.getElementById("search"); search.closest("details").open = true; search.focus(); },
        ArrowRight: () => place.open !== null && go(place.open, Math.min(last, place.now + 1)),
        ArrowLeft: () => place.open !== null && go(place.open, Math.max(0, place.now - 1)),
        d: () => setDiff(!diff), c: () => setTree(!tree), x: () => setFilter(EVERYTHING), t: turnTheme, "?": () => help.current.showModal(),
      };
      if (actions[e.key]) { e.preventDefault(); actions[e.key](); }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  return html`<div class="layout">
    <aside class="side">
      <header class="bar"><h1>${data.run.title}</h1>
        <button title="dark or light (t)" aria-label="dark or light" onClick=${turnTheme}>◐</button><button title="keys (?)" aria-label="keys" onClick=${() => help.current.showModal()}>?</button></header>
      <${Filters} filter=${filter} setFilter=${setFilter} />
      <${Count} rows=${rows} />
      <${List} rows=${rows} open=${place.open} onOpen=${(i) => go(i)} onMove=${step} />
    </aside>
    <main tabindex="-1">
      <div class="bar"><button aria-pressed=${place.open === null} onClick=${() => go(null)}>Summary</button><span class="push"></span>
        ${place.open !== null && html`<button aria-pressed=${diff} onClick=${() => setDiff(!diff)}>Changes</button>
          ${data.run.has_candidates && html`<button aria-pressed=${tree} onClick=${() => setTree(!tree)}>Candidates</button>`}`}</div>
      ${place.open === null ? html`<${Summary} rows=${rows} />`
        : html`<${Episode} row=${data.rows[place.open]} now=${place.now} setNow=${(k) => go(place.open, k)} diff=${diff} tree=${tree} />`}
    </main>
    <dialog ref=${help}><h1>Keys</h1><table><tbody>${KEYS.map(([key, what]) => html`<tr><td><kbd>${key}</kbd></td><td>${what}</td></tr>`)}</tbody></table>
      <form method="dialog"><button>Close</button></form></dialog>
  </div>`;
}

function turnTheme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a page opened from a file may not keep anything */ }
}

try { document.documentElement.dataset.theme = localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"); }
catch { document.documentElement.dataset.theme = "light"; }

data.open().then(
  () => { const root = document.getElementById("page"); root.replaceChildren(); render(html`<${App} />`, root); },
  (error) => { document.getElementById("page").textContent = `This page could not be unpacked: ${error}. It needs a browser of 2023 or newer.`; },
);
