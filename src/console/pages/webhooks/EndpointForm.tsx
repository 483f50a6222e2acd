import { useState } from "preact/hooks"
import type { Args } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { Button } from "../../components/Button.tsx"
import { objectOf } from "../../components/Code.tsx"
import { Dialog, FormDialog } from "../../components/Dialog.tsx"
import { Check, Field, Form, Input, Lines, linesOf, Select, TextArea } from "../../components/Form.tsx"
import { toast } from "../../components/Toasts.tsx"
import { useSearch } from "../../navigation/router.tsx"
import { ShowSecret } from "./SigningSecret.tsx"
import { authText, bodies, type EndpointDetail, newSecret } from "./endpoints.ts"

interface CreateProps {
  readonly onClose: () => void
  readonly onCreated: (id: string) => void
}

export const CreateEndpoint = ({ onClose, onCreated }: CreateProps) => {
  const [event_types = ""] = useSearch("type")
  const [fields, setFields] = useState<Fields>(() => ({ ...emptyFields, event_types, signing_secret: newSecret() }))
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  const [madeId, setMadeId] = useState<string>()
  const call = useCall()
  if (madeId !== undefined) {
    return (
      <ShowSecret
        secret={fields.signing_secret}
        onClose={() => {
          onClose()
          onCreated(madeId)
        }}
      />
    )
  }
  return (
    <Dialog key="form" title="Add an endpoint" isWide onClose={onClose}>
      <Form
        submit="Add endpoint"
        onCancel={onClose}
        onSubmit={async () => {
          const body = { ...changesOf(fields, undefined), url: fields.url, signing_secret: fields.signing_secret }
          const made = await call("webhooks.create", body as Args<"webhooks.create">, idempotencyKey)
          if (made.warning !== undefined) toast(made.warning)
          setMadeId(made.webhook_endpoint_id)
        }}
      >
        <EndpointFields fields={fields} set={(change) => setFields((now) => ({ ...now, ...change }))} />
      </Form>
    </Dialog>
  )
}

export const EditEndpoint = ({
  endpoint,
  onClose,
}: {
  readonly endpoint: EndpointDetail
  readonly onClose: () => void
}) => {
  const [fields, setFields] = useState<Fields>(() => fieldsOf(endpoint))
  const call = useCall()
  const changes = changesOf(fields, endpoint)
  const save = async () => {
    const { warning = "Its next attempt uses the new settings." } = await call("webhooks.update", {
      id: endpoint.webhook_endpoint_id,
      ...changes,
    } as Args<"webhooks.update">)
    toast(`The endpoint is changed. ${warning}`)
  }
  const isReady = Object.keys(changes).length > 0
  return (
    <FormDialog title="Edit the endpoint" submit="Save" isWide isReady={isReady} onSubmit={save} onClose={onClose}>
      <EndpointFields fields={fields} set={(change) => setFields((now) => ({ ...now, ...change }))} stored={endpoint} />
    </FormDialog>
  )
}

type Set = (change: Partial<Fields>) => void
interface PartProps {
  readonly fields: Fields
  readonly set: Set
}

/** Which events the endpoint receives, with the types that the org has had. */
const EventTypes = ({ fields, set }: PartProps) => {
  const { data } = useData("events.types", {})
  return (
    <Lines
      label="Event types"
      hint="One on each line: a type, or a pattern such as invoice.*. Empty: all events, except those of Gatehouse itself."
      value={fields.event_types}
      onInput={(event_types) => set({ event_types })}
      placeholder={"invoice.*\njob.failed"}
      known={(data?.types ?? []).map(({ type }) => type)}
      knownAs="Seen so far:"
    />
  )
}

/** Extra headers. Their values are secret: a change replaces all of them. */
const Headers = ({ fields, set, stored }: PartProps & { readonly stored: ReadonlyArray<string> }) => {
  if (fields.headers === undefined) {
    return (
      <div class="field">
        <span class="label">Extra headers</span>
        <div class="row">
          <span class="quiet">{stored.length === 0 ? "none" : stored.join(", ")}</span>
          <Button isSmall onClick={() => set({ headers: [["", ""]] })}>
            {stored.length === 0 ? "Add a header" : "Replace all"}
          </Button>
        </div>
      </div>
    )
  }
  const rows = fields.headers
  const change = (i: number, row: readonly [string, string]) => set({ headers: rows.with(i, row) })
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
            onClick={() => set({ headers: rows.toSpliced(i, 1) })}
          />
        </div>
      ))}
      <div class="row">
        <Button isSmall icon="plus" disabled={rows.length >= 10} onClick={() => set({ headers: [...rows, ["", ""]] })}>
          Add a header
        </Button>
        <span class="hint">Values are stored encrypted and never shown again.</span>
      </div>
    </fieldset>
  )
}

