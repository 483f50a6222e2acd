import { Context } from "effect"

/** The picture of the portal: the bytes of a file. */
export interface PortalLogo {
  readonly extension: ".svg" | ".png"
  readonly content: Uint8Array
}

/** How the portal looks, by the settings of the operator. */
export const PortalLook = Context.Reference<{
  readonly name?: string | undefined
  readonly logo?: PortalLogo | undefined
  readonly color?: string | undefined
  readonly text?: string | undefined
  readonly helpUrl?: string | undefined
  /** The origins whose pages may show the portal in a frame. */
  readonly origins?: ReadonlyArray<string> | undefined
}>("gatehouse/http/console/PortalLook", { defaultValue: () => ({}) })
