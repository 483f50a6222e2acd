import { Context, Effect, Fiber } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApi, OpenApi } from "effect/http-api"
import { createHash } from "node:crypto"
import { promisify } from "node:util"
import { brotliCompress, constants, gzip } from "node:zlib"
import { Api } from "../api/Api.ts"
import {
  exampleOf,
  type JsonSchema,
  mapValues,
  type Operation as Described,
  type Parameter,
  refName,
  resolved,
  type Response,
  type Schemas,
} from "../api/openapi/OpenApiSchema.ts"
import { server } from "../api/openapi.ts"
import { Callers } from "../api/access.ts"
import { AdminTokens } from "../credentials.ts"
import { referenceScript } from "./apiReferenceScript.ts"
import { PortalLook } from "./portalLook.ts"

/** The OpenAPI document, with the address of this service. */
const documentAt = (baseUrl: string) => ({ ...OpenApi.fromApi(Api), servers: [server(baseUrl)] }) as unknown as Document

/** The operations that are the portal's alone: not those that everybody may call. */
const portalOperations = (): ReadonlySet<string> => {
  const ids = new Set<string>()
  HttpApi.reflect(Api, {
    onGroup: () => {},
    onEndpoint: ({ endpoint, group }) => {
      const callers = Context.get(endpoint.annotations, Callers)
      // Few portals have keys: what they do with them, their pages do.
      const isOfPortal = callers.includes("portal") && !callers.includes("anonymous") && group.identifier !== "keys"
      if (isOfPortal) ids.add(`${group.identifier}.${endpoint.identifier}`)
    },
  })
  return ids
}

/** The part of the document that the readers of the portal can use. */
const portalDocument = (baseUrl: string, platform = "Gatehouse"): Document => {
  const all = documentAt(baseUrl)
  const ids = portalOperations()
  const paths = mapValues(all.paths, (methods) =>
    Object.fromEntries(Object.entries(methods).filter(([, { operationId }]) => ids.has(operationId))),
  )
  const description =
    "What the webhook portal does, for programs: endpoints, deliveries and events of your org. Try each operation here with the " +
    `session of the portal. A program needs an API key, which ${platform} gives to you.`
  return { ...all, paths, info: { ...all.info, title: `${platform}: webhooks`, description } }
}

/** Serves `/openapi.json` and its page at `/docs`, which works offline. Each is made at the first request. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const { baseUrl } = yield* AdminTokens
    const json = yield* once(
      Effect.suspend(() => prepare({ contentType: "application/json", text: JSON.stringify(documentAt(baseUrl)) })),
    )
    const page = yield* once(
      Effect.suspend(() =>
        prepare({ contentType: "text/html; charset=utf-8", text: referencePage(documentAt(baseUrl)) }),
      ),
    )
    const { name } = yield* PortalLook
    const portal = yield* once(
      Effect.suspend(() =>
        prepare({ contentType: "text/html; charset=utf-8", text: referencePage(portalDocument(baseUrl, name)) }),
      ),
    )
    const script = yield* once(prepare({ contentType: "text/javascript; charset=utf-8", text: referenceScript }))
    yield* router.add("GET", "/openapi.json", Effect.flatten(json))
    yield* router.add("GET", "/docs", Effect.flatten(page))
    yield* router.add("GET", "/docs/portal", Effect.flatten(portal))
    yield* router.add("GET", "/docs.js", Effect.flatten(script))
  }),
)

/** One request, as samples show it. */
interface Request {
  readonly method: string
  readonly url: string
  readonly operationId: string
  /** Whether it needs a credential in one of the modes. */
  readonly needsCredential: boolean
  readonly body: unknown
  readonly args: object
  readonly isStream: boolean
}

const exampleBodyOf = ({ requestBody }: Operation) => requestBody?.content["application/json"]?.example

