/** Why the portal needs a token: it has had none, its session has ended, or what it got was used or too old. */
export type PortalTokenReason = "start" | "ended" | "refused"

/** Events of `<gatehouse-portal>`. */
export interface GatehousePortalEvents {
  /** Ask your backend for a portal link, and set its `token` as the property `token`. */
  readonly "gatehouse-token": CustomEvent<{ readonly reason: PortalTokenReason }>
  /** A setting is wrong: `message` says which, and what it must be. */
  readonly "gatehouse-fault": CustomEvent<{ readonly message: string }>
}

const settings = ["theme", "color", "logo", "name", "lang", "page"] as const

// On a server there are no elements: the module can be imported there, and defines none.
const Base = (globalThis.HTMLElement ?? Object) as typeof HTMLElement

/**
 * `<gatehouse-portal src="https://gatehouse.example.com">`: the portal of Gatehouse in a page of your own. Attributes:
 * `src` (the address of Gatehouse), `theme` (system, light or dark), `color` (#rrggbb of buttons and links), `logo` (an
 * https or data:image URL), `name` (of your product), `lang` (a language tag) and `page` (the first one: endpoints,
 * deliveries, events or keys).
 */
export class GatehousePortal extends Base {
  static readonly observedAttributes = ["src", ...settings]
  #frame: HTMLIFrameElement | undefined
  #origin = ""
  #texts: Readonly<Record<string, string>> | undefined
  #token: string | undefined
  #isWaiting = false

  /** Texts that replace words of the portal, by the words. */
  get texts(): Readonly<Record<string, string>> | undefined {
    return this.#texts
  }
  set texts(texts: Readonly<Record<string, string>> | undefined) {
    this.#texts = texts
    this.#sendSettings()
  }

  /** The `token` of a portal link. It is given away once, and cannot be read. */
  set token(token: string) {
    this.#token = token
    this.#sendToken()
  }

  connectedCallback(): void {
    addEventListener("message", this.#hear)
    this.#show()
  }

  disconnectedCallback(): void {
    removeEventListener("message", this.#hear)
    this.#frame?.remove()
    this.#frame = undefined
  }

  attributeChangedCallback(name: string, before: string | null, now: string | null): void {
    if (before === now) return
    if (name === "src") this.#show()
    else this.#sendSettings()
  }

  #show() {
    const src = this.getAttribute("src")
    if (!this.isConnected || src === null) return
    const url = new URL(`${src.replace(/(?<!\/)\/+$/, "")}/portal/embed`, document.baseURI)
    this.#origin = url.origin
    this.#isWaiting = false
    if (this.#frame === undefined) {
      const root = this.shadowRoot ?? this.attachShadow({ mode: "open" })
      // No style element, which the policy of the page may refuse.
      const sheet = new CSSStyleSheet()
      sheet.replaceSync(":host{display:block;height:40rem}iframe{border:0;width:100%;height:100%}")
      root.adoptedStyleSheets = [sheet]
      this.#frame = document.createElement("iframe")
      this.#frame.title = this.title || "Portal"
      this.#frame.allow = "clipboard-write"
      this.#frame.referrerPolicy = "no-referrer"
      this.#frame.src = url.href
      root.append(this.#frame)
    } else this.#frame.src = url.href
  }

  readonly #hear = ({ data, origin, source }: MessageEvent<unknown>) => {
    if (source !== this.#frame?.contentWindow || source === null || origin !== this.#origin) return
    const { gatehouse, message, reason } = (data ?? {}) as Readonly<Record<string, unknown>>
    if (gatehouse === "ready") this.#sendSettings()
    if (gatehouse === "fault") this.dispatchEvent(new CustomEvent("gatehouse-fault", { detail: { message } }))
    if (gatehouse !== "token-needed") return
    this.#isWaiting = true
    this.#sendToken()
    if (this.#isWaiting) this.dispatchEvent(new CustomEvent("gatehouse-token", { detail: { reason } }))
  }

  #post(message: object) {
    this.#frame?.contentWindow?.postMessage(message, this.#origin)
  }

  #sendSettings() {
    const chosen: Record<string, unknown> = { texts: this.#texts }
    for (const name of settings) chosen[name] = this.getAttribute(name)
    this.#post({ gatehouse: "settings", settings: chosen })
  }

  #sendToken() {
    if (!this.#isWaiting || this.#token === undefined) return
    this.#post({ gatehouse: "token", token: this.#token })
    this.#token = undefined
    this.#isWaiting = false
  }
}

declare global {
  interface HTMLElementTagNameMap {
    "gatehouse-portal": GatehousePortal
  }
  interface HTMLElementEventMap extends GatehousePortalEvents {}
}

if (globalThis.customElements?.get("gatehouse-portal") === undefined) {
  globalThis.customElements?.define("gatehouse-portal", GatehousePortal)
}
