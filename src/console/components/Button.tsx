import type { ButtonHTMLAttributes, ComponentChildren } from "preact"
import { useState } from "preact/hooks"

export interface Look {
  readonly icon?: IconName
  /** primary: the main action, once on a page. danger: removes something. plain: any other action. */
  readonly look?: "primary" | "danger" | "plain" | "primary danger"
  readonly isSmall?: boolean
}

export const buttonClass = ({ look, isSmall }: Look = {}) => `button ${look ?? ""} ${isSmall === true ? "small" : ""}`

/** A button. One that cannot be pressed keeps the focus. */
export const Button = ({
  children,
  disabled,
  icon,
  isSmall,
  look,
  onClick,
  ...rest
}: Look & Omit<ButtonHTMLAttributes<HTMLButtonElement>, "icon"> & { readonly children?: ComponentChildren }) => (
  <button
    type="button"
    {...rest}
    aria-disabled={disabled || undefined}
    onClick={(event) => (disabled ? event.preventDefault() : onClick?.(event))}
    class={`${buttonClass({ ...(look && { look }), ...(isSmall && { isSmall }) })} ${children === undefined ? "icon-only" : ""}`}
  >
    {icon !== undefined && <Icon name={icon} />}
    {children}
  </button>
)

/** Prints the page, or makes a PDF of it: what the styles for paper leave. */
export const PrintButton = () => (
  <Button icon="print" look="plain" aria-label="Print this page" onClick={() => globalThis.print()} />
)

const shownMillis = 1_500

/** Copies a text, and says so. */
export const CopyButton = ({ label = "Copy", text }: { readonly text: string; readonly label?: string }) => {
  const [isCopied, setCopied] = useState(false)
  const copy = async () => {
    await navigator.clipboard.writeText(text)
    setCopied(true)
    setTimeout(() => setCopied(false), shownMillis)
  }
  return (
    <button type="button" class="copy" title={label} aria-label={isCopied ? "Copied" : label} onClick={copy}>
      <Icon name={isCopied ? "check" : "copy"} />
    </button>
  )
}

/** An id or another text to copy, shortened by its width. */
export const Copyable = ({ label, text }: { readonly text: string; readonly label?: string }) => (
  <span class="copyable">
    <code title={text}>{text}</code>
    <CopyButton text={text} {...(label === undefined ? {} : { label })} />
  </span>
)

/** Lines in a square of 24. */
const paths = {
  activity: "M3 12h4l3-8 4 16 3-8h4",
  alert: "M12 3 2 20h20L12 3zM12 10v4M12 17h.01",
  arrow: "M5 12h14M13 6l6 6-6 6",
  back: "M3 9h12a6 6 0 0 1 0 12h-3M3 9l5-5M3 9l5 5",
  book: "M4 5a2 2 0 0 1 2-2h14v18H6a2 2 0 0 1-2-2V5zM4 19a2 2 0 0 1 2-2h14",
  branch:
    "M6 4v12M6 16a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM18 4a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM18 9c0 5-12 3-12 7",
  chat: "M4 5h16v11H9l-5 4V5z",
  check: "M5 12.5 10 17.5 19.5 7",
  clock: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7v5l3.5 2",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  cube: "M12 3l8 4.5v9L12 21l-8-4.5v-9L12 3zM4 7.5l8 4.5 8-4.5M12 12v9",
  door: "M14 4h5v16h-5M4 12h10M10 8l4 4-4 4",
  folder: "M3 6h6l2 2h10v11H3V6z",
  gear: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.1 2.1M16.3 16.3l2.1 2.1M18.4 5.6l-2.1 2.1M7.7 16.3l-2.1 2.1",
  home: "M4 11 12 4l8 7v9h-5v-6H9v6H4v-9z",
  hook: "M9 15a4 4 0 1 1-5 4M15 17h6a4 4 0 0 0 0-1M8.5 16l4-7a4 4 0 1 1 4 0",
  inbox: "M3 13 6 5h12l3 8v6H3v-6zM3 13h5l1.5 3h5L16 13h5",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5M12 8h.01",
  key: "M8 10a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM11.5 11.5 20 3M16 7l3 3",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4.2 4.2 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4.2 4.2 0 0 0 6 6l1-1",
  list: "M4 6h.01M4 12h.01M4 18h.01M9 6h11M9 12h11M9 18h11",
  menu: "M4 7h16M4 12h16M4 17h16",
  pause: "M8 5v14M16 5v14",
  people:
    "M9 5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM2.5 20a6.5 6.5 0 0 1 13 0M16 5.5a3.5 3.5 0 0 1 0 6.5M18 15a6 6 0 0 1 3.5 5",
  play: "M7 4.5 19 12 7 19.5v-15z",
  plus: "M12 5v14M5 12h14",
  print: "M7 8V3h10v5M7 17H4V8h16v9h-3M7 14h10v7H7v-7z",
  repeat: "M4 11V9a3 3 0 0 1 3-3h11M15 3l3 3-3 3M20 13v2a3 3 0 0 1-3 3H6M9 21l-3-3 3-3",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5",
  send: "M21 3 10 14M21 3l-7 18-4-7-7-4 18-7z",
  shield: "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6l8-3z",
  sliders: "M4 7h9M19 7h1M4 17h1M11 17h9M16 4a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 14a3 3 0 1 0 0 6 3 3 0 0 0 0-6z",
  sort: "M8 10l4-4 4 4M8 14l4 4 4-4",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
} as const
export type IconName = keyof typeof paths

export const Icon = ({ name }: { readonly name: IconName }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={paths[name]} />
  </svg>
)
