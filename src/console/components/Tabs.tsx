import { Link, useLocation } from "../navigation/router.tsx"

interface Tab {
  readonly to: string
  readonly label: string
}

/** Pages of one thing. Each has an address of its own. */
export const Tabs = ({ label, tabs }: { readonly label: string; readonly tabs: ReadonlyArray<Tab> }) => {
  const { path } = useLocation()
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(({ label, to }) => (
        <Link key={to} to={to} aria-current={to.split("?")[0] === path ? "page" : undefined}>
          {label}
        </Link>
      ))}
    </nav>
  )
}

interface SegmentsProps<Value extends string> {
  readonly label: string
  readonly value: Value
  readonly options: ReadonlyArray<{ readonly value: Value; readonly label: string }>
  readonly onChange: (value: Value) => void
}

/** A choice of a few, such as a range of time. */
export const Segments = <Value extends string>({ label, onChange, options, value }: SegmentsProps<Value>) => (
  <div class="segments" role="group" aria-label={label}>
    {options.map((option) => (
      <button
        key={option.value}
        type="button"
        aria-pressed={option.value === value}
        onClick={() => onChange(option.value)}
      >
        {option.label}
      </button>
    ))}
  </div>
)
