import { Field, Input, Select, TextArea } from "../../components/Form.tsx"
import { isMetadata, type SettingTexts } from "./settings.ts"

const refills = [
  { value: "month", label: "each month" },
  { value: "day", label: "each day" },
]

interface SettingFieldsProps {
  readonly texts: SettingTexts
  readonly onChange: (texts: SettingTexts) => void
}

/** The optional settings of a key. */
export const SettingFields = ({ onChange, texts }: SettingFieldsProps) => {
  const set = (name: keyof SettingTexts) => (text: string) => onChange({ ...texts, [name]: text })
  const control = (name: keyof SettingTexts) => ({
    name,
    value: texts[name],
    onInput: set(name),
    autocomplete: "off" as const,
  })
  const number = (name: keyof SettingTexts, min: number) => (
    <Input type="number" min={min} step={1} {...control(name)} />
  )
  return (
    <>
      <Field label="Ends at" hint="In your time zone. Empty: never.">
        <Input type="datetime-local" {...control("expiresAt")} />
      </Field>
      <div class="grid-fields">
        <Field label="Rate limit" hint="Validations. Empty: no limit.">
          {number("limit", 1)}
        </Field>
        <Field label="in so many seconds">{number("window", 1)}</Field>
      </div>
      <div class="grid-fields">
        <Field label="Credits" hint="Empty: no limit.">
          {number("credits", 0)}
        </Field>
        <Field label="refilled to" hint="Empty: never.">
          {number("refill", 0)}
        </Field>
        <Field label="When">
          <Select {...control("every")} options={refills} />
        </Field>
      </div>
      <Field label="Permissions" hint="One on each line, such as models.gpt-5.use or files.*. Empty: none.">
        <TextArea {...control("permissions")} spellcheck={false} rows={3} />
      </Field>
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
    </>
  )
}