/** How requests are authorized. Its secrets are never shown: a change replaces it whole. */
const Auth = ({ fields, set, stored }: PartProps & { readonly stored: EndpointDetail["auth"] }) => {
  const { auth } = fields
  if (auth === undefined) {
    return (
      <div class="field">
        <span class="label">Authorization of requests</span>
        <div class="row">
          <span class="quiet">{stored === null ? "none" : authText(stored)}</span>
          <Button isSmall onClick={() => set({ auth: emptyAuth })}>
            {stored === null ? "Add" : "Replace"}
          </Button>
        </div>
      </div>
    )
  }
  const input = (
    name: keyof typeof auth,
    label: string,
    more: { readonly type?: string; readonly hint?: string } = {},
  ) => (
    <Field label={label} hint={more.hint}>
      <Input
        type={more.type ?? "text"}
        value={auth[name]}
        onInput={(text) => set({ auth: { ...auth, [name]: text } })}
        autocomplete="off"
        spellcheck={false}
      />
    </Field>
  )
  const pem = (name: "certificate" | "private_key", label: string) => (
    <Field label={label} hint="In PEM.">
      <TextArea
        class="input short"
        value={auth[name]}
        onInput={(text) => set({ auth: { ...auth, [name]: text } })}
        spellcheck={false}
      />
    </Field>
  )
  return (
    <fieldset class="fieldset">
      <legend>Authorization of requests</legend>
      <Field label="Kind">
        <Select
          value={auth.type}
          onInput={(type) => set({ auth: { ...auth, type: type as typeof auth.type } })}
          options={[
            { value: "none", label: "none" },
            { value: "oauth2", label: "OAuth2 token, by client credentials" },
            { value: "mtls", label: "Client certificate (mTLS)" },
          ]}
        />
      </Field>
      {auth.type === "oauth2" && (
        <div class="grid-fields">
          {input("token_url", "Token URL", { type: "url" })}
          {input("client_id", "Client id")}
          {input("client_secret", "Client secret", { type: "password" })}
          {input("scope", "Scope", { hint: "Empty: none." })}
          <Field label="Client's credentials">
            <Select
              value={auth.client_auth}
              onInput={(client_auth) => set({ auth: { ...auth, client_auth } })}
              options={[
                { value: "basic", label: "in the header, as HTTP Basic" },
                { value: "body", label: "in the body" },
              ]}
            />
          </Field>
        </div>
      )}
      {auth.type === "mtls" && [pem("certificate", "Certificate"), pem("private_key", "Private key, not encrypted")]}
      <span class="hint">Stored encrypted. Secrets are never shown again.</span>
    </fieldset>
  )
}

const Delivering = ({ fields, set }: PartProps) => (
  <fieldset class="fieldset">
    <legend>Delivering</legend>
    <Check isChecked={fields.ordered} onChange={(ordered) => set({ ordered })}>
      In order: one delivery at a time. One that is retried holds the later ones back.
    </Check>
    <div class="grid-3">
      <Field label="Most attempts per second" hint="1 to 1,000. Empty: unlimited.">
        <Input
          type="number"
          min={1}
          max={1000}
          value={fields.max_per_second}
          onInput={(max_per_second) => set({ max_per_second })}
        />
      </Field>
      <Field label="Waits before retries" hint="Seconds, with commas. Empty: the schedule of the service.">
        <Input
          value={fields.retry_delays}
          onInput={(retry_delays) => set({ retry_delays })}
          placeholder="5, 60, 600"
          autocomplete="off"
        />
      </Field>
      <Field label="Signature" hint="Ed25519 adds one that the public key of the org verifies.">
        <Select
          value={fields.signature}
          onInput={(signature) => set({ signature: signature as Fields["signature"] })}
          options={[
            { value: "hmac", label: "HMAC-SHA256" },
            { value: "ed25519", label: "HMAC-SHA256 and Ed25519" },
          ]}
        />
      </Field>
      <Field label="Events in one request" hint="1 to 100. Empty: each event has its own.">
        <Input type="number" min={1} max={100} value={fields.batch_max} onInput={(batch_max) => set({ batch_max })} />
      </Field>
      {fields.batch_max !== "" && (
        <Field label="Time to collect them" hint="Milliseconds.">
          <Input
            type="number"
            required
            min={0}
            value={fields.batch_within_ms}
            onInput={(batch_within_ms) => set({ batch_within_ms })}
          />
        </Field>
      )}
    </div>
  </fieldset>
)

