import type { Outcome } from "./simulation.ts"

/** What the page draws of an entry. */
type Kind = "request" | "refused" | "unanswered" | "delivery" | "undelivered" | "fault" | "log" | "note"

const kindOf = (what: string): Kind => {
  if (/^(crashes|stands still|hears nothing|gets no new|its clock|database connection|behaves so)/.test(what))
    return "fault"
  if (what.startsWith("receives ")) return /answers 2\d\d$/.test(what) ? "delivery" : "undelivered"
  if (what.startsWith("logs ")) return "log"
  if (/: 2\d\d\b/.test(what)) return "request"
  if (/: [345]\d\d\b/.test(what)) return "refused"
  return /: no answer/.test(what) ? "unanswered" : "note"
}

/** A state of a replica for a while: it is down, or it stands still. */
interface Span {
  readonly who: string
  readonly from: number
  readonly to: number
  readonly what: string
}

const begins: Readonly<Record<string, string>> = { crashes: "is down", "stands still": "stands still" }
const ends = /^(answers requests|continues)$/

/** The times in which replicas are down, stand still, or hear nothing of the database. */
const spansOf = ({ log, virtualMillis }: Outcome) => {
  const open = new Map<string, { readonly from: number; readonly what: string }>()
  const spans: Array<Span> = []
  for (const { at, what, who } of log) {
    const began = open.get(who)
    if (began !== undefined && (ends.test(what) || what in begins)) {
      spans.push({ who, ...began, to: at })
      open.delete(who)
    }
    if (what in begins) open.set(who, { from: at, what: begins[what]! })
    const [, millis] = /^hears nothing of the database for (\d+)/.exec(what) ?? []
    if (millis !== undefined) spans.push({ who, from: at, to: at + Number(millis), what: "hears no database" })
  }
  for (const [who, began] of open) spans.push({ who, ...began, to: virtualMillis })
  return spans
}

/** JSON for a script element: `<` could end it. */
const embedded = (value: unknown) => JSON.stringify(value).replaceAll("<", "\\u003c")

/** The order of the rows: the world, the database, the replicas, the tenants, the receivers. */
const order = (who: string) => {
  if (who === "world" || who === "database") return 0
  if (/^r\d+$/.test(who)) return 1
  return who.startsWith("https:") ? 3 : 2
}

/**
 * A page that replays a run: one row for each replica, tenant and receiver, and time from left to right. It needs
 * nothing but itself.
 */
