import { generateKeyPairSync } from "node:crypto"
import { selfSigned } from "../../support/certificate.ts"
import { inPkcs8, madeUpDsa, madeUpRsa, pem, rsa } from "../../support/madeUpKeys.ts"

const json = JSON.stringify

/** Schemas whose compilation or check costs most for their size. */
const schemas: ReadonlyArray<unknown> = [
  ...["(?i)[À-ÿĀ-ſ]", "(?i)[A-\u{1e942}]", "(?i)[\\x{100}-\\x{1ffff}]"].map((letters) => ({
    properties: Object.fromEntries(
      Array.from({ length: 20 }, (_, n) => [`p${n}`, { pattern: `${letters}{${n + 1}}` }]),
    ),
  })),
  { pattern: `^${"(a|aa)".repeat(20)}+$` },
  { pattern: "[\\p{L}--\\p{Lu}]".repeat(100) },
  { pattern: "(((a{1,100}){1,100}){1,100}){1,100}" },
  { $defs: { a: { anyOf: Array.from({ length: 50 }, () => ({ $ref: "#/$defs/a" })) } }, $ref: "#/$defs/a" },
  { uniqueItems: true, items: { anyOf: Array.from({ length: 200 }, () => ({ not: {} })) } },
  { enum: Array.from({ length: 5_000 }, (_, n) => ({ n })) },
  JSON.parse(`${'{"not":'.repeat(400)}{}${"}".repeat(400)}`),
]
const manyItems = Array.from({ length: 900 }, (_, n) => ({ n, text: "a".repeat(40) }))

const crons = [
  "0 2 1 * *",
  "0 0 30 2 *",
  "0 0 29 2 1",
  "59 23 31 12 7",
  Array.from({ length: 60 }, (_, n) => n).join() + " * * * *",
  "*/1 */1 */1 */1 */1",
  "0-59/1,".repeat(30) + "0 * * * *",
]
const zones = [
  "UTC",
  "Australia/Lord_Howe",
  "+14:00",
  "-14:00",
  "Etc/GMT+12",
  "Africa/Monrovia",
  "+24:00",
  "+48:00",
  "-99:59",
  "BST",
]
const schedules = crons.flatMap((cron) => zones.map((timezone) => ({ cron, timezone })))

const keys = generateKeyPairSync("rsa", { modulusLength: 4_096 })
const { cert: certificate } = selfSigned({ names: ["a"], keys })
/** Private keys of which OpenSSL would compute the most, and the dearest that is accepted. */
const privateKeys = [
  keys.privateKey.export({ format: "pem", type: "pkcs8" }),
  inPkcs8(rsa, madeUpRsa(16_384)),
  pem("RSA PRIVATE KEY", madeUpRsa(16_384)),
  madeUpDsa(24_000),
]
const auths = [
  ...privateKeys.map((private_key) => ({ type: "mtls", certificate, private_key })),
  { type: "mtls", certificate: certificate.repeat(8), private_key: privateKeys[0] },
]

const urls = [
  `https://${"a.".repeat(120)}example/`,
  `https://${"ﬃ".repeat(60)}.example/`,
  `https://example.com/${"%41".repeat(600)}`,
  `https://example.com/${"../".repeat(600)}`,
  `https://${"9".repeat(1_900)}/`,
  `https://[${"0:".repeat(900)}]/`,
]

const anyOf = (path: string, values: ReadonlyArray<unknown>) => ({
  $or: Array.from({ length: 20 }, (_, n) => ({ [`${path}${n}`]: { $in: values } })),
})
const hashes = [
  { algorithm: "bcrypt", hash: `$2b$31$${"a".repeat(53)}` },
  { algorithm: "argon2id", hash: `$argon2id$v=19$m=4194304,t=1000,p=255$${"A".repeat(22)}$${"A".repeat(43)}` },
  { algorithm: "sha256", hash: "a".repeat(4_000) },
]

const markdown = [
  "[".repeat(30_000),
  "> ".repeat(30_000),
  "`".repeat(30_001),
  "*a_".repeat(20_000),
  "# a\n".repeat(15_000),
]
const question = (content: string, docsPages: object) => json({ messages: [{ role: "user", content }], docsPages })

/** Bodies of an operation that follow from no schema: what its fields mean makes them dear. */
export const chosen: Readonly<Record<string, ReadonlyArray<string>>> = {
  "POST /v1/schedules/create": schedules.map((one) => json({ workflow: "w", ...one })),
  "POST /v1/schedules/update": schedules.map((one) => json({ schedule_id: "@own:schedule_id@", ...one })),
  "POST /v1/event-types/create": schemas.map((schema, n) =>
    json({ name: `cost.n${n}`, schemas: { 1: schema }, example: manyItems }),
  ),
  "POST /v1/event-types/update": schemas.map((schema, n) => json({ name: `cost.n${n}`, schemas: { 2: schema } })),
  "POST /v1/events/publish": schemas.map((_, n) => json({ type: `cost.n${n}`, data: { items: manyItems } })),
  "POST /v1/webhooks/create": [
    ...urls.map((url) => json({ url, signing_secret: "s" })),
    json({ url: "https://localhost:9/", signing_secret: "s", filter: anyOf("a.b.c", Array(50).fill("x".repeat(200))) }),
    ...auths.map((auth) => json({ url: "https://localhost:9/", signing_secret: "s", auth })),
    json({ url: "https://localhost:9/", signing_secret: "s", event_types: Array(100).fill(`${"a.".repeat(50)}*`) }),
  ],
  "POST /v1/webhooks/update": auths.map((auth) => json({ webhook_endpoint_id: "@own:webhook_endpoint_id@", auth })),
  "POST /api/v0/orgs/{orgId}/keys/import": hashes.map((one) =>
    json({ keys: Array.from({ length: 100 }, () => ({ name: "k", start: "abcd", ...one })) }),
  ),
  "POST /api/v0/keys/validate": [
    json({ key: "svc_".padEnd(255, "0") }),
    json({ key: "abcd".padEnd(255, "0") }),
    json({ key: "😀".repeat(120) }),
    json({ key: "abcd0000", permissions: Array(20).fill("a.".repeat(60) + "a") }),
  ],
  "POST /api/svc/chat": [
    ...markdown.map((text) => question("how?", { a: text })),
    question("e\u0301\u0323 ".repeat(100_000), { a: "# a" }),
    question(
      "how?",
      Object.fromEntries(Array.from({ length: 900 }, (_, n) => [`p${n}`, `# ${n}\n\n${"word ".repeat(100)}`])),
    ),
    question("how?", { a: "\u0130 ".repeat(150_000) }),
    question("how?", { a: "some words of a page ".repeat(350_000) }),
  ],
}

/** Credentials that are dear to refuse. */
const encoded = (value: unknown) => Buffer.from(json(value)).toString("base64url")
export const tokens: ReadonlyArray<string> = [
  "a.".repeat(6_000),
  "svc_".padEnd(12_000, "0"),
  `${encoded({ alg: "RS256", kid: "k".repeat(3_000) })}.${encoded({ iss: "https://a.example", exp: 1e308 })}.AAAA`,
  `${encoded({ alg: "RS256" })}.${encoded({ iss: "i".repeat(4_000), aud: Array(400).fill("a") })}.${"A".repeat(3_000)}`,
  `${encoded({ alg: "none", x5c: Array(300).fill("a") })}.${encoded(JSON.parse(`${"[".repeat(2_000)}${"]".repeat(2_000)}`))}.`,
]
