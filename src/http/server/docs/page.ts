import { type JsonSchema, refName, resolved, type Schemas } from "../../api/openapi/JsonSchema.ts"
import { type Document, type Entry, groupsOf, type Parameter, type Response } from "./Document.ts"
import { escape, idOf, json, paragraphs, sentence } from "./html.ts"
import { languages, samplesOf } from "./samples.ts"
import { style } from "./style.ts"

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

const fieldsOf = (schema: JsonSchema, schemas: Schemas, depth = 1): string => {
  const found = resolved(schema, schemas)
  const { properties, required = [] } = found.items === undefined ? found : resolved(found.items, schemas)
  if (properties === undefined || depth > maxDepth) return ""
  const fields = Object.entries(properties).map(([name, field]) => {
    const text = field.description ?? resolved(field, schemas).description ?? ""
    const need = required.includes(name) ? "" : ", optional"
    return (
      `<dt><code>${escape(name)}</code> <small>${escape(typeText(field, schemas))}${need}</small></dt>` +
      `<dd>${sentence(text)}${fieldsOf(field, schemas, depth + 1)}</dd>`
    )
  })
  return `<dl>${fields.join("")}</dl>`
}

const parametersOf = (title: string, parameters: ReadonlyArray<Parameter>, schemas: Schemas) =>
  parameters.length === 0
    ? ""
    : `<h4>${title}</h4><dl>${parameters
        .map(
          ({ description = "", name, required, schema }) =>
            `<dt><code>${escape(name)}</code> <small>${escape(typeText(schema, schemas))}${required ? "" : ", optional"}</small></dt>` +
            `<dd>${sentence(description)}</dd>`,
        )
        .join("")}</dl>`

const answersOf = ({ operation }: Entry, { components }: Document) => {
  const entries = Object.entries(operation.responses).map(([status, response]): readonly [string, Response] => {
    const name = response.$ref?.split("/").at(-1)
    return [status, name === undefined ? response : components.responses[name]!]
  })
  const good = entries
    .filter(([status]) => status === "200")
    .flatMap(([, { content = {}, description = "" }]) =>
      Object.values(content).map(
        ({ example, schema }) =>
          `<h4>Answer</h4><p>${sentence(description)}</p><pre>${json(example)}</pre>` +
          `<details><summary>Fields of the answer</summary>${fieldsOf(schema, components.schemas)}</details>`,
      ),
    )
  const others = entries
    .filter(([status]) => status !== "200")
    .map(([status, { description = "" }]) => `<dt>${escape(status)}</dt><dd>${sentence(description)}</dd>`)
  return `${good.join("")}<details><summary>Other answers</summary><dl>${others.join("")}</dl></details>`
}

const bodyOf = ({ isWebhook, operation }: Entry, { components: { schemas } }: Document) => {
  const media = operation.requestBody?.content["application/json"]
  if (media === undefined) return ""
  const example = isWebhook ? `<pre>${json(media.example)}</pre>` : ""
  return `<h4>Body</h4>${example}${fieldsOf(media.schema, schemas)}`
}

const entryOf = (entry: Entry, document: Document, baseUrl: string) => {
  const { isWebhook, method, operation, path } = entry
  const { schemas } = document.components
  const inPlace = (place: string) => operation.parameters.filter((one) => one.in === place)
  const samples = isWebhook
    ? ""
    : samplesOf(entry, baseUrl, schemas)
        .map(({ language, text }) => `<pre class="sample ${language}">${escape(text)}</pre>`)
        .join("")
  return [
    `<article id="${idOf(operation.operationId)}"><h3>${escape(operation.summary)}</h3>`,
    `<p class="path"><b>${method}</b><code>${escape(path)}</code></p>`,
    paragraphs(operation.description),
    samples,
    parametersOf("Path", inPlace("path"), schemas),
    parametersOf("Query", inPlace("query"), schemas),
    parametersOf("Headers", inPlace("header"), schemas),
    bodyOf(entry, document),
    answersOf(entry, document),
    "</article>",
  ].join("")
}

const chooser = languages
  .map(
    ({ id, name }, at) =>
      `<label><input type="radio" name="language" id="lang-${id}"${at === 0 ? " checked" : ""}> ${name}</label>`,
  )
  .join("")

/** The page about every operation. It needs no script. */
export const docsPage = (document: Document): string => {
  const { info, servers } = document
  const groups = groupsOf(document)
  const menu = groups.map(
    ({ entries, name }) =>
      `<strong><a href="#${idOf(name)}">${escape(name)}</a></strong><ul>${entries
        .map(({ operation }) => `<li><a href="#${idOf(operation.operationId)}">${escape(operation.summary)}</a></li>`)
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
    `<link rel="icon" href="data:image/svg+xml,${encodeURIComponent(icon)}"><style>${style}</style></head>`,
    `<body><nav aria-label="Operations">${menu.join("")}</nav><main>`,
    `<h1>${escape(info.title)} <small class="mute">${escape(info.version)}</small></h1>`,
    paragraphs(info.description),
    `<p>For programs: <a href="openapi.json">openapi.json</a>.</p>`,
    "<p>The samples send the credential in <code>GATEHOUSE_TOKEN</code>. Where open mode needs none, leave the header out.</p>",
    `<div class="languages" role="radiogroup" aria-label="Language of the samples">${chooser}</div>`,
    sections.join(""),
    "</main></body></html>",
  ].join("\n")
}
