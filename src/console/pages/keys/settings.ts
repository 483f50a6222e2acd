import type { Key } from "./keyState.ts"

/** The settings of a key as a form has them: texts. */
export interface SettingTexts {
  readonly expiresAt: string
  readonly limit: string
  readonly window: string
  readonly credits: string
  readonly refill: string
  readonly every: string
  readonly permissions: string
  readonly externalId: string
  readonly metadata: string
}

const two = (value: number) => String(value).padStart(2, "0")

/** A time as an input of the reader's zone has it. */
const localTime = (iso: string) => {
  const at = new Date(iso)
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  return `${date}T${two(at.getHours())}:${two(at.getMinutes())}`
}

export const emptyTexts: SettingTexts = {
  expiresAt: "",
  limit: "",
  window: "60",
  credits: "",
  refill: "",
  every: "month",
  permissions: "",
  externalId: "",
  metadata: "",
}

export const textsOf = (key: Key): SettingTexts => ({
  expiresAt: key.expiresAt === null ? "" : localTime(key.expiresAt),
  limit: key.rateLimit === null ? "" : String(key.rateLimit.limit),
  window: key.rateLimit === null ? "60" : String(key.rateLimit.window),
  credits: key.credits === null ? "" : String(key.credits),
  refill: key.refill === null ? "" : String(key.refill.amount),
  every: key.refill?.every ?? "month",
  permissions: key.permissions.join("\n"),
  externalId: key.externalId ?? "",
  metadata: key.metadata === null ? "" : JSON.stringify(key.metadata, undefined, 2),
})

const linesOf = (text: string) => text.split(/[\s,]+/).filter((line) => line !== "")

/** The JSON of a text, or undefined when it is no object. */
const objectOf = (text: string) => {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}

export const isMetadata = (text: string) => text.trim() === "" || objectOf(text) !== undefined

const creditsOf = ({ credits, every, refill }: SettingTexts) =>
  credits === ""
    ? null
    : {
        remaining: Number(credits),
        ...(refill === ""
          ? {}
          : { refill: { amount: Number(refill), every: every === "day" ? "day" : "month" } as const }),
      }

/** The settings that a form asks for; null: none. */
const settingsOf = (texts: SettingTexts) => ({
  expiresAt: texts.expiresAt === "" ? null : new Date(texts.expiresAt).toISOString(),
  rateLimit: texts.limit === "" ? null : { limit: Number(texts.limit), window: Number(texts.window) },
  credits: creditsOf(texts),
  permissions: texts.permissions.trim() === "" ? null : linesOf(texts.permissions),
  externalId: texts.externalId.trim() === "" ? null : texts.externalId.trim(),
  metadata: texts.metadata.trim() === "" ? null : objectOf(texts.metadata)!,
})
type Settings = ReturnType<typeof settingsOf>

const fieldsOf: Record<keyof Settings, ReadonlyArray<keyof SettingTexts>> = {
  expiresAt: ["expiresAt"],
  rateLimit: ["limit", "window"],
  credits: ["credits", "refill", "every"],
  permissions: ["permissions"],
  externalId: ["externalId"],
  metadata: ["metadata"],
}

/** The settings whose fields differ from before. A field that was not touched is not sent: credits are used meanwhile. */
export const changedSettings = (before: SettingTexts, texts: SettingTexts): Partial<Settings> => {
  const names = (Object.keys(fieldsOf) as ReadonlyArray<keyof Settings>).filter((name) =>
    fieldsOf[name].some((field) => before[field] !== texts[field]),
  )
  if (names.length === 0) return {}
  const settings = settingsOf(texts)
  return Object.fromEntries(names.map((name) => [name, settings[name]]))
}

type GivenSettings = { readonly [Name in keyof Settings]?: NonNullable<Settings[Name]> }

/** The settings of a new key: those that are given. */
export const newSettings = (texts: SettingTexts): GivenSettings =>
  Object.fromEntries(Object.entries(settingsOf(texts)).filter(([, value]) => value !== null))
