import type { ComponentType } from "preact"
import type { OperationId } from "../client/Operations.ts"
import type { IconName } from "../components/Button.tsx"

/** A page of an org. */
const ofOrg = (path: string, needs: Route["needs"], page: Route["page"]): Route => ({
  path: `/orgs/:orgId${path}`,
  needs,
  page,
})

/** The pages for the webhooks, jobs and chats of an org. Those of webhooks are also the portal's. */
const tenantRoutes: ReadonlyArray<Route> = [
  {
    ...ofOrg("/endpoints", ["webhooks.list", "deliveries.list"], () => import("./webhooks/EndpointsPage.tsx")),
    nav: { section: "webhooks", label: "Endpoints", icon: "hook" },
  },
  ofOrg("/endpoints/:endpointId", ["webhooks.get", "deliveries.list"], () => import("./webhooks/EndpointPage.tsx")),
  {
    ...ofOrg("/deliveries", ["deliveries.list"], () => import("./deliveries/DeliveriesPage.tsx")),
    nav: { section: "webhooks", label: "Deliveries", icon: "send" },
  },
  ofOrg("/deliveries/:deliveryId", ["deliveries.get"], () => import("./deliveries/DeliveryPage.tsx")),
  {
    ...ofOrg("/events", ["events.list", "events.types"], () => import("./events/EventsPage.tsx")),
    nav: { section: "webhooks", label: "Events", icon: "inbox" },
  },
  ofOrg("/catalogue", ["eventTypes.list", "eventTypes.get"], () => import("./events/CataloguePage.tsx")),
  ofOrg("/events/:eventId", ["events.get"], () => import("./events/EventPage.tsx")),
  {
    ...ofOrg("/jobs", ["jobs.list"], () => import("./jobs/JobsPage.tsx")),
    nav: { section: "jobs", label: "Jobs", icon: "gear" },
  },
  ofOrg("/jobs/:jobId", ["jobs.get"], () => import("./jobs/JobPage.tsx")),
  {
    ...ofOrg("/schedules", ["schedules.list"], () => import("./schedules/SchedulesPage.tsx")),
    nav: { section: "jobs", label: "Schedules", icon: "clock" },
  },
  ofOrg("/schedules/:scheduleId", ["schedules.get"], () => import("./schedules/SchedulePage.tsx")),
  {
    ...ofOrg("/chat", ["chat.answer"], () => import("./chat/ChatPage.tsx")),
    nav: { section: "chat", label: "Playground", icon: "chat" },
  },
  {
    ...ofOrg(
      "/portal",
      ["portal.link", "portal.listLinks", "portal.revokeLink"],
      () => import("./portal/PortalLinkPage.tsx"),
    ),
    nav: { section: "settings", label: "Portal link", icon: "link" },
  },
]

export type NavSection = "operator" | "org" | "webhooks" | "jobs" | "chat" | "settings"

export interface Route {
  /** The path below /console. A page of an org begins with /orgs/:orgId. */
  readonly path: string
  /** The operations that the page needs. Readers who may not call all of them do not see it. */
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
    needs: ["orgs.list", "activity.activeOrgs"],
    nav: { section: "operator", label: "Orgs", icon: "people" },
    page: () => import("./orgs/OrgsPage.tsx"),
  },
  {
    path: "/people",
    needs: ["sessions.people"],
    nav: { section: "operator", label: "People", icon: "shield" },
    page: () => import("./people/PeoplePage.tsx"),
  },
  { path: "/alerts", needs: ["serviceAlerts.list"], page: () => import("./orgs/AlertsPage.tsx") },
  {
    ...ofOrg("", ["orgs.get"], () => import("./orgs/OrgPage.tsx")),
    nav: { section: "org", label: "Home", icon: "home" },
  },
  ...tenantRoutes,
  {
    ...ofOrg("/projects", ["projects.list"], () => import("./projects/ProjectsPage.tsx")),
    nav: { section: "org", label: "Projects", icon: "cube" },
  },
  ofOrg("/projects/:projectId", ["deployments.list"], () => import("./projects/DeploymentsPage.tsx")),
  ofOrg("/projects/:projectId/docs", ["docs.get"], () => import("./docs/DocsPage.tsx")),
  ofOrg("/projects/:projectId/settings", ["projects.update"], () => import("./projects/ProjectSettingsPage.tsx")),
  {
    ...ofOrg("/keys", ["keys.list"], () => import("./keys/KeysPage.tsx")),
    nav: { section: "org", label: "API keys", icon: "key" },
  },
  ofOrg("/keys/:keyId", ["keys.get"], () => import("./keys/KeyPage.tsx")),
  ofOrg("/alerts", ["alerts.list"], () => import("./orgs/AlertsPage.tsx")),
  {
    ...ofOrg("/audit", ["audit.list"], () => import("./audit/AuditPage.tsx")),
    nav: { section: "settings", label: "Audit log", icon: "list" },
  },
  {
    ...ofOrg("/settings", ["orgs.update"], () => import("./orgs/SettingsPage.tsx")),
    nav: { section: "settings", label: "Settings", icon: "sliders" },
  },
]
