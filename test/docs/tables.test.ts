import { expect, it } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { readdirSync } from "node:fs"
import { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import { serviceEventTypes } from "#src/domain/ServiceEvent.ts"
import { reservedWords } from "#src/domain/webhooks/EventPatterns.ts"
import { Api } from "#src/http/api/Api.ts"
import { pages, repository } from "./pages.ts"

const page = (path: string) => pages.find((one) => one.path === path)!.text

/** The codes of a text, in backticks. */
const codes = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, code]) => code!)

it("docs/audit.md lists every action of the audit log, and no other", () => {
  const listed = [...page("docs/audit.md").matchAll(/^\| `([a-z_]+\.[a-z]+)` \|/gm)].map(([, action]) => action)
  expect(listed.toSorted()).toEqual(AuditEntry.fields.action.literals.toSorted())
})

interface Operation {
  readonly parameters?: ReadonlyArray<{ readonly name: string }>
}

it("docs/keys.md lists every operation that takes an Idempotency-Key, and no other", () => {
  const { paths } = OpenApi.fromApi(Api) as unknown as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  }
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { parameters = [] }]) => parameters.some(({ name }) => name === "idempotency-key"))
      .map(([method]) => `${method.toUpperCase()} ${path}`),
  )
  const [, sentence] = /^These operations accept it: (.*?)\.$/ms.exec(page("docs/keys.md"))!
  const listed = codes(sentence!).map((code) => `POST ${code.replace("POST ", "")}`)
  expect(listed.toSorted()).toEqual(operations.toSorted())
})

it("docs/events.md lists every event of Gatehouse itself, and no other", () => {
  const [, section] = page("docs/events.md").split("## Receive Gatehouse's own events")
  const listed = [...section!.split("\n## ")[0]!.matchAll(/^\| `([a-z.]+)` \|/gm)].map(([, type]) => type)
  expect(listed.toSorted()).toEqual([...serviceEventTypes].toSorted())
})

it.each([
  ["docs/events.md", /The first words (.*?) belong to Gatehouse/s],
  ["docs/migrate-from/svix.md", /whose first word belongs to Gatehouse \((.*?)\)/s],
] as const)("%s names every first word of Gatehouse's own types", (path, sentence) => {
  const listed = codes(sentence.exec(page(path))![1]!)
  expect(listed.toSorted()).toEqual([...reservedWords].toSorted())
})

it("docs/upgrading.md says of every migration how previous replicas work beside it", () => {
  const numbers = readdirSync(`${repository}src/infrastructure/database/migrations`).map((name) => parseInt(name, 10))
  const [, section] = page("docs/upgrading.md").split("## Upgrade replica by replica")
  const listed = [...section!.matchAll(/^\| (\d+) /gm)].map(([, number]) => Number(number))
  // The first migration has no previous replicas.
  expect([1, ...listed]).toEqual(numbers)
})
