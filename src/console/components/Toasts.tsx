import { useEffect, useState } from "preact/hooks"
import { Icon } from "./Button.tsx"

interface Toast {
  readonly id: number
  readonly text: string
}
const shownMillis = 5_000
const maxShown = 3
const said = new EventTarget()
let count = 0

/** Says briefly that something was done. A reader may miss it, so nothing important is said only here. */
export const toast = (text: string) => void said.dispatchEvent(new CustomEvent("toast", { detail: text }))

export const Toasts = () => {
  const [toasts, setToasts] = useState<ReadonlyArray<Toast>>([])
  useEffect(() => {
    const show = (event: Event) => {
      const id = ++count
      setToasts((all) => [...all, { id, text: (event as CustomEvent<string>).detail }].slice(-maxShown))
      setTimeout(() => setToasts((all) => all.filter((one) => one.id !== id)), shownMillis)
    }
    said.addEventListener("toast", show)
    return () => said.removeEventListener("toast", show)
  }, [])
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map(({ id, text }) => (
        <div key={id} class="toast">
          <Icon name="check" />
          {text}
        </div>
      ))}
    </div>
  )
}
