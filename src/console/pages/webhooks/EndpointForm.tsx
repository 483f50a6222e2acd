import { useState } from "preact/hooks"
import type { Args } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { Button } from "../../components/Button.tsx"
import { Dialog, FormDialog } from "../../components/Dialog.tsx"
import { choice, flag, list, number, object, optional, text, useFields } from "../../components/Fields.tsx"
import { Form, Input, linesOf } from "../../components/Form.tsx"
import { toast } from "../../components/Toasts.tsx"
import { useSearch } from "../../navigation/router.tsx"
import { ShowSecret } from "./SigningSecret.tsx"
import { authText, bodies, type EndpointDetail, newSecret } from "./endpoints.ts"

/** The waits between attempts, in seconds. "none": no retries. What is no number is sent as it was typed. */
const delays = {
  read: (value: ReadonlyArray<number> | null | undefined) => (value == null ? "" : value.join(", ") || "none"),
  write: (text: string) => {
    if (text.trim().toLowerCase() === "none") return []
    const parts = linesOf(text).map((part) => (Number.isNaN(Number(part)) ? part : Number(part)))
    return parts.length === 0 ? null : parts
  },
}

/** The settings of an endpoint. */
const settings = {
  url: {
    ...text,
    label: "URL",
    hint: "An absolute https URL. Redirects are not followed.",
    type: "url",
    required: true,
    maxLength: 2048,
    placeholder: "https://example.com/webhooks",
  },
  description: { ...optional, label: "Description", placeholder: "Production" },
  event_types: {
    ...list,
    label: "Event types",
    hint: "One on each line: a type, or a pattern such as invoice.*. Empty: all events, except those of Gatehouse itself.",
    placeholder: "invoice.*\njob.failed",
    knownAs: "Seen so far:",
  },
  ordered: { ...flag, label: "In order: one delivery at a time. One that is retried holds the later ones back." },
  max_per_second: {
    ...number,
    label: "Most attempts per second",
    hint: "1 to 1,000. Empty: unlimited.",
    min: 1,
    max: 1000,
  },
  retry_delays: {
    ...delays,
    label: "Waits before retries",
    hint: "Seconds, with commas. Empty: the schedule of the service.",
    placeholder: "5, 60, 600",
  },
  signature: {
    ...choice({ hmac: "HMAC-SHA256", ed25519: "HMAC-SHA256 and Ed25519" }),
    label: "Signature",
    hint: "Ed25519 adds one that the public key of the org verifies.",
  },
  batch_max: {
    ...number,
    label: "Events in one request",
    hint: "1 to 100. Empty: each event has its own.",
    min: 1,
    max: 100,
  },
  batch_within_ms: {
    ...number,
    label: "Time to collect them",
    hint: "Milliseconds.",
    min: 0,
    required: true,
    read: (value: number | null | undefined) => String(value ?? 1_000),
  },
  payload: { ...choice(bodies), label: "Body" },
  header_names: {
    ...choice({ webhook: "webhook-id", svix: "svix-id" }),
    label: "Names of headers",
    hint: "Svix's libraries want svix-id.",
  },
  external_id: { ...optional, label: "External id", hint: "Your own id of the endpoint.", maxLength: 255 },
  channels: {
    ...list,
    label: "Channels",
    hint: "One on each line: only events of these channels. Empty: all events.",
  },
  filter: {
    ...object,
    label: "Filter",
    hint: "A JSON object of what events must have, by paths of fields. Empty: all events.",
    placeholder: '{"data.plan": ["pro", "team"]}',
  },
  metadata: { ...object, label: "Metadata", hint: "A JSON object of your own." },
  // The secret of a new endpoint is made here, and shown when it is stored. Somebody may already have one.
  signing_secret: {
    read: () => "",
    write: (text: string) => text || null,
    label: "Signing secret",
    hint: "One was made for you. It is shown once, when the endpoint is added.",
    type: "password",
    required: true,
    maxLength: 512,
    spellcheck: false,
  },
}

const secretText = { ...text, spellcheck: false }
const pem = { ...secretText, as: "area" as const, class: "input short", hint: "In PEM." }

