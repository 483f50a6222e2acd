import { Button } from "./Button.tsx"
import { Field } from "./Form.tsx"

const pad = (value: number) => String(value).padStart(2, "0")

/** A time as the control for dates has it: in the reader's zone, to the minute. */
const toLocal = (iso: string) => {
  const at = new Date(iso)
  if (Number.isNaN(at.getTime())) return ""
  const date = [at.getFullYear(), at.getMonth() + 1, at.getDate()].map(pad).join("-")
  return `${date}T${pad(at.getHours())}:${pad(at.getMinutes())}`
}

interface DateTimeProps {
  readonly label: string
  /** ISO 8601; undefined: no time. */
  readonly value: string | undefined
  readonly onChange: (value: string | undefined) => void
  readonly isRequired?: boolean
}

/** A time, in the reader's zone. */
export const DateTime = ({ isRequired = false, label, onChange, value }: DateTimeProps) => (
  <Field label={label}>
    <input
      class="input"
      type="datetime-local"
      required={isRequired}
      value={value === undefined ? "" : toLocal(value)}
      onChange={({ currentTarget: { value } }) => onChange(value === "" ? undefined : new Date(value).toISOString())}
    />
  </Field>
)

/** The time so many milliseconds ago, at a full minute. */
export const ago = (millis: number) => new Date(Math.floor((Date.now() - millis) / 60_000) * 60_000).toISOString()

const hourMillis = 3_600_000
const ranges = [
  { label: "hour", hours: 1 },
  { label: "day", hours: 24 },
  { label: "7 days", hours: 7 * 24 },
  { label: "30 days", hours: 30 * 24 },
]

/** The ranges of time that people ask for most, until now. */
export const LastTimes = ({ onChoose }: { readonly onChoose: (since: string) => void }) => (
  <div class="row">
    <span class="quiet small" aria-hidden="true">
      Last
    </span>
    {ranges.map(({ hours, label }) => (
      <Button key={label} isSmall aria-label={`Last ${label}`} onClick={() => onChoose(ago(hours * hourMillis))}>
        {label}
      </Button>
    ))}
  </div>
)
