import { Link } from "./router.tsx"
import icon from "../icon.svg"
import { embedded } from "../client/embedded.ts"
import type { FrameSettings } from "../frame/settings.ts"

/** How the portal looks, by the settings of the operator: `data-portal`, which the server writes. */
interface Look {
  readonly name?: string
  readonly logo?: string
  readonly color?: string
  /** What the platform says to its tenants. */
  readonly text?: string
  readonly helpUrl?: string
}

/** How the console looks for this reader. The look of the portal is for its readers alone. */
export let look: Look = {}

/** Shows the console as the portal, or as itself. In a frame, the page around it has chosen some of the look. */
export const showAsPortal = (isPortal: boolean, { color, lang, logo, name, theme }: FrameSettings = {}) => {
  const chosen = { ...(color && { color }), ...(logo && { logo }), ...(name && { name }) }
  look = isPortal ? { ...(embedded as Look), ...chosen } : {}
  const root = document.documentElement
  if (theme !== undefined) root.dataset["theme"] = theme
  if (lang !== undefined) root.lang = lang
  root.classList.toggle("branded", look.color !== undefined)
  root.style.setProperty("--brand", look.color ?? "")
}

export const platformName = () => look.name ?? "Gatehouse"

export const Brand = () => (
  <Link to="/" class="brand" aria-label={`${platformName()}, home`}>
    <img src={look.logo ?? icon} alt="" />
    <span class="label">{platformName()}</span>
  </Link>
)