export const page = (outcome: Outcome): string => {
  const { log, plan, violations, virtualMillis } = outcome
  const rows = [...new Set(log.map(({ who }) => who))].toSorted((a, b) => order(a) - order(b) || (a < b ? -1 : 1))
  const data = {
    rows,
    end: virtualMillis,
    entries: log.map(({ at, what, who }) => [Math.round(at * 1000) / 1000, rows.indexOf(who), kindOf(what), what]),
    spans: spansOf(outcome).map(({ from, to, what, who }) => [rows.indexOf(who), from, to, what]),
    violations: violations.map(({ at, oracle, what }) => [
      Number.isFinite(at) ? at : virtualMillis,
      `${oracle}: ${what}`,
    ]),
  }
  const verdict = violations.length === 0 ? "holds" : `breaks: ${violations[0]!.oracle}`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Seed ${plan.seed} ${verdict.replaceAll("<", "")}</title>
<style>${style}</style>
</head>
<body>
<header>
  <h1>Seed ${plan.seed}</h1>
  <p id="verdict"></p>
  <div class="controls">
    <button id="play" type="button">Play</button>
    <label>Speed <select id="speed"><option value="1">1 ×</option><option value="10" selected>10 ×</option><option value="60">60 ×</option></select></label>
    <label>Show <input id="find" type="search" placeholder="text, such as a tenant or an id"></label>
    <output id="clock"></output>
  </div>
  <input id="time" type="range" min="0" step="1" aria-label="Time">
</header>
<main>
  <div id="scroll"><canvas id="picture" role="img" aria-label="Time line of replicas, tenants and receivers"></canvas></div>
  <ol id="story" aria-label="What happens at this time"></ol>
</main>
<script type="application/json" id="data">${embedded(data)}</script>
<script>${script}</script>
</body>
</html>
`
}

const style = `
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --line: #d5d9de; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --text: #e6e8ea; --line: #363c43; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 14px/1.5 system-ui, sans-serif; }
header { position: sticky; top: 0; padding: 12px 16px; background: var(--back); border-bottom: 1px solid var(--line); }
h1 { margin: 0; font-size: 18px; }
p { margin: 0 0 8px; }
.bad { color: #c62828; font-weight: 600; }
.controls { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; }
button, select, input { font: inherit; }
#time { width: 100%; margin-top: 8px; }
#scroll { overflow-x: auto; }
ol { margin: 0; padding: 8px 16px; list-style: none; font: 12px/1.6 ui-monospace, monospace; }
li { overflow-wrap: anywhere; border-left: 3px solid transparent; padding-left: 6px; }
li.now { border-color: #1976d2; }
li.fault { color: #b26a00; } li.refused, li.unanswered, li.undelivered, li.broken { color: #c62828; }
`

const script = `
const { entries, end, rows, spans, violations } = JSON.parse(document.getElementById("data").textContent)
const get = (id) => document.getElementById(id)
const [picture, time, clock, story, find, play, speed] = ["picture", "time", "clock", "story", "find", "play", "speed"].map(get)
const colours = { request: "#2e7d32", refused: "#c62828", unanswered: "#6d4c41", delivery: "#1976d2", undelivered: "#d81b60", fault: "#ef6c00", log: "#8e8e8e", note: "#607d8b" }
const names = 210, step = 22
get("verdict").textContent = violations.length === 0 ? "Every promise holds." : violations.map(([at, what]) => seconds(at) + " " + what).slice(0, 3).join(" · ")
get("verdict").className = violations.length === 0 ? "" : "bad"
time.max = Math.ceil(end)
time.value = violations.length === 0 ? 0 : violations[0][0]
function seconds(at) { return (at / 1000).toFixed(3) + " s" }
function draw() {
  const ratio = window.devicePixelRatio || 1, width = Math.max(900, window.innerWidth - 2), height = rows.length * step + 24
  picture.width = width * ratio; picture.height = height * ratio
  picture.style.width = width + "px"; picture.style.height = height + "px"
  const g = picture.getContext("2d"), text = getComputedStyle(document.body).color
  g.scale(ratio, ratio); g.font = "12px system-ui, sans-serif"; g.textBaseline = "middle"
  const x = (at) => names + (width - names - 16) * at / end
  rows.forEach((row, n) => {
    g.fillStyle = text; g.globalAlpha = 1; g.fillText(row.replace("https://", "").slice(0, 30), 8, n * step + step / 2)
    g.globalAlpha = 0.15; g.fillRect(names, n * step + step - 1, width - names, 1)
  })
  g.globalAlpha = 0.35
  for (const [row, from, to, what] of spans) {
    g.fillStyle = what === "is down" ? "#c62828" : what === "stands still" ? "#ef6c00" : "#8e24aa"
    g.fillRect(x(from), row * step + 4, Math.max(2, x(Math.min(to, end)) - x(from)), step - 8)
  }
  g.globalAlpha = 0.85
  const wanted = find.value
  for (const [at, row, kind, what] of entries) {
    if (wanted !== "" && !what.includes(wanted) && !rows[row].includes(wanted)) continue
    g.fillStyle = colours[kind]; g.beginPath(); g.arc(x(at), row * step + step / 2, kind === "log" ? 2 : 3.5, 0, 7); g.fill()
  }
  g.globalAlpha = 1; g.fillStyle = "#c62828"
  for (const [at] of violations) g.fillRect(x(at), 0, 2, rows.length * step)
  g.fillStyle = "#1976d2"; g.fillRect(x(Number(time.value)), 0, 1, rows.length * step)
  g.fillStyle = text
  for (let n = 0; n <= 4; n++) g.fillText(Math.round(end * n / 4000) + " s", Math.min(x(end * n / 4), width - 50), rows.length * step + 12)
}
function tell() {
  const now = Number(time.value), wanted = find.value
  const shown = wanted === "" ? entries : entries.filter(([, row, , what]) => what.includes(wanted) || rows[row].includes(wanted))
  let first = shown.findIndex(([at]) => at >= now)
  if (first < 0) first = shown.length
  clock.textContent = seconds(now) + " of " + seconds(end)
  story.replaceChildren(...shown.slice(Math.max(0, first - 12), first + 28).map(([at, row, kind, what]) => {
    const line = document.createElement("li")
    line.className = kind + (at >= now && at < now + 50 ? " now" : "")
    line.textContent = seconds(at).padStart(12) + "  " + rows[row] + "  " + what
    return line
  }))
}
function show() { draw(); tell() }
let timer
play.onclick = () => {
  if (timer) { clearInterval(timer); timer = undefined; play.textContent = "Play"; return }
  play.textContent = "Stop"
  timer = setInterval(() => {
    time.value = Math.min(end, Number(time.value) + 100 * Number(speed.value))
    if (Number(time.value) >= end) play.click()
    show()
  }, 100)
}
time.oninput = show; find.oninput = show; window.onresize = show
picture.onclick = (event) => { time.value = Math.max(0, (event.offsetX - names) / (picture.clientWidth - names - 16) * end); show() }
show()
`
