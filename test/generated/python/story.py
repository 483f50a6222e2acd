"""The story of clients.test.ts, told by a client that openapi-python-client generates."""

import json
import os
import time
from datetime import datetime, timezone

from gatehouse import AuthenticatedClient, Client
from gatehouse.api.api_keys import keys_create_for_org, keys_create_for_project, keys_list, keys_update, keys_validate
from gatehouse.api.deliveries import deliveries_get, deliveries_list
from gatehouse.api.events import events_publish
from gatehouse.api.jobs import jobs_complete, jobs_create, jobs_get
from gatehouse.api.orgs import orgs_create, orgs_get
from gatehouse.api.projects import projects_create
from gatehouse.api.webhook_endpoints import webhooks_create, webhooks_get
from gatehouse.models import (
    CompleteJob, CreateJob, CreateOrg, CreateOrgKey, CreateProject, CreateProjectKey, CreateWebhookEndpoint, Credits,
    GetDelivery, GetJob, GetWebhookEndpoint, ListDeliveries, ListDeliveriesState, PublishEvent, UpdateKey,
    ValidateKey,
)

url = os.environ["GATEHOUSE_URL"]
unknown = "01KAHBMKZ3D2X7S5QN8W4V6R9T"
open_mode = Client(base_url=url)

org = orgs_create.sync(client=open_mode, body=CreateOrg(name="Generated"))
org_key = keys_create_for_org.sync(org.org_id, client=open_mode, body=CreateOrgKey(name="backend"))
as_org = AuthenticatedClient(base_url=url, token=org_key.key)

project = projects_create.sync(client=as_org, body=CreateProject(name="docs", org_id=org.org_id))
until = datetime(2100, 1, 1, tzinfo=timezone.utc)
created = keys_create_for_project.sync(
    client=as_org,
    body=CreateProjectKey(
        name="gateway",
        project_id=project.project_id,
        permissions=["docs.*"],
        expires_at=until,
        credits_=Credits(remaining=1_000_000_000_000),
    ),
)
validated = keys_validate.sync(
    client=as_org,
    body=ValidateKey(key=created.key, permissions=["docs.read"], cost=0, details=True),
)
updated = keys_update.sync(org.org_id, created.id, client=as_org, body=UpdateKey(expires_at=None))

names, cursor = [], None
while True:
    more = {} if cursor is None else {"cursor": cursor}
    page = keys_list.sync(org.org_id, client=as_org, limit=1, **more)
    names += [key.name for key in page.keys]
    cursor = page.next_cursor
    if cursor is None:
        break

endpoint = webhooks_create.sync(
    client=as_org,
    body=CreateWebhookEndpoint(
        url=os.environ["RECEIVER_URL"], signing_secret="a secret of the story", event_types=["invoice.*"]
    ),
)
event = events_publish.sync(client=as_org, body=PublishEvent(type_="invoice.paid", data={"amount": 42, "note": None}))
wanted = ListDeliveries(event_id=event.event_id, state=ListDeliveriesState.DELIVERED)
deadline = time.monotonic() + 60
while not (deliveries := deliveries_list.sync(client=as_org, body=wanted).deliveries) and time.monotonic() < deadline:
    time.sleep(0.1)
delivery = deliveries_get.sync(client=as_org, body=GetDelivery(delivery_id=deliveries[0].delivery_id))

job = jobs_create.sync(client=as_org, body=CreateJob(workflow="report", input_={"pages": [1, 2]}))
jobs_complete.sync(client=as_org, body=CompleteJob(job_id=job.job_id, result={"rows": 3}))
finished = jobs_get.sync(client=as_org, body=GetJob(job_id=job.job_id))


def failure(answer):
    """The status of an answer, and the code of its typed error, which is one of that status."""
    codes = {400: "invalid_request", 401: "unauthorized", 404: "not_found"}
    assert answer.parsed.code == codes[answer.status_code.value], answer
    return [answer.status_code.value, answer.parsed.code]


stranger = AuthenticatedClient(base_url=url, token="svc_unknown")
errors = [
    failure(orgs_get.sync_detailed(unknown, client=open_mode)),
    failure(webhooks_get.sync_detailed(client=as_org, body=GetWebhookEndpoint(id=unknown))),
    failure(events_publish.sync_detailed(client=as_org, body=PublishEvent(type_="in voice", data=1))),
    failure(orgs_create.sync_detailed(client=open_mode, body=CreateOrg(name=""))),
    failure(orgs_get.sync_detailed(org.org_id, client=stranger)),
]

print(json.dumps({
    "project": [project.name, project.subdomain],
    "validated": [validated.name, validated.permissions, validated.credits_, validated.expires_at == until],
    "cleared": [updated.expires_at, updated.project_id == project.project_id],
    "keys": sorted(names),
    "delivery": [delivery.event, delivery.state, delivery.attempts, delivery.job_id,
                 [attempt.status for attempt in delivery.attempt_log], json.loads(delivery.payload)["data"]],
    "job": [finished.status, finished.input_, finished.result, finished.error],
    "errors": errors,
}))
