import type { Entry, Operation } from "./Document.ts"
import { exampleOf } from "../../api/examples.ts"
import type { Schemas } from "../../api/openapi/JsonSchema.ts"

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

const bodyOf = ({ requestBody }: Operation) => requestBody?.content["application/json"]?.example

const toRequest = ({ method, operation, path }: Entry, baseUrl: string, schemas: Schemas): Request => {
  const inPath = operation.parameters.filter((one) => one.in === "path")
  const ids = Object.fromEntries(inPath.map(({ name, schema }) => [name, exampleOf(schema, schemas)]))
  const body = bodyOf(operation)
  const schemes = (operation.security ?? []).flatMap((one) => Object.keys(one))
  return {
    method,
    url: `${baseUrl}${path.replace(/\{(\w+)\}/g, (_, name: string) => String(ids[name]))}`,
    operationId: operation.operationId,
    needsCredential: schemes.length > 0,
    body,
    args: Array.isArray(body) ? body : { ...ids, ...(typeof body === "object" ? body : {}) },
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
