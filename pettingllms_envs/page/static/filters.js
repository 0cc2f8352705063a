"use strict";
// The list at the side: which episodes are shown, and which one is open.

const EVERYTHING = { text: "", group: "", outcome: "", agent: "", part: "", step: "" };

/** The second part of an episode's row: how long it was, and what each agent got. */
const factsOf = (row) => [data.run.groups.length > 1 && row.group, row.step !== null && `step ${row.step}`, `${counted(row.num_steps, "decision")}`,
  ...Object.entries(row.figures).filter(([, own]) => "return" in own).map(([agent, own]) => `${agent} ${short(own.return)}`)].filter(Boolean).join(" · ");

/** All rows are as high as the longest of them needs, so that nothing is cut; a line holds about 38 characters. */
function rowHeight() {
  const longest = d3.max(data.rows, (row) => Math.ceil(factsOf(row).length / 38)) ?? 1;
  const names = d3.max(data.rows, (row) => Math.ceil(row.name.length / 26)) ?? 1;
  return 9 + 20 * Math.min(names, 4) + 17 * Math.min(longest, 8);
}

function passes(row, filter) {
  if (filter.group && row.group !== filter.group) return false;
  if (filter.step && String(row.step) !== filter.step) return false;
  if (filter.outcome === "solved" && row.success !== true) return false;
  if (filter.outcome === "failed" && (row.success !== false || row.error)) return false;
  if (filter.outcome === "error" && !row.error) return false;
  if (filter.outcome === "unreadable" && !row.unreadable) return false;
  if (filter.part) {
    const name = filter.part.slice(1), sign = filter.part[0], keys = Object.keys(row.parts);
    const role = data.run.roles[filter.agent];
    const found = keys.filter((key) => key.endsWith("." + name) && (!filter.agent || key.startsWith("team.") || key.startsWith(role + ".")));
    if (!found.some((key) => (sign === "+" ? row.parts[key] > 0 : row.parts[key] < 0))) return false;
  } else if (filter.agent && !(filter.agent in row.figures)) return false;
  const wanted = filter.text.trim().toLowerCase();
  return !wanted || `${row.name} ${row.group} ${row.error ?? ""} ${row.about ?? ""}`.toLowerCase().includes(wanted);
}

function Choice({ label, value, options, onChange, wide }) {
  return html`<select class=${wide ? "wide" : ""} aria-label=${label} value=${value} onChange=${(e) => onChange(e.target.value)}>
    <option value="">${label}</option>
    ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
  </select>`;
}

function Filters({ filter, setFilter }) {
  const set = (name) => (value) => setFilter({ ...filter, [name]: value });
  const { groups, agents, parts, steps } = data.run;
  const same = (names) => names.map((name) => [String(name), String(name)]);
  const narrow = useMemo(() => matchMedia("(max-width: 760px)").matches, []);
  return html`<details class="filter" open=${!narrow}><summary>Filter the list</summary><div class="filters">
    <input class="wide" id="search" type="search" placeholder="Search names, errors, outcomes  ( / )" value=${filter.text}
      onInput=${(e) => set("text")(e.target.value)} />
    ${groups.length > 1 && html`<${Choice} wide label="any task" value=${filter.group} options=${same(groups)} onChange=${set("group")} />`}
    <${Choice} label="any outcome" value=${filter.outcome} onChange=${set("outcome")}
      options=${[["solved", "solved"], ["failed", "not solved"], ["error", "error"], ["unreadable", "unreadable reply"]]} />
    <${Choice} label="any agent" value=${filter.agent} options=${same(agents)} onChange=${set("agent")} />
    <${Choice} label="any reward part" value=${filter.part} onChange=${set("part")}
      options=${parts.flatMap((part) => [["+" + part, `${part} above 0`], ["-" + part, `${part} below 0`]])} />
    ${steps.length > 1 && html`<${Choice} label="any step" value=${filter.step} options=${same(steps)} onChange=${set("step")} />`}
  </div></details>`;
}

function Count({ rows }) {
  const shares = d3.rollups(rows.filter((row) => !row.error && row.success !== null), (own) => d3.mean(own, (row) => Number(row.success)), (row) => row.group, (row) => row.problem)
    .flatMap(([, problems]) => problems.map(([, share]) => share));
  const [low, high] = wilson(d3.sum(shares), shares.length), errors = rows.filter((row) => row.error).length;
  return html`<div class="count" role="status">${counted(rows.length, "episode")}${shares.length > 0 &&
    html`, ${percent(d3.mean(shares))} solved${" "}<span title=${`Wilson's 95% interval over ${counted(shares.length, "problem")}`}>[${percent(low)}, ${percent(high)}]</span>`}${errors > 0 &&
    html`,${" "}<span class="bad">${counted(errors, "error")}</span>`}</div>`;
}

/** Only the rows in sight are in the document, so 5,000 cost as much as 50. */
function List({ rows, open, onOpen, onMove }) {
  const box = useRef(null);
  const ROW_HEIGHT = useMemo(rowHeight, []);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(800);
  const at = rows.findIndex((row) => row.i === open);
  useEffect(() => {
    const measure = () => setHeight(box.current.clientHeight);
    measure();
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  useEffect(() => {
    const seen = box.current, y = at * ROW_HEIGHT;
    if (at >= 0 && (y < seen.scrollTop || y + ROW_HEIGHT > seen.scrollTop + seen.clientHeight)) seen.scrollTop = y - seen.clientHeight / 2;
  }, [open, rows]);
  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - 5), last = Math.min(rows.length, Math.ceil((top + height) / ROW_HEIGHT) + 5);
  return html`${rows.length === 0 && html`<p class="wait">No episode passes the filters; <kbd>x</kbd> takes them away.</p>`}
    <div class="list" role="listbox" tabindex="0" aria-label="Episodes" aria-activedescendant=${at >= first && at < last ? `row-${open}` : undefined} ref=${box} onScroll=${(e) => setTop(e.target.scrollTop)}
      onKeyDown=${(e) => { const change = { ArrowDown: 1, ArrowUp: -1 }[e.key]; if (change) { e.preventDefault(); onMove(change); } }}>
    <div role="presentation" style=${`height: ${rows.length * ROW_HEIGHT}px`}>
      ${rows.slice(first, last).map((row, k) => html`<div class="row" role="option" id=${`row-${row.i}`} key=${row.i} aria-selected=${row.i === open}
        style=${`top: ${(first + k) * ROW_HEIGHT}px; height: ${ROW_HEIGHT}px`} onClick=${() => onOpen(row.i)}>
        <div class="name"><span>${row.name}</span>${row.error ? html`<span class="bad">error</span>` : row.success === null ? html`<span class="soft">no verdict</span>`
          : html`<span class=${row.success ? "good" : "soft"}>${row.success ? "✓ solved" : "not solved"}</span>`}</div>
        <div class="facts">${factsOf(row)}</div>
      </div>`)}
    </div>
  </div>`;
}
