import { Button } from "../../components/Button.tsx"
import { CopyButton } from "../../components/Copy.tsx"
import { Check, Field, Input, Select, TextArea } from "../../components/Form.tsx"
import { useData } from "../../client/queries.ts"
import type { Fields } from "./endpointValues.ts"
import { type EndpointDetail, newSecret } from "./endpoints.ts"

type Set = (change: Partial<Fields>) => void
interface PartProps {
  readonly fields: Fields
  readonly set: Set
}

/** Which events the endpoint receives, with the types that the org has had. */
const EventTypes = ({ fields, set }: PartProps) => {
  const { data } = useData("events.types", {})
  const chosen = fields.event_types.split(/\s+/).filter(Boolean)
  const others = (data?.types ?? []).map(({ type }) => type).filter((type) => !chosen.includes(type))
  return (
    <div class="stack tight">
      <Field
        label="Event types"
        hint="One on each line: a type, or a pattern such as invoice.*. Empty: all events, except those of Gatehouse itself."
      >
        <TextArea
          class="input short"
          value={fields.event_types}
          onInput={(event_types) => set({ event_types })}
          spellcheck={false}
          placeholder={"invoice.*\njob.failed"}
        />
      </Field>
      {others.length > 0 && (
        <div class="row small">
          <span class="quiet">Seen so far:</span>
          {others.slice(0, 8).map((type) => (
            <Button
              key={type}
              isSmall
              icon="plus"
              onClick={() => set({ event_types: [...chosen, type].join("\n") })}
              aria-label={`Add ${type}`}
            >
              {type}
            </Button>
          ))}
        </div>
      )}
    </div>
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

const Delivering = ({ fields, set }: PartProps) => (
  <fieldset class="fieldset">
    <legend>Delivering</legend>
    <Check isChecked={fields.ordered} onChange={(ordered) => set({ ordered })}>
      In order: one delivery at a time. One that is retried holds the later ones back.
    </Check>
    <div class="grid-3">
      <Field label="Most attempts a second" hint="1 to 1,000. Empty: no limit.">
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
    </div>
  </fieldset>
)

const Secret = ({ fields, isNew, set }: PartProps & { readonly isNew: boolean }) => (
  <div class="stack tight">
    <Field
      label="Signing secret"
      hint={
        isNew
          ? "Copy it into your receiver: it is never shown again."
          : "Empty: it stays. A new secret signs beside the old one for 24 hours."
      }
    >
      <Input
        value={fields.signing_secret}
        onInput={(signing_secret) => set({ signing_secret })}
        required={isNew}
        maxLength={512}
        autocomplete="off"
        spellcheck={false}
      />
    </Field>
    <div class="row">
      <Button isSmall onClick={() => set({ signing_secret: newSecret() })}>
        Make a new secret
      </Button>
      {fields.signing_secret !== "" && <CopyButton text={fields.signing_secret} label="Copy the secret" />}
    </div>
  </div>
)

/** The controls of an endpoint, for a new one and for one that is stored. */
export const EndpointFields = ({ fields, set, stored }: PartProps & { readonly stored?: EndpointDetail }) => (
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
    <Secret fields={fields} set={set} isNew={stored === undefined} />
    <EventTypes fields={fields} set={set} />
    <details open={stored !== undefined}>
      <summary>Order, rate, retries and headers</summary>
      <div class="stack">
        <Delivering fields={fields} set={set} />
        <Headers fields={fields} set={set} stored={stored?.headers ?? []} />
      </div>
    </details>
  </>
)