const toRequest = ({ method, operation, path }: Entry, baseUrl: string, schemas: Schemas): Request => {
  const examplesOf = (parameters: ReadonlyArray<Parameter>) =>
    Object.fromEntries(parameters.map(({ name, schema }) => [name, exampleOf(schema, schemas)]))
  const ids = examplesOf(operation.parameters.filter((one) => one.in === "path"))
  const query = examplesOf(operation.parameters.filter((one) => one.in === "query" && one.required === true))
  const search = new URLSearchParams(
    Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
  ).toString()
  const body = exampleBodyOf(operation)
  const schemes = (operation.security ?? []).flatMap((one) => Object.keys(one))
  return {
    method,
    url: baseUrl + path.replace(/\{(\w+)\}/g, (_, name: string) => String(ids[name])) + (search && `?${search}`),
    operationId: operation.operationId,
    needsCredential: schemes.length > 0,
    body,
    args: Array.isArray(body) ? body : { ...ids, ...query, ...(typeof body === "object" ? body : {}) },
    isStream: operation.responses["200"]?.content?.["text/event-stream"] !== undefined,
  }
}

const variable = "GATEHOUSE_TOKEN"
const shellQuoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

const curl = ({ body, isStream, method, needsCredential, url }: Request) =>
  [
    `curl -s${isStream ? "N" : ""}${method === "GET" ? "" : ` -X ${method}`} ${shellQuoted(url)}`,
    ...(needsCredential ? [`  -H "Authorization: Bearer $${variable}"`] : []),
    ...(body === undefined
      ? []
      : [`  -H 'content-type: application/json'`, `  -d ${shellQuoted(JSON.stringify(body))}`]),
  ].join(" \\\n")

const typescript = ({ args, isStream, needsCredential, operationId, url }: Request) => {
  const [group, name] = operationId.split(".")
  const call = `gatehouse.${group}.${name}(${Object.keys(args).length === 0 ? "" : JSON.stringify(args, null, 2)})`
  return [
    `import { makeClient } from "gatehouse-client"`,
    "",
    "const gatehouse = makeClient({",
    `  baseUrl: ${JSON.stringify(new URL(url).origin)},`,
    ...(needsCredential ? [`  credential: process.env.${variable},`] : []),
    "})",
    ...(isStream
      ? [`for await (const part of await ${call}) console.log(part)`]
      : [`const answer = await ${call}`, "console.log(answer)"]),
  ].join("\n")
}

