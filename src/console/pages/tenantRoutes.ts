import type { Route } from "./routes.ts"

/** The pages for the webhooks, jobs and chats of an org. Those of webhooks are also the portal's. */
export const tenantRoutes: ReadonlyArray<Route> = [
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
    needs: ["jobs.list"],
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