/** What the receiver gets, and what the endpoint is called by whoever made it. */
const Receiving = ({ fields, set }: PartProps) => (
  <fieldset class="fieldset">
    <legend>Receiving</legend>
    <div class="grid-fields">
      <Field label="Body">
        <Select
          value={fields.payload}
          onInput={(payload) => set({ payload: payload as Fields["payload"] })}
          options={[
            { value: "envelope", label: bodies.envelope },
            { value: "data", label: bodies.data },
          ]}
        />
      </Field>
      <Field label="Names of headers" hint="Svix's libraries want svix-id.">
        <Select
          value={fields.header_names}
          onInput={(names) => set({ header_names: names as Fields["header_names"] })}
          options={["webhook", "svix"].map((value) => ({ value, label: `${value}-id` }))}
        />
      </Field>
      <Field label="External id" hint="Your own id of the endpoint.">
        <Input value={fields.external_id} onInput={(external_id) => set({ external_id })} maxLength={255} />
      </Field>
    </div>
    <Lines
      label="Channels"
      hint="One on each line: only events of these channels. Empty: all events."
      value={fields.channels}
      onInput={(channels) => set({ channels })}
    />
    <Field label="Filter" hint="A JSON object of what events must have, by paths of fields. Empty: all events.">
      <TextArea
        class="input short"
        value={fields.filter}
        onInput={(filter) => set({ filter })}
        placeholder={'{"data.plan": ["pro", "team"]}'}
        spellcheck={false}
      />
    </Field>
    <Field label="Metadata" hint="A JSON object of your own.">
      <TextArea
        class="input short"
        value={fields.metadata}
        onInput={(metadata) => set({ metadata })}
        spellcheck={false}
      />
    </Field>
  </fieldset>
)

/** The secret of a new endpoint is made here, and shown when it is stored. Somebody may already have one. */
const Secret = ({ fields, set }: PartProps) => (
  <Field label="Signing secret" hint="One was made for you. It is shown once, when the endpoint is added.">
    <Input
      type="password"
      value={fields.signing_secret}
      onInput={(signing_secret) => set({ signing_secret })}
      required
      maxLength={512}
      autocomplete="off"
      spellcheck={false}
    />
  </Field>
)

/** The controls of an endpoint, for a new one and for one that is stored. */
const EndpointFields = ({ fields, set, stored }: PartProps & { readonly stored?: EndpointDetail }) => (
  <>
    <Field label="URL" hint="An absolute https URL. Redirects are not followed.">
      <Input
        name="url"
        type="url"
        required
        maxLength={2048}
        value={fields.url}
        onInput={(url) => set({ url })}
        placeholder="https://example.com/webhooks"
        autocomplete="off"
      />
    </Field>
    <Field label="Description">
      <Input
        value={fields.description}
        onInput={(description) => set({ description })}
        placeholder="Production"
        autocomplete="off"
      />
    </Field>
    <EventTypes fields={fields} set={set} />
    <details open={stored !== undefined}>
      <summary>Order, rate, retries, body, filter, headers{stored === undefined && " and secret"}</summary>
      <div class="stack">
        <Delivering fields={fields} set={set} />
        <Receiving fields={fields} set={set} />
        <Headers fields={fields} set={set} stored={stored?.headers ?? []} />
        <Auth fields={fields} set={set} stored={stored?.auth ?? null} />
        {stored === undefined && <Secret fields={fields} set={set} />}
      </div>
    </details>
  </>
)

/** What the form of an endpoint holds: texts, as they are typed. */
interface Fields {
  readonly url: string
  readonly description: string
  readonly signing_secret: string
  /** One on each line. */
  readonly event_types: string
  readonly ordered: boolean
  readonly max_per_second: string
  /** Seconds with commas. */
  readonly retry_delays: string
  readonly signature: "hmac" | "ed25519"
  readonly payload: EndpointDetail["payload"]
  readonly header_names: EndpointDetail["header_names"]
  readonly external_id: string
  /** One on each line. */
  readonly channels: string
  /** JSON. */
  readonly metadata: string
  /** undefined: they stay as they are. */
  readonly headers: ReadonlyArray<readonly [name: string, value: string]> | undefined
  readonly batch_max: string
  readonly batch_within_ms: string
  /** JSON. */
  readonly filter: string
  /** undefined: it stays as it is. */
  readonly auth: AuthFields | undefined
}

