import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button, CopyButton } from "../../components/Button.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { useOrg } from "../../navigation/org.ts"
import { choice, list, number, object, optional, text, time, useFields } from "../../components/Fields.tsx"
import { Check } from "../../components/Form.tsx"

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

const settings = {
  name: { ...text, label: "Name", required: true, maxLength: 255 },
  permissions: {
    ...list,
    label: "Permissions",
    hint: "One on each line, such as models.gpt-5.use or files.*. Empty: none.",
    knownAs: "In use:",
  },
  roles: { ...list, label: "Roles", hint: "The key has their permissions, too.", knownAs: "Of the org:" },
  limit: { ...number, label: "Rate limit", hint: "Validations. Empty: unlimited.", min: 1, step: 1 },
  window: {
    ...number,
    label: "per … seconds",
    min: 1,
    step: 1,
    read: (value: number | null | undefined) => String(value ?? 60),
  },
  expiresAt: { ...time, label: "Ends at", hint: "In your time zone. Empty: never." },
  credits: { ...number, label: "Credits", hint: "Empty: unlimited.", min: 0, step: 1 },
  refill: { ...number, label: "refilled to", hint: "Empty: never.", min: 0, step: 1 },
  every: { ...choice({ month: "each month", day: "each day" }), label: "When" },
  allowedIps: {
    ...list,
    label: "Allowed networks",
    hint: "One on each line, such as 203.0.113.0/24. Empty: from everywhere. Your gateway sends clientIp.",
  },
  externalId: {
    ...optional,
    label: "External id",
    hint: "Your own id of the holder of the key.",
    maxLength: 255,
  },
  metadata: { ...object, label: "Metadata", hint: "A JSON object of your own, at most 4 KiB.", rows: 3 },
}
type Values = ReturnType<typeof useFields<typeof settings>>["values"]

const rateLimitOf = ({ limit, window }: Values) => (limit === null ? null : { limit, window: Number(window) })

const refillOf = ({ every, refill: amount }: Values) => (amount === null ? null : { amount, every })

/** The form of a key: of a new one, or of one that is stored. */
export const useKeyForm = (key?: Key) => {
  const { changes, field, fields, isValid, values } = useFields(settings, {
    ...key,
    ...key?.rateLimit,
    credits: key?.credits?.remaining,
    refill: key?.credits?.refill?.amount,
    every: key?.credits?.refill?.every,
  })
  const orgId = useOrg()
  const known = useUsedPermissions()
  const { data } = useData("roles.list", { orgId }, { enabled: useMay()("roles.list") })
  const roles = data?.roles.map(({ name }) => name) ?? []
  const { credits, every, limit, refill, window, ...others } = changes
  const isRefill = refill !== undefined || (every !== undefined && values.refill !== null)
  const isCredits = credits !== undefined || (isRefill && values.credits !== null)
  const isRateLimit = limit !== undefined || (window !== undefined && values.limit !== null)
  // Only what differs, because credits are used meanwhile.
  const newCredits = {
    ...(credits !== undefined && { remaining: values.credits }),
    ...(isRefill && { refill: refillOf(values) }),
  }
  return {
    isValid,
    /** What differs from what is stored; from the defaults, when nothing is stored yet. */
    changes: {
      ...others,
      ...(isRateLimit && { rateLimit: rateLimitOf(values) }),
      ...(isCredits && { credits: values.credits === null ? null : newCredits }),
    },
    nameField: field("name", key === undefined ? { hint: "So that people recognize the key." } : {}),
    /** What the key may do and how often, then the others. */
    controls: (
      <>
        {field("permissions", { known })}
        {(roles.length > 0 || values.roles !== null) && field("roles", { known: roles })}
        <div class="grid-fields">{fields("limit", "window")}</div>
        <details open={key !== undefined}>
          <summary>End, credits and more</summary>
          <div class="form">
            {field("expiresAt")}
            <div class="grid-fields">{fields("credits", "refill", "every")}</div>
            {fields("allowedIps", "externalId", "metadata")}
          </div>
        </details>
      </>
    ),
  }
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
        <span>Only its hash is stored. Anyone who has the key may use it.</span>
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
