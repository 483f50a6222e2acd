import type { ComponentType } from "preact"
import type { OperationId } from "../client/Operations.ts"
import type { IconName } from "../components/Button.tsx"

/** The pages for the webhooks, jobs and chats of an org. Those of webhooks are also the portal's. */
const tenantRoutes: ReadonlyArray<Route> = [
  {
    path: "/orgs/:orgId/endpoints",
    needs: ["webhooks.list", "deliveries.list"],
    nav: { section: "webhooks", label: "Endpoints", icon: "hook" },
    page: () => import("./webhooks/EndpointsPage.tsx"),
  },
  {
    path: "/orgs/:orgId/endpoints/:endpointId",
    needs: ["webhooks.get", "deliveries.list"],
    page: () => import("./webhooks/EndpointPage.tsx"),
  },
  {
    path: "/orgs/:orgId/deliveries",
    needs: ["deliveries.list"],
    nav: { section: "webhooks", label: "Deliveries", icon: "send" },
    page: () => import("./deliveries/DeliveriesPage.tsx"),
  },
  {
    path: "/orgs/:orgId/deliveries/:deliveryId",
    needs: ["deliveries.get"],
    page: () => import("./deliveries/DeliveryPage.tsx"),
  },
  {
    path: "/orgs/:orgId/events",
    needs: ["events.list", "events.types"],
    nav: { section: "webhooks", label: "Events", icon: "inbox" },
    page: () => import("./events/EventsPage.tsx"),
  },
  {
    path: "/orgs/:orgId/events/:eventId",
    needs: ["events.get"],
    page: () => import("./events/EventPage.tsx"),
  },
  {
    path: "/orgs/:orgId/jobs",
    needs: ["jobs.list"],
    nav: { section: "jobs", label: "Jobs", icon: "gear" },
    page: () => import("./jobs/JobsPage.tsx"),
  },
  {
    path: "/orgs/:orgId/jobs/:jobId",
    needs: ["jobs.get"],
    page: () => import("./jobs/JobPage.tsx"),
  },
  {
    path: "/orgs/:orgId/schedules",
    needs: ["schedules.list"],
    nav: { section: "jobs", label: "Schedules", icon: "clock" },
    page: () => import("./schedules/SchedulesPage.tsx"),
  },
  {
    path: "/orgs/:orgId/schedules/:scheduleId",
    needs: ["schedules.get"],
    page: () => import("./schedules/SchedulePage.tsx"),
  },
  {
    path: "/orgs/:orgId/chat",
    needs: ["chat.answer"],
    nav: { section: "chat", label: "Playground", icon: "chat" },
    page: () => import("./chat/ChatPage.tsx"),
  },
  {
    path: "/orgs/:orgId/portal",
    needs: ["portal.link"],
    nav: { section: "settings", label: "Portal link", icon: "link" },
    page: () => import("./portal/PortalLinkPage.tsx"),
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
    needs: ["orgs.create"],
    nav: { section: "operator", label: "Orgs", icon: "people" },
    page: () => import("./orgs/OrgsPage.tsx"),
  },
  {
    path: "/orgs/:orgId",
    needs: ["orgs.get"],
    nav: { section: "org", label: "Home", icon: "home" },
    page: () => import("./orgs/OrgPage.tsx"),
  },
  ...tenantRoutes,
  {
    path: "/orgs/:orgId/projects",
    needs: ["projects.list"],
    nav: { section: "org", label: "Projects", icon: "cube" },
    page: () => import("./projects/ProjectsPage.tsx"),
  },
  {
    path: "/orgs/:orgId/projects/:projectId",
    needs: ["deployments.list"],
    page: () => import("./projects/DeploymentsPage.tsx"),
  },
  {
    path: "/orgs/:orgId/projects/:projectId/docs",
    needs: ["docs.get"],
    page: () => import("./docs/DocsPage.tsx"),
  },
  {
    path: "/orgs/:orgId/projects/:projectId/settings",
    needs: ["projects.update"],
    page: () => import("./projects/ProjectSettingsPage.tsx"),
  },
  {
    path: "/orgs/:orgId/keys",
    needs: ["keys.list"],
    nav: { section: "org", label: "API keys", icon: "key" },
    page: () => import("./keys/KeysPage.tsx"),
  },
  {
    path: "/orgs/:orgId/keys/:keyId",
    needs: ["keys.get"],
    page: () => import("./keys/KeyPage.tsx"),
  },
  {
    path: "/orgs/:orgId/audit",
    needs: ["audit.list"],
    nav: { section: "settings", label: "Audit log", icon: "list" },
    page: () => import("./audit/AuditPage.tsx"),
  },
  {
    path: "/orgs/:orgId/settings",
    needs: ["orgs.update"],
    nav: { section: "settings", label: "Settings", icon: "sliders" },
    page: () => import("./orgs/SettingsPage.tsx"),
  },
]