const emptyAuth = {
  type: "none" as "none" | "oauth2" | "mtls",
  token_url: "",
  client_id: "",
  client_secret: "",
  scope: "",
  client_auth: "basic",
  certificate: "",
  private_key: "",
}
type AuthFields = typeof emptyAuth

const emptyFields: Fields = {
  url: "",
  description: "",
  signing_secret: "",
  event_types: "",
  ordered: false,
  max_per_second: "",
  retry_delays: "",
  signature: "hmac",
  payload: "envelope",
  header_names: "webhook",
  external_id: "",
  channels: "",
  metadata: "",
  headers: undefined,
  batch_max: "",
  batch_within_ms: "1000",
  filter: "",
  auth: undefined,
}

const fieldsOf = (endpoint: EndpointDetail): Fields => ({
  ...emptyFields,
  url: endpoint.url,
  description: endpoint.description ?? "",
  event_types: endpoint.event_types?.join("\n") ?? "",
  ordered: endpoint.ordered,
  max_per_second: endpoint.max_per_second === null ? "" : String(endpoint.max_per_second),
  retry_delays: endpoint.retry_delays === null ? "" : endpoint.retry_delays.join(", ") || "none",
  signature: endpoint.signature,
  payload: endpoint.payload,
  header_names: endpoint.header_names,
  external_id: endpoint.external_id ?? "",
  channels: endpoint.channels?.join("\n") ?? "",
  metadata: endpoint.metadata === null ? "" : JSON.stringify(endpoint.metadata, null, 2),
  batch_max: endpoint.batch === null ? "" : String(endpoint.batch.max),
  batch_within_ms: endpoint.batch === null ? emptyFields.batch_within_ms : String(endpoint.batch.within_ms),
  filter: endpoint.filter === null ? "" : JSON.stringify(endpoint.filter, null, 2),
})

const listOf = (text: string) => {
  const list = linesOf(text)
  return list.length === 0 ? null : list
}

/** What is no JSON object is sent as it was typed, and the service says what is wrong with it. */
const jsonOf = (text: string) => (text.trim() === "" ? null : (objectOf(text) ?? text))

/**
 * "none" means no retries. What is not a number is sent as it was typed, and the service says what is wrong with it.
 */
const delaysOf = (text: string) => {
  if (text.trim().toLowerCase() === "none") return []
  return listOf(text)?.map((part) => (Number.isNaN(Number(part)) ? part : Number(part))) ?? null
}

const valuesOf = (fields: Fields) => ({
  url: fields.url.trim(),
  description: fields.description.trim() || null,
  event_types: listOf(fields.event_types),
  ordered: fields.ordered,
  max_per_second: fields.max_per_second === "" ? null : Number(fields.max_per_second),
  retry_delays: delaysOf(fields.retry_delays),
  signature: fields.signature,
  payload: fields.payload,
  header_names: fields.header_names,
  external_id: fields.external_id.trim() || null,
  channels: listOf(fields.channels),
  metadata: jsonOf(fields.metadata),
  batch: fields.batch_max === "" ? null : { max: Number(fields.batch_max), within_ms: Number(fields.batch_within_ms) },
  filter: jsonOf(fields.filter),
})

/** The members that belong to the kind of authorization and are not empty. */
const authOf = ({
  certificate,
  client_auth,
  client_id,
  client_secret,
  private_key,
  scope,
  token_url,
  type,
}: AuthFields) => {
  if (type === "none") return null
  if (type === "mtls") return { type, certificate, private_key }
  return { type, token_url, client_id, client_secret, client_auth, ...(scope.trim() && { scope }) }
}

/** The fields of a request that differ from what is stored; from the defaults, when nothing is stored yet. */
const changesOf = (fields: Fields, stored: EndpointDetail | undefined): Readonly<Record<string, unknown>> => {
  const before: Readonly<Record<string, unknown>> = valuesOf(stored === undefined ? emptyFields : fieldsOf(stored))
  const changes: Record<string, unknown> = Object.fromEntries(
    Object.entries(valuesOf(fields)).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])),
  )
  if (fields.signing_secret !== "") changes["signing_secret"] = fields.signing_secret
  const headers = fields.headers?.filter(([name]) => name.trim() !== "")
  if (headers !== undefined) changes["headers"] = headers.length === 0 ? null : Object.fromEntries(headers)
  if (fields.auth !== undefined) changes["auth"] = authOf(fields.auth)
  return changes
}
