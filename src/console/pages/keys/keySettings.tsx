import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button, CopyButton } from "../../components/Button.tsx"
import { objectOf } from "../../components/Code.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { toLocal } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Check, Field, Input, Lines, linesOf, Select, TextArea } from "../../components/Form.tsx"

/** The settings of a key as a form has them: texts. */
interface SettingTexts {
  readonly expiresAt: string
  readonly limit: string
  readonly window: string
  readonly credits: string
  readonly refill: string
  readonly every: string
  readonly permissions: string
  readonly roles: string
  readonly allowedIps: string
  readonly externalId: string
  readonly metadata: string
}

export const emptyTexts: SettingTexts = {
  expiresAt: "",
  limit: "",
  window: "60",
  credits: "",
  refill: "",
  every: "month",
  permissions: "",
  roles: "",
  allowedIps: "",
  externalId: "",
  metadata: "",
}

export const textsOf = (key: Key): SettingTexts => ({
  expiresAt: key.expiresAt === null ? "" : toLocal(key.expiresAt),
  limit: key.rateLimit === null ? "" : String(key.rateLimit.limit),
  window: key.rateLimit === null ? "60" : String(key.rateLimit.window),
  credits: key.credits === null ? "" : String(key.credits.remaining),
  refill: key.credits?.refill === undefined ? "" : String(key.credits.refill.amount),
  every: key.credits?.refill?.every ?? "month",
  permissions: key.permissions.join("\n"),
  roles: key.roles.join("\n"),
  allowedIps: key.allowedIps?.join("\n") ?? "",
  externalId: key.externalId ?? "",
  metadata: key.metadata === null ? "" : JSON.stringify(key.metadata, undefined, 2),
})

export const isMetadata = (text: string) => text.trim() === "" || objectOf(text) !== undefined

const refillOf = ({ every, refill }: SettingTexts) =>
  refill === "" ? null : { amount: Number(refill), every: every === "day" ? ("day" as const) : ("month" as const) }

const creditsOf = (texts: SettingTexts) => {
  const refill = refillOf(texts)
  if (texts.credits === "") return null
  return { remaining: Number(texts.credits), ...(refill === null ? {} : { refill }) }
}

/** The change of the credits: only what differs, because they are used meanwhile. */
const changedCredits = (before: SettingTexts, texts: SettingTexts) => {
  if (texts.credits === "") return null
  return {
    ...(before.credits === texts.credits ? {} : { remaining: Number(texts.credits) }),
    ...(before.refill === texts.refill && before.every === texts.every ? {} : { refill: refillOf(texts) }),
  }
}

const listOf = (text: string) => (text.trim() === "" ? null : linesOf(text))

/** The settings that a form asks for; null: none. */
const settingsOf = (texts: SettingTexts) => ({
  expiresAt: texts.expiresAt === "" ? null : new Date(texts.expiresAt).toISOString(),
  rateLimit: texts.limit === "" ? null : { limit: Number(texts.limit), window: Number(texts.window) },
  credits: creditsOf(texts),
  permissions: listOf(texts.permissions),
  roles: listOf(texts.roles),
  allowedIps: listOf(texts.allowedIps),
  externalId: texts.externalId.trim() === "" ? null : texts.externalId.trim(),
  metadata: texts.metadata.trim() === "" ? null : objectOf(texts.metadata)!,
})
type Settings = ReturnType<typeof settingsOf>
type ChangedSettings = Partial<Omit<Settings, "credits"> & { readonly credits: ReturnType<typeof changedCredits> }>

const fieldsOf: Record<keyof Settings, ReadonlyArray<keyof SettingTexts>> = {
  expiresAt: ["expiresAt"],
  rateLimit: ["limit", "window"],
  credits: ["credits", "refill", "every"],
  permissions: ["permissions"],
  roles: ["roles"],
  allowedIps: ["allowedIps"],
  externalId: ["externalId"],
  metadata: ["metadata"],
}

/** The settings whose fields have changed. An unchanged field is not sent, because credits may be used meanwhile. */
export const changedSettings = (before: SettingTexts, texts: SettingTexts): ChangedSettings => {
  const names = (Object.keys(fieldsOf) as ReadonlyArray<keyof Settings>).filter((name) =>
    fieldsOf[name].some((field) => before[field] !== texts[field]),
  )
  if (names.length === 0) return {}
  const settings = { ...settingsOf(texts), credits: changedCredits(before, texts) }
  return Object.fromEntries(names.map((name) => [name, settings[name]]))
}

type GivenSettings = { readonly [Name in keyof Settings]?: NonNullable<Settings[Name]> }

/** The settings of a new key: those that are given. */
export const newSettings = (texts: SettingTexts): GivenSettings =>
  Object.fromEntries(Object.entries(settingsOf(texts)).filter(([, value]) => value !== null))

const refills = [
  { value: "month", label: "each month" },
  { value: "day", label: "each day" },
]

interface SettingFieldsProps {
  readonly texts: SettingTexts
  /** Whether the others are open. */
  readonly isOpen?: boolean
  readonly onChange: (texts: SettingTexts) => void
}

