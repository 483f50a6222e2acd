/**
 * What the reference does where scripts run: search, copy, the language that is remembered, the section in view, and
 * requests from the page. It is a text, because browsers run it and the service does not. A pasted key is a variable of
 * the page, and nowhere else.
 */
export const referenceScript = String.raw`"use strict"
const all = (selector, root = document) => [...root.querySelectorAll(selector)]
const make = (name, fields = {}, ...children) => {
  const { attributes = {}, ...rest } = fields
  const element = Object.assign(document.createElement(name), rest)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  element.append(...children)
  return element
}
// The theme that the reader has chosen in the console.
try { document.documentElement.style.colorScheme = { light: "light", dark: "dark" }[localStorage.getItem("theme")] || "" } catch {}
const nav = document.querySelector("nav")
const list = nav.querySelector(".list")
const links = all("nav a")

// Search: finds operations by the words of their name, path, description and fields.
const count = make("p", { className: "mute", attributes: { role: "status" } })
const search = make("input", { type: "search", placeholder: "Search: /", autocomplete: "off" })
search.setAttribute("aria-label", "Search the operations")
const plain = (text) => (" " + text.replace(/([a-z])(?=[A-Z])/g, "$1 ") + " " + text).toLowerCase().replace(/[^a-z0-9]+/g, " ")
const fieldOf = (term) => {
  const about = [...term.nextElementSibling.childNodes].filter((node) => node.nodeName !== "DL")
  const name = term.querySelector("code").textContent
  return { term, name, text: plain(name + " " + about.map((node) => node.textContent).join(" ")) }
}
let index
const makeIndex = () => all("nav li").map((item) => {
  const link = item.firstElementChild
  const section = document.querySelector(link.hash)
  const name = link.textContent + " " + link.hash + " " + section.querySelector(".path").textContent
  const fields = all(".fields dt", section).filter((term) => term.querySelector("code")).map(fieldOf)
  return { item, section, fields, name: plain(name), text: plain(name + " " + section.querySelector(".head").textContent) }
})
let best
const show = ({ term }) => {
  for (let part = term.closest("details"); part; part = part.parentElement.closest("details")) part.open = true
  term.scrollIntoView({ block: "center" })
  term.tabIndex = -1
  term.focus()
}
const find = () => {
  const words = plain(search.value).split(" ").filter(Boolean).filter((word, at, all) => all.indexOf(word) === at)
  const has = ({ text }) => words.every((word) => text.includes(" " + word))
  let [found, spoken] = [0, 0]
  best = undefined
  index = index || makeIndex()
  for (const one of index) {
    const fields = words.length === 0 ? [] : one.fields.filter(has)
    const isNamed = has({ text: one.name })
    one.item.hidden = !has(one) && fields.length === 0
    if (!one.item.hidden) found++
    if (!one.item.hidden && (best === undefined || (isNamed && !best.isNamed))) best = { ...one, isNamed }
    spoken += fields.length
    for (const old of all(".field", one.item)) old.remove()
    one.item.append(...fields.map((field) => {
      const button = make("button", { type: "button", className: "field", textContent: field.name })
      button.addEventListener("click", () => show(field))
      return button
    }))
  }
  for (const group of all("nav ul")) {
    group.hidden = group.previousElementSibling.hidden = all("li:not([hidden])", group).length === 0
  }
  const ofFields = spoken === 0 ? "" : ", " + spoken + (spoken === 1 ? " field" : " fields")
  count.textContent = words.length === 0 ? "" : found === 0 ? "Nothing has these words." : found + " found" + ofFields
}
search.addEventListener("input", find)
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && best) best.item.firstElementChild.click()
  if (event.key === "Escape") { search.value = ""; find() }
})
addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey) return
  event.preventDefault()
  search.focus()
})
nav.prepend(search, count)

// The section in view, marked in the navigation.
const byHash = new Map(links.map((link) => [link.hash.slice(1), link]))
const marked = new IntersectionObserver((entries) => {
  const entry = entries.find((one) => one.isIntersecting)
  const link = entry && byHash.get(entry.target.id)
  if (!link) return
  for (const one of all("nav [aria-current]")) one.removeAttribute("aria-current")
  link.setAttribute("aria-current", "true")
  const box = link.getBoundingClientRect()
  if (box.top < 110 || box.bottom > innerHeight) list.scrollTop += box.top - innerHeight / 3
}, { rootMargin: "-15% 0px -80% 0px" })
for (const article of all("article")) marked.observe(article)

// The language of the samples, kept by this browser.
const stored = (write) => {
  try {
    if (write !== undefined) localStorage.setItem("docs-language", write)
    return localStorage.getItem("docs-language")
  } catch {
    return null
  }
}
const chosen = document.getElementById(stored() || "")
if (chosen && chosen.name === "language") chosen.checked = true
for (const radio of all("[name=language]")) radio.addEventListener("change", () => stored(radio.id))

// One button for each text that people copy.
const copyButton = (text, label) => {
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" })
  button.setAttribute("aria-label", label)
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text())
    button.textContent = "Copied"
    setTimeout(() => { button.textContent = "Copy" }, 1500)
  })
  return button
}
for (const pre of all("pre")) {
  const frame = pre.closest(".code")
  frame.append(copyButton(() => pre.textContent, "Copy: " + pre.getAttribute("aria-label")))
}

// Requests from the page: with the session of the console, or with a key that is pasted here.
let key = ""
let org = ""
const session = fetch("/api/v0/sessions/current", { credentials: "same-origin" })
  .then((response) => (response.ok ? response.json() : undefined))
  .catch(() => undefined)
const field = (label, value, onInput, name = "input") => {
  const control = make(name, { value, autocomplete: "off", spellcheck: false })
  control.addEventListener("input", () => onInput(control.value))
  return [make("label", {}, label, control), control]
}
const read = async (response, out, started) => {
  const reader = response.body.getReader()
  const decoder = new TextDecoder()
  let text = ""
  const head = response.status + " " + response.statusText + ", " + Math.round(performance.now() - started) + " ms\n\n"
  for (;;) {
    out.textContent = head + text
    const { done, value } = await reader.read()
    if (done) break
    if (text.length < 200000) text += decoder.decode(value, { stream: true })
  }
  try { out.textContent = head + JSON.stringify(JSON.parse(text), null, 2) } catch { out.textContent = head + text }
}
const tryForm = async (article, form) => {
  const me = await session
  const method = article.dataset.method
  const template = article.dataset.path
  const values = {}
  const names = (place) => all("[data-in=" + place + "] > dt > code", article).map((one) => one.textContent)
  const inPath = names("path")
  const inQuery = names("query")
  for (const name of [...inPath, ...inQuery]) {
    const [label, control] = field(name, "", (value) => { values[name] = value })
    if (inPath.includes(name)) control.required = true
    form.append(label)
  }
  let body = article.dataset.body
  if (body !== undefined) {
    const [label, control] = field("Body (JSON)", JSON.stringify(JSON.parse(body), null, 2), (value) => { body = value }, "textarea")
    control.rows = Math.min(14, control.value.split("\n").length + 1)
    form.append(label)
  }
  const needsOrg = template.startsWith("/v1/") && !(me && me.orgId)
  if (needsOrg) form.append(field("x-org-id (for the administrator)", org, (value) => { org = value.trim() })[0])
  const who = me && me.csrfToken ? "the console's session (" + me.principal + ")" : "no credential"
  const [keyLabel, keyControl] = field("API key or token. Empty: " + who + ". It stays in this page.", key, (value) => { key = value.trim() })
  keyControl.type = "password"
  const send = make("button", { type: "submit", textContent: "Send the request" })
  const stop = make("button", { type: "button", textContent: "Stop", hidden: true })
  const out = make("pre", { tabIndex: 0, hidden: true, attributes: { role: "region", "aria-label": "The response", "aria-live": "polite" } })
  form.append(keyLabel, make("div", { className: "row" }, send, stop), out)
  form.addEventListener("submit", async (event) => {
    event.preventDefault()
    const ending = new AbortController()
    stop.onclick = () => ending.abort()
    send.disabled = true
    stop.hidden = out.hidden = false
    out.textContent = "Waiting for the response…"
    const headers = {}
    if (body !== undefined) headers["content-type"] = "application/json"
    if (key !== "") headers.authorization = "Bearer " + key
    else if (me && me.csrfToken) headers["x-csrf-token"] = me.csrfToken
    if (needsOrg && org !== "") headers["x-org-id"] = org
    const query = new URLSearchParams(inQuery.filter((name) => values[name]).map((name) => [name, values[name]]))
    const path = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] || ""))
    const started = performance.now()
    try {
      const credentials = key === "" ? "same-origin" : "omit"
      const url = path + (query.size > 0 ? "?" + query : "")
      const request = { method, headers, credentials, signal: ending.signal }
      if (body !== undefined) request.body = body
      await read(await fetch(url, request), out, started)
    } catch (error) {
      if (ending.signal.aborted) out.append("\nStopped.")
      else out.textContent = "No response: " + error.message
    }
    send.disabled = false
    stop.hidden = true
  })
}
for (const article of all("article[data-method]")) {
  const form = make("form")
  const details = make("details", { className: "try" }, make("summary", { textContent: "Try it" }), form)
  details.addEventListener("toggle", () => void tryForm(article, form), { once: true })
  article.querySelector(".side").append(details)
}
`
