import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Alert, CreatedAlert, CreateAlert, TestedAlert, UpdateAlert } from "../../domain/alerts/Alert.ts"
import { Forbidden, LimitReached, NotFound } from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { AlertId, OrgId } from "../../domain/Schemas.ts"
import { Deleted, noFields } from "./responses.ts"
import { access, Authorization, Idempotent } from "./access.ts"

const AlertPage = Schema.Struct({
  alerts: Schema.Array(Alert).annotate({ description: "The alerts of this page, the oldest first." }),
  nextCursor: NextCursor,
}).annotate({ identifier: "AlertPage" })

const error = [Forbidden, NotFound]
const list = { query: pageQuery, success: AlertPage, error }
const create = { payload: CreateAlert, success: CreatedAlert, error: [...error, LimitReached] }
const update = { payload: UpdateAlert, success: Alert, error: [...error, LimitReached] }
const remove = { success: Deleted, error }
const test = { payload: noFields, success: TestedAlert, error }

const listed = "With their state, without the urls of their targets."
const created =
  "Tells a target when what it watches is wrong, and that it is well again. A webhook gets a signing secret, which only this " +
  "answer has. Test it then."
const updated = "What it watches and its target stay, and so do absent fields. The next look is at once."
const removed = "It sends no more messages."
const tested = "Sends a test to the target, and says why it was not reached within 15 seconds. 10 a minute."

const org = { orgId: OrgId }
const one = { orgId: OrgId, id: AlertId }
const { read, manage } = access.management
const alerts = "/api/v0/orgs/:orgId/alerts"

/** The alerts of an org. */
export class AlertsGroup extends HttpApiGroup.make("alerts")
  .add(
    HttpApiEndpoint.get("list", alerts, { params: org, ...list }).annotateMerge(
      read("List the alerts of an org", listed),
    ),
    HttpApiEndpoint.post("create", alerts, { params: org, ...create })
      .middleware(Idempotent)
      .annotateMerge(manage("Create an alert of an org", created)),
    HttpApiEndpoint.patch("update", `${alerts}/:id`, { params: one, ...update }).annotateMerge(
      manage("Change an alert of an org", updated),
    ),
    HttpApiEndpoint.delete("remove", `${alerts}/:id`, { params: one, ...remove }).annotateMerge(
      manage("Delete an alert of an org", removed),
    ),
    HttpApiEndpoint.post("test", `${alerts}/:id/test`, { params: one, ...test }).annotateMerge(
      manage("Test an alert of an org", tested),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Alerts", description: "Who is notified when something is wrong." })) {}

const id = { id: AlertId }
const { administer, oversee } = access.administrator

/** The alerts of the administrator, which watch every org. */
export class ServiceAlertsGroup extends HttpApiGroup.make("serviceAlerts")
  .add(
    HttpApiEndpoint.get("list", "/api/v0/alerts", list).annotateMerge(
      oversee("List the alerts of the administrator", listed),
    ),
    HttpApiEndpoint.post("create", "/api/v0/alerts", create)
      .middleware(Idempotent)
      .annotateMerge(administer("Create an alert of the administrator", `It watches every org. ${created}`)),
    HttpApiEndpoint.patch("update", "/api/v0/alerts/:id", { params: id, ...update }).annotateMerge(
      administer("Change an alert of the administrator", updated),
    ),
    HttpApiEndpoint.delete("remove", "/api/v0/alerts/:id", { params: id, ...remove }).annotateMerge(
      administer("Delete an alert of the administrator", removed),
    ),
    HttpApiEndpoint.post("test", "/api/v0/alerts/:id/test", { params: id, ...test }).annotateMerge(
      administer("Test an alert of the administrator", tested),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Alerts of the administrator", description: "Alerts that watch every org." }),
  ) {}