/** The permissions of the roles and of the newest keys of the org. */
export const useUsedPermissions = () => {
  const orgId = useOrg()
  const { rows = [] } = usePages("keys.list", { orgId, limit: 100, order: "newest" }, ({ keys }) => keys)
  const { data } = useData("roles.list", { orgId }, { enabled: useMay()("roles.list") })
  return [...new Set([...rows, ...(data?.roles ?? [])].flatMap(({ permissions }) => permissions))]
}

/** Permissions and the like. */
export const Codes = ({ of }: { readonly of: ReadonlyArray<string> }) =>
  of.length === 0 ? (
    <span class="quiet">none</span>
  ) : (
    <ul class="row">
      {of.map((one) => (
        <li key={one}>
          <code>{one}</code>
        </li>
      ))}
    </ul>
  )

/** The optional settings of a key: what it may do and how often, then the others. */
export const SettingFields = ({ isOpen = false, onChange, texts }: SettingFieldsProps) => {
  const orgId = useOrg()
  const permissions = useUsedPermissions()
  const { data } = useData("roles.list", { orgId }, { enabled: useMay()("roles.list") })
  const roles = data?.roles.map(({ name }) => name) ?? []
  const control = (name: keyof SettingTexts) => ({
    name,
    value: texts[name],
    onInput: (text: string) => onChange({ ...texts, [name]: text }),
    autocomplete: "off" as const,
  })
  const number = (name: keyof SettingTexts, min: number) => (
    <Input type="number" min={min} step={1} {...control(name)} />
  )
  return (
    <>
      <Lines
        label="Permissions"
        hint="One on each line, such as models.gpt-5.use or files.*. Empty: none."
        {...control("permissions")}
        {...{ known: permissions, knownAs: "In use:" }}
      />
      {(roles.length > 0 || texts.roles !== "") && (
        <Lines
          label="Roles"
          hint="The key has their permissions, too."
          {...control("roles")}
          known={roles}
          knownAs="Of the org:"
        />
      )}
      <div class="grid-fields">
        <Field label="Rate limit" hint="Validations. Empty: unlimited.">
          {number("limit", 1)}
        </Field>
        <Field label="per … seconds">{number("window", 1)}</Field>
      </div>
      <details open={isOpen}>
        <summary>End, credits and more</summary>
        <div class="form">
          <Field label="Ends at" hint="In your time zone. Empty: never.">
            <Input type="datetime-local" {...control("expiresAt")} />
          </Field>
          <div class="grid-fields">
            <Field label="Credits" hint="Empty: unlimited.">
              {number("credits", 0)}
            </Field>
            <Field label="refilled to" hint="Empty: never.">
              {number("refill", 0)}
            </Field>
            <Field label="When">
              <Select {...control("every")} options={refills} />
            </Field>
          </div>
          <Lines
            label="Allowed networks"
            hint="One on each line, such as 203.0.113.0/24. Empty: from everywhere. Your gateway sends clientIp."
            {...control("allowedIps")}
          />
          <Field label="External id" hint="Your own id of whoever holds the key.">
            <Input {...control("externalId")} maxLength={255} />
          </Field>
          <Field
            label="Metadata"
            hint="A JSON object of your own, at most 4 KiB."
            error={isMetadata(texts.metadata) ? undefined : 'Enter a JSON object, such as {"plan": "pro"}.'}
          >
            <TextArea {...control("metadata")} spellcheck={false} rows={3} />
          </Field>
        </div>
      </details>
    </>
  )
}

interface ShownOnceProps {
  readonly title: string
  readonly secret: string
  readonly onClose: () => void
}

/** A new key. It is not stored, so the dialog closes only after the reader says that they have it. */
export const ShownOnce = ({ onClose, secret, title }: ShownOnceProps) => {
  const [isKept, setKept] = useState(false)
  return (
    <Dialog title={title} onClose={onClose} isEasyToClose={false}>
      <Notice tone="warn">
        <strong>Copy the key now. It is not shown again.</strong>
        <span>Only its hash is stored. Whoever has the key may use it.</span>
      </Notice>
      <div class="secret">
        <code data-secret>{secret}</code>
        <CopyButton text={secret} label="Copy the key" />
      </div>
      <Check isChecked={isKept} onChange={setKept}>
        I have copied the key to a safe place.
      </Check>
      <div class="actions">
        <Button look="primary" disabled={!isKept} onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  )
}

export type Key = ResponseBody<"keys.list">["keys"][number]

const weekMillis = 7 * 86_400_000

/** What holds for a key now: the first of these that does. */
export const keyStateOf = ({ enabled, expiresAt, leakedAt }: Key, now: number) => {
  if (leakedAt !== null) return "leaked"
  const left = expiresAt === null ? Infinity : Date.parse(expiresAt) - now
  if (left <= 0) return "expired"
  if (!enabled) return "disabled"
  return left < weekMillis ? "expiring" : "active"
}

export const isEnded = (key: Key, now: number) => ["leaked", "expired"].includes(keyStateOf(key, now))

/** "600 per 45 seconds". */
export const rateLimitText = ({ rateLimit }: Key) =>
  rateLimit === null
    ? undefined
    : `${rateLimit.limit.toLocaleString("en")} per ${rateLimit.window === 1 ? "second" : `${rateLimit.window} seconds`}`