/** How requests are authorized: the kind, and what each kind needs. */
const authSettings = {
  type: {
    ...choice({ none: "none", oauth2: "OAuth2 token, by client credentials", mtls: "Client certificate (mTLS)" }),
    label: "Kind",
  },
  token_url: { ...secretText, label: "Token URL", type: "url" },
  client_id: { ...secretText, label: "Client id" },
  client_secret: { ...secretText, label: "Client secret", type: "password" },
  scope: { ...secretText, label: "Scope", hint: "Empty: none." },
  client_auth: {
    ...choice({ basic: "in the header, as HTTP Basic", body: "in the body" }),
    label: "Client's credentials",
  },
  certificate: { ...pem, label: "Certificate" },
  private_key: { ...pem, label: "Private key, not encrypted" },
}

type HeaderRows = ReadonlyArray<readonly [name: string, value: string]>

/** The form of an endpoint: of a new one, or of one that is stored. */
const useEndpointForm = (stored?: EndpointDetail) => {
  const [type = ""] = useSearch("type")
  const batch = stored?.batch && { batch_max: stored.batch.max, batch_within_ms: stored.batch.within_ms }
  const [preset] = useState(() => (stored ? {} : { event_types: type, signing_secret: newSecret() }))
  const form = useFields(settings, { ...stored, ...batch }, preset)
  const auth = useFields(authSettings)
  // undefined and false: they stay as they are.
  const [headers, setHeaders] = useState<HeaderRows>()
  const [hasAuth, setHasAuth] = useState(false)
  const { data } = useData("events.types", {})
  const known = (data?.types ?? []).map(({ type }) => type)
  return {
    secret: form.texts.signing_secret,
    isValid: form.isValid,
    /** What differs from what is stored; from the defaults, when nothing is stored yet. */
    changes: {
      ...changesOf(form.changes, form.values),
      ...(headers && { headers: headersOf(headers) }),
      ...(hasAuth && { auth: authOf(auth.values) }),
    },
    controls: (
      <>
        {form.fields("url", "description")}
        {form.field("event_types", { known })}
        <details open={stored !== undefined}>
          <summary>Order, rate, retries, body, filter, headers{stored === undefined && " and secret"}</summary>
          <div class="stack">
            <fieldset class="fieldset">
              <legend>Delivering</legend>
              {form.field("ordered")}
              <div class="grid-3">
                {form.fields("max_per_second", "retry_delays", "signature", "batch_max")}
                {form.texts.batch_max !== "" && form.field("batch_within_ms")}
              </div>
            </fieldset>
            <fieldset class="fieldset">
              <legend>Receiving</legend>
              <div class="grid-fields">{form.fields("payload", "header_names", "external_id")}</div>
              {form.fields("channels", "filter", "metadata")}
            </fieldset>
            <Headers rows={headers} set={setHeaders} stored={stored?.headers ?? []} />
            {hasAuth ? (
              <fieldset class="fieldset">
                <legend>Authorization of requests</legend>
                {auth.field("type")}
                {auth.texts.type === "oauth2" && (
                  <div class="grid-fields">
                    {auth.fields("token_url", "client_id", "client_secret", "scope", "client_auth")}
                  </div>
                )}
                {auth.texts.type === "mtls" && auth.fields("certificate", "private_key")}
                <span class="hint">Stored encrypted. Secrets are never shown again.</span>
              </fieldset>
            ) : (
              <Kept
                label="Authorization of requests"
                stored={stored?.auth ? authText(stored.auth) : undefined}
                actions={["Add", "Replace"]}
                onReplace={() => setHasAuth(true)}
              />
            )}
            {stored === undefined && form.field("signing_secret")}
          </div>
        </details>
      </>
    ),
  }
}

type Form = ReturnType<typeof useFields<typeof settings>>

/** The two fields of a batch are one of the request. */
const changesOf = ({ batch_max, batch_within_ms, ...changes }: Form["changes"], values: Form["values"]) => {
  if (batch_max === undefined && batch_within_ms === undefined) return changes
  const { batch_max: max, batch_within_ms: within_ms } = values
  return { ...changes, batch: max === null ? null : { max, within_ms } }
}

const headersOf = (rows: HeaderRows) => {
  const named = rows.filter(([name]) => name.trim() !== "")
  return named.length === 0 ? null : Object.fromEntries(named)
}

