import { options, type VNode } from "preact"
import { type FrameSettings, readSettings } from "./settings.ts"

/** What the frame says to the page around it. */
type Said =
  | { readonly gatehouse: "ready" }
  | { readonly gatehouse: "token-needed"; readonly reason: "start" | "ended" | "refused" }
  | { readonly gatehouse: "fault"; readonly message: string }

/** The page around the frame. The policy of the page lets only the origins of the operator be this one. */
const host = window.parent

/** Tells the page around the frame. Nothing of it is secret. */
export const tell = (said: Said) => host.postMessage(said, "*")

/** The attributes that people read. */
const readAttributes = ["title", "aria-label", "placeholder"]

let texts: Readonly<Record<string, string>> = {}

const textOf = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(textOf)
  return typeof value === "string" && Object.hasOwn(texts, value) ? texts[value] : value
}

/** Replaces words where they stand alone, as texts or as the attributes that people read. */
const translate = () => {
  const before = options.vnode
  options.vnode = (vnode: VNode) => {
    if (typeof vnode.type === "string") {
      const props = vnode.props as unknown as Record<string, unknown>
      props["children"] = textOf(props["children"])
      for (const name of readAttributes) if (name in props) props[name] = textOf(props[name])
    }
    before?.(vnode)
  }
}

interface Listener {
  readonly onSettings: (settings: FrameSettings) => void
  readonly onToken: (token: string) => void
}

/** Listens to the page around the frame, if it is of one of the origins, and to no other window. */
export const listen = (origins: ReadonlyArray<string>, { onSettings, onToken }: Listener) => {
  let isTranslated = false
  addEventListener("message", ({ data, origin, source }: MessageEvent<unknown>) => {
    if (source !== host || !origins.includes(origin) || typeof data !== "object" || data === null) return
    const message = data as { readonly gatehouse?: unknown; readonly token?: unknown; readonly settings?: unknown }
    if (message.gatehouse === "token" && typeof message.token === "string") onToken(message.token)
    if (message.gatehouse !== "settings") return
    const { faults, settings } = readSettings(message.settings)
    for (const fault of faults) tell({ gatehouse: "fault", message: fault })
    if (settings.texts !== undefined) {
      if (!isTranslated) translate()
      isTranslated = true
      texts = settings.texts
    }
    onSettings(settings)
  })
  tell({ gatehouse: "ready" })
}
