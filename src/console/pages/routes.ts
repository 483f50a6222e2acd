import type { ComponentType } from "preact"
import type { IconName } from "../components/Icon.tsx"
import type { OperationId } from "../client/Operations.ts"

export type NavSection = "operator" | "org" | "webhooks" | "jobs" | "chat" | "settings"

export interface Route {
  /** The path below /console. A page of an org begins with /orgs/:orgId. */
  readonly path: string
  /** Whoever may not call all of these does not see the page. */
  readonly needs: ReadonlyArray<OperationId>
  /** The entry of the navigation; a page without one is reached from another. */
  readonly nav?: { readonly section: NavSection; readonly label: string; readonly icon: IconName }
  /** The file of the page, which is loaded when the page is opened first. */
  readonly page: () => Promise<{ readonly default: ComponentType }>
}

/** Every page, in the order of the navigation. A page is one file, with one entry here. */
export const routes: ReadonlyArray<Route> = [
  {
    path: "/",
    needs: ["activity.failing"],
    nav: { section: "operator", label: "Overview", icon: "activity" },
    page: () => import("./overview/OverviewPage.tsx"),
  },
  {
    path: "/orgs",
    needs: ["orgs.create"],
    nav: { section: "operator", label: "Orgs", icon: "people" },
    page: () => import("./orgs/OrgsPage.tsx"),
  },
  {
    path: "/orgs/:orgId",
    needs: ["orgs.get"],
    nav: { section: "org", label: "Home", icon: "activity" },
    page: () => import("./orgs/OrgPage.tsx"),
  },
]