/** The members that belong to the kind of authorization and are not empty. */
const authOf = ({
  certificate,
  private_key,
  scope,
  type,
  ...client
}: ReturnType<typeof useFields<typeof authSettings>>["values"]) => {
  if (type === "none") return null
  return type === "mtls" ? { type, certificate, private_key } : { type, ...client, ...(scope && { scope }) }
}

interface CreateProps {
  readonly onClose: () => void
  readonly onCreated: (id: string) => void
}

export const CreateEndpoint = ({ onClose, onCreated }: CreateProps) => {
  const { changes, controls, isValid, secret } = useEndpointForm()
  const [madeId, setMadeId] = useState<string>()
  const call = useCall()
  if (madeId !== undefined) {
    const open = () => {
      onClose()
      onCreated(madeId)
    }
    return <ShowSecret secret={secret} onClose={open} />
  }
  const create = async () => {
    const made = await call("webhooks.create", changes as Args<"webhooks.create">, { isOnce: true })
    if (made.warning !== undefined) toast(made.warning)
    setMadeId(made.webhook_endpoint_id)
  }
  return (
    <Dialog key="form" title="Add an endpoint" isWide onClose={onClose}>
      <Form submit="Add endpoint" isReady={isValid} onCancel={onClose} onSubmit={create}>
        {controls}
      </Form>
    </Dialog>
  )
}

export interface EndpointDialogProps {
  readonly endpoint: EndpointDetail
  readonly onClose: () => void
}

export const EditEndpoint = ({ endpoint, onClose }: EndpointDialogProps) => {
  const { changes, controls, isValid } = useEndpointForm(endpoint)
  const call = useCall()
  const save = async () => {
    const request = { id: endpoint.webhook_endpoint_id, ...changes } as Args<"webhooks.update">
    const { warning = "Its next attempt uses the new settings." } = await call("webhooks.update", request)
    toast(`The endpoint is changed. ${warning}`)
  }
  const isReady = isValid && Object.keys(changes).length > 0
  return (
    <FormDialog title="Edit the endpoint" submit="Save" isWide isReady={isReady} onSubmit={save} onClose={onClose}>
      {controls}
    </FormDialog>
  )
}

interface KeptProps {
  readonly label: string
  /** What is stored, as far as it is shown. */
  readonly stored: string | undefined
  /** The button, when nothing is stored and when something is. */
  readonly actions: readonly [add: string, replace: string]
  readonly onReplace: () => void
}

/** A setting with secrets, which are never shown: it stays as it is, or is replaced whole. */
const Kept = ({ actions, label, onReplace, stored }: KeptProps) => (
  <div class="field">
    <span class="label">{label}</span>
    <div class="row">
      <span class="quiet">{stored ?? "none"}</span>
      <Button isSmall onClick={onReplace}>
        {actions[stored === undefined ? 0 : 1]}
      </Button>
    </div>
  </div>
)

interface HeadersProps {
  readonly rows: HeaderRows | undefined
  readonly set: (rows: HeaderRows) => void
  readonly stored: ReadonlyArray<string>
}

/** Extra headers. Their values are secret: a change replaces all of them. */
const Headers = ({ rows, set, stored }: HeadersProps) => {
  if (rows === undefined) {
    const names = stored.length === 0 ? undefined : stored.join(", ")
    const actions = ["Add a header", "Replace all"] as const
    return <Kept label="Extra headers" stored={names} actions={actions} onReplace={() => set([["", ""]])} />
  }
  const change = (i: number, row: readonly [string, string]) => set(rows.with(i, row))
  return (
    <fieldset class="fieldset">
      <legend>Extra headers</legend>
      {rows.map(([name, value], i) => (
        <div class="row nowrap" key={i}>
          <Input
            aria-label="Name"
            placeholder="authorization"
            value={name}
            onInput={(text) => change(i, [text, value])}
          />
          <Input aria-label="Value" placeholder="Value" value={value} onInput={(text) => change(i, [name, text])} />
          <Button
            look="plain"
            icon="trash"
            aria-label={`Remove ${name || "the header"}`}
            onClick={() => set(rows.toSpliced(i, 1))}
          />
        </div>
      ))}
      <div class="row">
        <Button isSmall icon="plus" disabled={rows.length >= 10} onClick={() => set([...rows, ["", ""]])}>
          Add a header
        </Button>
        <span class="hint">Values are stored encrypted and never shown again.</span>
      </div>
    </fieldset>
  )
}