/** A JSON value as Python writes it. */
const python = (value: unknown): string => {
  if (value === null) return "None"
  if (typeof value === "boolean") return value ? "True" : "False"
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`
  if (typeof value !== "object") return JSON.stringify(value)
  return `{${Object.entries(value)
    .map(([name, inner]) => `${JSON.stringify(name)}: ${python(inner)}`)
    .join(", ")}}`
}

const pythonSample = ({ body, isStream, method, needsCredential, url }: Request) =>
  [
    "import json",
    ...(needsCredential ? ["import os"] : []),
    "import urllib.request",
    "",
    "request = urllib.request.Request(",
    `    ${JSON.stringify(url)},`,
    `    method=${JSON.stringify(method)},`,
    ...(body === undefined ? [] : [`    data=json.dumps(${python(body)}).encode(),`]),
    "    headers={",
    ...(needsCredential ? [`        "Authorization": "Bearer " + os.environ.get("${variable}", ""),`] : []),
    ...(body === undefined ? [] : [`        "Content-Type": "application/json",`]),
    "    },",
    ")",
    "with urllib.request.urlopen(request) as answer:",
    ...(isStream
      ? ["    for line in answer:", '        print(line.decode(), end="")']
      : ["    print(json.load(answer))"]),
  ].join("\n")

const go = ({ body, method, needsCredential, url }: Request) =>
  [
    "package main",
    "",
    "import (",
    '\t"fmt"',
    '\t"io"',
    '\t"net/http"',
    ...(needsCredential ? ['\t"os"'] : []),
    ...(body === undefined ? [] : ['\t"strings"']),
    ")",
    "",
    "func main() {",
    body === undefined
      ? `\trequest, err := http.NewRequest("${method}", ${JSON.stringify(url)}, nil)`
      : `\tbody := strings.NewReader(${JSON.stringify(JSON.stringify(body))})\n\trequest, err := http.NewRequest("${method}", ${JSON.stringify(url)}, body)`,
    "\tif err != nil {",
    "\t\tpanic(err)",
    "\t}",
    ...(needsCredential ? [`\trequest.Header.Set("Authorization", "Bearer "+os.Getenv("${variable}"))`] : []),
    ...(body === undefined ? [] : ['\trequest.Header.Set("Content-Type", "application/json")']),
    "\tanswer, err := http.DefaultClient.Do(request)",
    "\tif err != nil {",
    "\t\tpanic(err)",
    "\t}",
    "\tdefer answer.Body.Close()",
    "\ttext, err := io.ReadAll(answer.Body)",
    "\tif err != nil {",
    "\t\tpanic(err)",
    "\t}",
    "\tfmt.Println(string(text))",
    "}",
  ].join("\n")

/** The languages of the samples, in the order of the page. */
export const languages = [
  { id: "curl", name: "curl", sample: curl },
  { id: "typescript", name: "TypeScript", sample: typescript },
  { id: "python", name: "Python", sample: pythonSample },
  { id: "go", name: "Go", sample: go },
] as const

/** A request of an operation in every language. It runs as it is, with the credential in GATEHOUSE_TOKEN. */
export const samplesOf = (entry: Entry, baseUrl: string, schemas: Schemas) => {
  const request = toRequest(entry, baseUrl, schemas)
  return languages.map(({ id, sample }) => ({ language: id, text: sample(request) }))
}

/** How deep the fields of objects in objects are shown. */
const maxDepth = 3

/** A key on a dark ground. Without an icon in the page, browsers request `/favicon.ico`, which does not exist. */
const icon =
  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='3' fill='#16324f'/>" +
  "<path d='M6 4a3 3 0 1 0 2.8 4H13v2h-2V8' fill='none' stroke='#fff' stroke-width='1.6'/></svg>"

const typeText = (schema: JsonSchema, schemas: Schemas): string => {
  const { anyOf, enum: values, format, items, maximum, minimum, type } = resolved(schema, schemas)
  if (anyOf !== undefined) return anyOf.map((one) => typeText(one, schemas)).join(" or ")
  if (values !== undefined) return values.map((value) => JSON.stringify(value)).join(" or ")
  if (items !== undefined) return `list of ${refName(items) ?? typeText(items, schemas)}`
  const types = [type ?? "any JSON"].flat().join(" or ")
  const range = maximum === undefined ? "" : `, ${minimum} to ${maximum}`
  return `${types}${format === undefined || type === "integer" ? "" : ` (${format})`}${range}`
}

/** Whether a request has to have a field. */
const required = ' <b class="must">required</b>'

/** The fields of an object. A request says which it needs; a response, which may be absent. */
const fieldsOf = (schema: JsonSchema, schemas: Schemas, isRequest: boolean, depth = 1): string => {
  const found = resolved(schema, schemas)
  const { properties, required: needed = [] } = found.items === undefined ? found : resolved(found.items, schemas)
  if (properties === undefined || depth > maxDepth) return ""
  const fields = Object.entries(properties).map(([name, field]) => {
    const text = field.description ?? resolved(field, schemas).description ?? ""
    const isNeeded = needed.includes(name)
    const optional = isNeeded || isRequest ? "" : ", optional"
    return (
      `<dt><code>${escape(name)}</code> <small>${escape(typeText(field, schemas))}${optional}</small>${isNeeded && isRequest ? required : ""}</dt>` +
      `<dd>${sentence(text)}${fieldsOf(field, schemas, isRequest, depth + 1)}</dd>`
    )
  })
  return `<dl>${fields.join("")}</dl>`
}

const parametersOf = (title: string, place: string, parameters: ReadonlyArray<Parameter>, schemas: Schemas) =>
  parameters.length === 0
    ? ""
    : `<h4>${title}</h4><dl data-in="${place}">${parameters
        .map(
          ({ description = "", name, required: isNeeded, schema }) =>
            `<dt><code>${escape(name)}</code> <small>${escape(typeText(schema, schemas))}</small>${isNeeded ? required : ""}</dt>` +
            `<dd>${sentence(description)}</dd>`,
        )
        .join("")}</dl>`

const responsesOf = ({ operation }: Entry, { components }: Document) => {
  const entries = Object.entries(operation.responses).map(([status, response]): readonly [string, Response] => {
    const name = response.$ref?.split("/").at(-1)
    return [status, name === undefined ? response : components.responses[name]!]
  })
  const good = entries
    .filter(([status]) => status === "200")
    .flatMap(([, { content = {}, description = "" }]) =>
      Object.values(content).map(
        ({ schema }) =>
          `<h4>Response</h4><p>${sentence(description)}</p>` +
          `<details><summary>Fields of the response</summary>${fieldsOf(schema, components.schemas, false)}</details>`,
      ),
    )
  const others = entries
    .filter(([status]) => status !== "200")
    .map(([status, { description = "" }]) => `<dt>${escape(status)}</dt><dd>${sentence(description)}</dd>`)
  return `${good.join("")}<details><summary>Other responses</summary><dl>${others.join("")}</dl></details>`
}

const bodyOf = ({ isWebhook, operation }: Entry, { components: { schemas } }: Document) => {
  const media = operation.requestBody?.content["application/json"]
  if (media === undefined) return ""
  return `<h4>Body</h4>${fieldsOf(media.schema, schemas, !isWebhook)}`
}

/** A text that people read, scroll with the keyboard, and copy. */
const code = (label: string, text: string, sample = "") =>
  `<div class="code${sample === "" ? "" : ` sample ${sample}`}"><pre tabindex="0" role="region" aria-label="${escape(label)}">${text}</pre></div>`

/** What stands beside an operation: its samples, and what it responds. */
const sideOf = (entry: Entry, { components: { schemas } }: Document, baseUrl: string) => {
  const { isWebhook, operation } = entry
  const { summary } = operation
  if (isWebhook) return code(`Body: ${summary}`, json(operation.requestBody?.content["application/json"]?.example))
  const samples = samplesOf(entry, baseUrl, schemas).map(({ language, text }) => {
    const { name } = languages.find(({ id }) => id === language)!
    return code(`${name}: ${summary}`, escape(text), language)
  })
  const responses = Object.values(operation.responses["200"]?.content ?? {})
  return [...samples, ...responses.map(({ example }) => code(`Response: ${summary}`, json(example)))].join("")
}

const entryOf = (entry: Entry, document: Document, baseUrl: string) => {
  const { isWebhook, method, operation, path } = entry
  const { schemas } = document.components
  const inPlace = (place: string) => operation.parameters.filter((one) => one.in === place)
  const body = exampleBodyOf(operation)
  // What the script sends when a reader tries the operation.
  const data = isWebhook
    ? ""
    : ` data-method="${method}" data-path="${escape(path)}"${body === undefined ? "" : ` data-body="${escape(JSON.stringify(body))}"`}`
  return [
    `<article id="${idOf(operation.operationId)}"${data}><div class="head"><h3>${escape(operation.summary)}</h3>`,
    `<p class="path"><b>${method}</b><code>${escape(path)}</code></p>`,
    `${paragraphs(operation.description)}</div><div class="side">${sideOf(entry, document, baseUrl)}</div><div class="fields">`,
    parametersOf("Path", "path", inPlace("path"), schemas),
    parametersOf("Query", "query", inPlace("query"), schemas),
    parametersOf("Headers", "header", inPlace("header"), schemas),
    bodyOf(entry, document),
    responsesOf(entry, document),
    "</div></article>",
  ].join("")
}

const chooser = languages
  .map(
    ({ id, name }, at) =>
      `<label><input type="radio" name="language" id="lang-${id}"${at === 0 ? " checked" : ""}> ${name}</label>`,
  )
  .join("")

/** The page about the operations of a document. It needs no script; with one, it searches and sends requests. */
const referencePage = (document: Document): string => {
  const { info, servers } = document
  const groups = groupsOf(document).filter(({ entries }) => entries.length > 0)
  const menu = groups.map(
    ({ entries, name }) =>
      `<strong><a href="#${idOf(name)}">${escape(name)}</a></strong><ul>${entries
        .map(
          ({ isWebhook, method, operation }) =>
            `<li><a href="#${idOf(operation.operationId)}"><b>${isWebhook ? "event" : method}</b>${escape(operation.summary)}</a></li>`,
        )
        .join("")}</ul>`,
  )
  const sections = groups.map(
    ({ description = "", entries, name }) =>
      `<section><h2 id="${idOf(name)}">${escape(name)}</h2>${paragraphs(description)}${entries
        .map((entry) => entryOf(entry, document, servers[0]!.url))
        .join("")}</section>`,
  )
  return [
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${escape(info.title)}</title>`,
    `<meta name="viewport" content="width=device-width, initial-scale=1">`,
    `<link rel="icon" href="data:image/svg+xml,${encodeURIComponent(icon)}"><style>${style}</style><script type="module" src="/docs.js"></script></head>`,
    `<body><nav aria-label="Operations"><div class="list">${menu.join("")}</div></nav><main>`,
    `<h1>${escape(info.title)} <small class="mute">${escape(info.version)}</small></h1>`,
    paragraphs(info.description),
    `<p>For programs: <a href="openapi.json">openapi.json</a>.</p>`,
    "<p>The samples send the credential in <code>GATEHOUSE_TOKEN</code>. Where open mode needs none, leave the header out.</p>",
    `<div class="languages" role="radiogroup" aria-label="Language of the samples">${chooser}</div>`,
    sections.join(""),
    "</main></body></html>",
  ].join("\n")
}

