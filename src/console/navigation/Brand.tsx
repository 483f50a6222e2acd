import { Link } from "./router.tsx"
import icon from "../icon.svg"

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

/** Shows the console as the portal, or as itself. */
export const showAsPortal = (isPortal: boolean) => {
  look = isPortal ? (JSON.parse(document.body.dataset["portal"] ?? "{}") as Look) : {}
  const root = document.documentElement
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
