import type { OutgoingHttpHeaders } from "node:http"
import { fromRandomBytes } from "#src/domain/keys/ApiKey.ts"
import { adminToken } from "../../support/server.ts"
import type { World } from "./world.ts"

/** The kinds of credentials: the security schemes of the document, none, and those that are refused everywhere. */
export type Kind = "adminToken" | "apiKey" | "ciToken" | "nobody" | "refused"

interface Caller {
  readonly kind: Kind
  readonly headers: (world: World) => OutgoingHttpHeaders
}

const bearer = (kind: Kind, token: (world: World) => string): Caller => ({
  kind,
  headers: (world) => ({ authorization: `Bearer ${token(world)}` }),
})
const key = (kind: Kind, token: (world: World) => string): Caller => ({
  kind,
  headers: (world) => ({ "x-api-key": token(world) }),
})
const raw = (headers: (world: World) => OutgoingHttpHeaders): Caller => ({ kind: "refused", headers })

const changed = (token: string) => token.slice(0, -1) + (token.endsWith("0") ? "1" : "0")
const neverMade = fromRandomBytes(Uint8Array.from({ length: 48 }, (_, i) => i))!

/**
 * Every kind of credential, most of them wrong. To act as another tenant, a case uses its own credential on that
 * tenant's resources.
 */
export const callers: Readonly<Record<string, Caller>> = {
  "own org key": key("apiKey", ({ own }) => own.orgKey),
  "own org key as bearer": bearer("apiKey", ({ own }) => own.orgKey),
  "own project key": key("apiKey", ({ own }) => own.projectKey),
  administrator: bearer("adminToken", () => adminToken),
  "CI token": bearer("ciToken", ({ ci }) => ci.good),
  nobody: { kind: "nobody", headers: () => ({}) },
  "administrator's token, one character changed": bearer("refused", () => changed(adminToken)),
  "administrator's token, one character less": bearer("refused", () => adminToken.slice(0, -1)),
  "administrator's token, one more character": bearer("refused", () => `${adminToken}0`),
  "administrator's token as a key": key("refused", () => adminToken),
  "a deleted key": key("refused", ({ own }) => own.deleted),
  "a deleted key as bearer": bearer("refused", ({ own }) => own.deleted),
  "an expired key": key("refused", ({ own }) => own.expired),
  "a mistyped key": key("refused", ({ own }) => changed(own.orgKey)),
  "a key in capitals": key("refused", ({ own }) => own.orgKey.toUpperCase()),
  "a key that does not exist": key("refused", () => neverMade),
  "the public prefix of a key": key("refused", ({ own }) => own.orgKey.slice(0, 12)),
  "CI token, badly signed": bearer("refused", ({ ci }) => ci.badlySigned),
  "CI token, unsigned": bearer("refused", ({ ci }) => ci.unsigned),
  "CI token, expired": bearer("refused", ({ ci }) => ci.ended),
  "CI token, for another audience": bearer("refused", ({ ci }) => ci.elsewhere),
  "CI token as a key": key("refused", ({ ci }) => ci.good),
  garbage: bearer("refused", () => "x".repeat(4_000)),
  "an invalid text as a key": key("refused", () => "%00'\"\\;--\u00ff\t"),
  "no token": raw(() => ({ authorization: "Bearer " })),
  "two tokens": raw(({ own }) => ({ authorization: `Bearer ${own.orgKey} ${own.orgKey}` })),
  "two tokens with a comma between": raw(({ own }) => ({ authorization: `Bearer ${own.orgKey},Bearer ${adminToken}` })),
  "another scheme": raw(({ own }) => ({ authorization: `Basic ${own.orgKey}` })),
  "no scheme": raw(() => ({ authorization: adminToken })),
  "two that differ": raw(({ own }) => ({ authorization: `Bearer ${adminToken}`, "x-api-key": own.orgKey })),
  "two keys that differ": raw(({ own }) => ({ authorization: `Bearer ${own.orgKey}`, "x-api-key": own.projectKey })),
  "two keys of one name": raw(({ own, theirs }) => ({ "x-api-key": [theirs.deleted, own.orgKey] })),
  empty: raw(() => ({ authorization: "", "x-api-key": "" })),
}
