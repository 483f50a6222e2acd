import { useState } from "preact/hooks"
import { Icon } from "./Icon.tsx"

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