interface Operation extends Described {
  readonly tags: ReadonlyArray<string>
  readonly summary: string
  readonly description: string
  readonly security?: ReadonlyArray<Readonly<Record<string, unknown>>>
}
type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>

/** The OpenAPI document, as far as the page shows it. */
export interface Document {
  readonly info: { readonly title: string; readonly version: string; readonly description: string }
  readonly servers: ReadonlyArray<{ readonly url: string }>
  readonly tags: ReadonlyArray<{ readonly name: string; readonly description?: string }>
  readonly paths: Paths
  /** References to path items, by the type of the event. */
  readonly webhooks: Readonly<Record<string, { readonly $ref: string }>>
  readonly components: {
    readonly schemas: Schemas
    readonly responses: Readonly<Record<string, Response>>
    readonly pathItems: Paths
  }
}

/** An operation, or the request of a webhook, with its place. */
interface Entry {
  readonly method: string
  /** The path, or the type of the event. */
  readonly path: string
  readonly operation: Operation
  readonly isWebhook: boolean
}

const entriesOf = (paths: Paths, isWebhook: boolean): ReadonlyArray<Entry> =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      operation,
      isWebhook,
    })),
  )

/** The groups of the page, in their order, each with its operations. */
export const groupsOf = ({ components, paths, tags, webhooks }: Document) => {
  const events = mapValues(webhooks, ({ $ref }) => components.pathItems[$ref.split("/").at(-1)!]!)
  const entries = [...entriesOf(paths, false), ...entriesOf(events, true)]
  return tags.map((tag) => ({
    ...tag,
    entries: entries.filter(({ operation }) => operation.tags.includes(tag.name)),
  }))
}

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
}

