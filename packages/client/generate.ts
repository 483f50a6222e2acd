import { OpenApi } from "effect/http-api"
import { mkdirSync, writeFileSync } from "node:fs"
import { Api } from "../../src/http/api/Api.ts"
import { type Document, generate } from "./generator.ts"

const folder = new URL("dist/", import.meta.url)
mkdirSync(folder, { recursive: true })
const { javascript, types } = generate(OpenApi.fromApi(Api) as unknown as Document)
writeFileSync(new URL("index.js", folder), javascript)
writeFileSync(new URL("index.d.ts", folder), types)