/** Text as HTML. */
const escape = (text: string): string => text.replace(/[&<>"']/g, (character) => entities[character]!)

/** The Markdown of one line: code, bold text and links. */
const inline = (text: string) =>
  escape(text)
    .replace(/`([^`]+)`/g, "<code>$1</code>")
    .replace(/\*\*([^*]+)\*\*/g, "<strong>$1</strong>")

/** The Markdown of descriptions: paragraphs of lines. */
const paragraphs = (markdown: string): string =>
  markdown
    .split("\n\n")
    .map((paragraph) => `<p>${inline(paragraph)}</p>`)
    .join("")

const sentence = inline

/** The id of an element, from any text. */
const idOf = (text: string): string => text.toLowerCase().replace(/[^a-z0-9]+/g, "-")

/** A value as indented JSON. */
const json = (value: unknown): string => escape(JSON.stringify(value, null, 2))

/** The sample of the chosen language is shown, the others are not: without a script. */
const choice = languages.map(({ id }) => `body:has(#lang-${id}:checked) .sample:not(.${id}){display:none}`).join("\n")

/** The tokens of the console (`tokens.css`), whose files this page does not need; a test compares them. */
const style = `
:root{color-scheme:light dark;
--font:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;
--mono:ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;
--ground:light-dark(#f6f8fa,#0d1117);--raised:light-dark(#fff,#151b23);--sunken:light-dark(#f1f4f7,#0f141b);
--hover:light-dark(#f3f6f9,#1b222c);--line:light-dark(#e1e6eb,#262e39);--line-strong:light-dark(#c8d0d9,#3a4553);
--text:light-dark(#16202b,#e8edf2);--quiet:light-dark(#566270,#9aa7b6);
--accent:light-dark(#4338ca,#a5b4fc);--accent-soft:light-dark(#eef2ff,#1e1f4b);--bad:light-dark(#b3212e,#ff9aa2);
--radius:0.375rem;--radius-l:0.625rem;--shadow:0 1px 2px light-dark(rgb(16 24 40 / 6%),rgb(0 0 0 / 40%))}
@media(min-width:2400px){:root{font-size:125%}}
@media(min-width:3600px){:root{font-size:175%}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:.875rem/1.5 var(--font);font-variant-numeric:tabular-nums;display:grid;grid-template-columns:17rem minmax(0,1fr)}
a{color:var(--accent)}
nav{position:sticky;top:0;height:100vh;display:flex;flex-direction:column;padding:1rem 0 0 .75rem;background:var(--raised);border-right:1px solid var(--line);font-size:.8125rem}
.list{position:relative;overflow:auto;padding:.2rem .75rem 1rem 0}
nav input:not([type=radio]){width:calc(100% - .75rem)}
nav ul{list-style:none;margin:0 0 .8rem;padding:0}
nav a{text-decoration:none;color:inherit;display:flex;padding:.25rem .5rem;border-radius:var(--radius)}
nav a:hover{background:var(--hover)}
nav strong a{color:var(--quiet);font-weight:600}
nav b{flex:none;width:3.2rem;color:var(--quiet);font:600 .6875rem/1.8 var(--mono)}
nav [aria-current]{background:var(--accent-soft);color:var(--accent)}
nav p{margin:.3rem .5rem;min-height:1.2rem}
nav .field{display:block;margin:0 0 .25rem 3.7rem;max-width:calc(100% - 3.7rem);padding:.1rem .4rem;min-height:1.5rem;overflow-wrap:anywhere;text-align:left;font:.75rem var(--mono)}
input,textarea,button{font:inherit;color:inherit;background:var(--raised);border:1px solid var(--line-strong);border-radius:var(--radius);padding:.35rem .75rem}
input:not([type=radio]),textarea{display:block;width:100%;min-height:2.25rem}
input[type=radio]{accent-color:var(--accent)}
textarea{font:.8125rem/1.5 var(--mono)}
button{cursor:pointer;font-weight:550}
button:hover{background:var(--hover)}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
main{padding:1.5rem 2rem 4rem;max-width:88rem;min-width:0}
article{margin:1rem 0;padding:1rem;background:var(--raised);border:1px solid var(--line);border-radius:var(--radius-l);box-shadow:var(--shadow);content-visibility:auto;contain-intrinsic-size:auto 40rem}
h1{margin:0;font-size:1.25rem}h2{margin:2.5rem 0 .3rem;font-size:1rem}h3{margin:0;font-size:1rem}h4{margin:1rem 0 .3rem}h1,h2,h3{line-height:1.3;letter-spacing:-.012em}
p{margin:.5rem 0}main>p,section>p,.head p{max-width:46rem}
code,pre{font:.8125rem/1.5 var(--mono)}
code,dt,.path{overflow-wrap:anywhere}
pre{background:var(--sunken);border:1px solid var(--line);border-radius:var(--radius);padding:.75rem;overflow:auto;max-height:30rem;margin:.4rem 0}
.code{position:relative}
.copy{position:absolute;top:.8rem;right:.4rem;padding:.1rem .4rem;font-size:.75rem}
.path b{display:inline-block;margin-right:.5rem;color:var(--accent)}
.languages{position:sticky;top:0;background:var(--ground);padding:.5rem 0;border-bottom:1px solid var(--line);z-index:1}
.languages label{margin-right:1rem;white-space:nowrap}
dl{margin:.3rem 0}dt{font-weight:600;margin-top:.5rem}dt small,.mute{color:var(--quiet);font-weight:400}
.must{color:var(--bad);font-size:.8125rem;font-weight:600}
dd{margin:0 0 0 1rem}
summary{padding:.15rem 0;cursor:pointer;color:var(--quiet)}
.try{margin:.6rem 0}
form{display:grid;gap:.75rem;padding:.6rem 0;font-size:.8125rem}
.row{display:flex;gap:.5rem}
:target{scroll-margin-top:3.5rem}
@media(min-width:75rem){article{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,34rem);grid-template-rows:auto 1fr;column-gap:2rem}
.head,.fields{grid-column:1}.side{grid-column:2;grid-row:1/span 2}.side>*{min-width:0}}
@media(max-width:48rem){.code{display:flex;flex-direction:column}.copy{position:static;order:-1;align-self:end}.code pre{margin-top:.1rem}body{display:block}nav{position:static;height:auto;max-height:40vh;border:0;border-bottom:1px solid var(--line)}main{padding:1rem}}
@media print{nav,.languages,.copy,.try{display:none}body{display:block}article{content-visibility:visible;border:0;box-shadow:none}pre{max-height:none;white-space:pre-wrap}}
${choice}
`

/**
 * Runs an effect once, at the first use, in a fiber that no caller interrupts. `Effect.cached` starts a second run when
 * the first caller is interrupted.
 */
export const once = <A>(effect: Effect.Effect<A>): Effect.Effect<Effect.Effect<A>> =>
  Effect.sync(() => {
    let running: Fiber.Fiber<A> | undefined
    return Effect.suspend(() => Fiber.join((running ??= Effect.runFork(effect))))
  })

/** A document that is public and the same for everyone in one version of the service. */
interface PublicDocument {
  readonly contentType: string
  readonly text: string | Uint8Array
  /** Whether the URL contains the hash: then clients cache the document for good. */
  readonly isImmutable?: boolean
}

type Coding = "br" | "gzip" | "identity"

/** The hash of a document, for its ETag. */
const hashOf = (text: string | Uint8Array): string => createHash("sha256").update(text).digest("base64url")

/** Whether an `Accept-Encoding` accepts a coding. Source: RFC 9110, section 12.5.3. */
const accepts = (header: string, coding: Coding): boolean => {
  const weights = header.split(",").map((one) => {
    const [name, weight] = one.split(/;\s*q=/i)
    return [name!.trim().toLowerCase(), Number(weight ?? 1)] as const
  })
  const weightOf = (name: string) => weights.find(([other]) => other === name)?.[1]
  return (weightOf(coding) ?? weightOf("*") ?? 0) > 0
}

const codingFor = (header: string | undefined): Coding => {
  if (header === undefined) return "identity"
  if (accepts(header, "br")) return "br"
  return accepts(header, "gzip") ? "gzip" : "identity"
}

/**
 * Whether an `If-None-Match` has the tag. Compares weakly: a proxy that compresses makes tags weak. Source: RFC 9110,
 * section 13.1.2.
 */
const hasTag = (header: string | undefined, tag: string) =>
  header?.split(",").some((one) => ["*", tag].includes(one.trim().replace(/^W\//, ""))) ?? false

/** The response in one coding: the whole document, and the 304. */
const documentResponses = (
  { contentType, isImmutable }: PublicDocument,
  hash: string,
  coding: Coding,
  bytes: Uint8Array,
) => {
  const headers = {
    etag: coding === "identity" ? `"${hash}"` : `"${hash}-${coding}"`,
    "cache-control": isImmutable === true ? "public, max-age=31536000, immutable" : "no-cache",
    vary: "accept-encoding",
  }
  const encoding = coding === "identity" ? {} : { "content-encoding": coding }
  return {
    etag: headers.etag,
    whole: HttpServerResponse.uint8Array(bytes, { contentType, headers: { ...headers, ...encoding } }),
    unchanged: HttpServerResponse.empty({ status: 304, headers }),
  }
}

/**
 * Compresses a document outside the event loop. Returns the effect that responds to requests for it: in the best coding
 * that the client accepts, or with a 304.
 */
export const prepare = (document: PublicDocument) =>
  Effect.promise(async () => {
    const bytes = typeof document.text === "string" ? Buffer.from(document.text) : document.text
    // Qualities 10 and 11 take ten times as long and save a tenth.
    const params = { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length }
    const [br, gzipped] = await Promise.all([promisify(brotliCompress)(bytes, { params }), promisify(gzip)(bytes)])
    const hash = hashOf(document.text)
    const responses = {
      br: documentResponses(document, hash, "br", br),
      gzip: documentResponses(document, hash, "gzip", gzipped),
      identity: documentResponses(document, hash, "identity", bytes),
    }
    return HttpServerRequest.HttpServerRequest.useSync(({ headers }) => {
      const { etag, whole, unchanged } = responses[codingFor(headers["accept-encoding"])]
      return hasTag(headers["if-none-match"], etag) ? unchanged : whole
    })
  })
