//! The story of clients.test.ts, told by a client that openapi-generator generates.

use gatehouse::apis::configuration::Configuration;
use gatehouse::apis::{
    api_keys_api::*, deliveries_api::*, events_api::*, jobs_api::*, orgs_api::*, projects_api::*,
    webhook_endpoints_api::*, Error,
};
use gatehouse::models::*;
use serde_json::{json, Value};
use std::fmt::Debug;
use std::time::{Duration, Instant};

const UNKNOWN: &str = "01KAHBMKZ3D2X7S5QN8W4V6R9T";

fn client(token: Option<&str>) -> Configuration {
    Configuration {
        base_path: std::env::var("GATEHOUSE_URL").unwrap(),
        bearer_access_token: token.map(str::to_owned),
        ..Configuration::default()
    }
}

/// The status of an answer, and the code of its typed error, which is one of that status.
fn failure<T: Debug, E: Debug>(answer: Result<T, Error<E>>) -> Value {
    let Err(Error::ResponseError(response)) = answer else { panic!("{answer:?}") };
    let entity = format!("{:?}", response.entity.unwrap());
    let status = response.status.as_u16();
    assert!(entity.starts_with(&format!("Status{status}(")), "{entity}");
    let body: Value = serde_json::from_str(&response.content).unwrap();
    json!([status, body["code"]])
}

async fn story() -> Value {
    let open_mode = client(None);
    let org = orgs_create(&open_mode, CreateOrg::new("Generated".into()), None).await.unwrap();
    let backend = CreateOrgKey::new("backend".into());
    let org_key = keys_create_for_org(&open_mode, &org.org_id, backend, None).await.unwrap();
    let as_org = client(Some(&org_key.key));

    let docs = CreateProject { org_id: Some(org.org_id.clone()), ..CreateProject::new("docs".into()) };
    let project = projects_create(&as_org, docs, None).await.unwrap();
    let until = chrono::DateTime::parse_from_rfc3339("2100-01-01T00:00:00Z").unwrap();
    let gateway = CreateProjectKey {
        permissions: Some(vec!["docs.*".into()]),
        expires_at: Some(until),
        credits: Some(Box::new(Credits::new(1_000_000_000_000))),
        ..CreateProjectKey::new("gateway".into(), project.project_id.clone())
    };
    let created = keys_create_for_project(&as_org, gateway, None).await.unwrap();
    let validate = ValidateKey {
        permissions: Some(vec!["docs.read".into()]),
        cost: Some(0),
        details: Some(true),
        ..ValidateKey::new(created.key)
    };
    let validated = keys_validate(&as_org, validate).await.unwrap();
    let never = UpdateKey { expires_at: Some(None), ..UpdateKey::new() };
    let updated = keys_update(&as_org, &org.org_id, &created.id, never).await.unwrap();

    let mut names = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = keys_list(&as_org, &org.org_id, Some(1), cursor.as_deref(), None, None, None, None, None, None).await.unwrap();
        names.extend(page.keys.into_iter().map(|key| key.name));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    names.sort();

    let endpoint = CreateWebhookEndpoint {
        signing_secret: Some("a secret of the story".into()),
        event_types: Some(Some(vec!["invoice.*".into()])),
        ..CreateWebhookEndpoint::new(std::env::var("RECEIVER_URL").unwrap())
    };
    webhooks_create(&as_org, endpoint, None).await.unwrap();
    let paid = PublishEvent::new("invoice.paid".into(), Some(json!({ "amount": 42, "note": null })));
    let event = events_publish(&as_org, paid, None).await.unwrap();
    let wanted = ListDeliveries {
        event_id: Some(event.event_id),
        state: Some(list_deliveries::State::Delivered),
        ..ListDeliveries::new()
    };
    let begun = Instant::now();
    let mut found = deliveries_list(&as_org, wanted.clone()).await.unwrap().deliveries;
    while found.is_empty() && begun.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        found = deliveries_list(&as_org, wanted.clone()).await.unwrap().deliveries;
    }
    let delivery = deliveries_get(&as_org, GetDelivery::new(found[0].delivery_id.clone())).await.unwrap();
    let statuses: Vec<_> = delivery.attempt_log.iter().map(|attempt| attempt.status).collect();
    let payload: Value = serde_json::from_str(&delivery.payload).unwrap();

    let report = CreateJob { input: Some(Some(json!({ "pages": [1, 2] }))), ..CreateJob::new("report".into()) };
    let job = jobs_create(&as_org, report, None).await.unwrap();
    let rows = CompleteJob { result: Some(Some(json!({ "rows": 3 }))), ..CompleteJob::new(job.job_id.clone()) };
    jobs_complete(&as_org, rows).await.unwrap();
    let finished = jobs_get(&as_org, GetJob::new(job.job_id)).await.unwrap();

    let invoice = PublishEvent::new("in voice".into(), Some(json!(1)));
    let stranger = client(Some("svc_unknown"));
    let errors = [
        failure(orgs_get(&open_mode, UNKNOWN).await),
        failure(webhooks_get(&as_org, GetWebhookEndpoint { id: Some(UNKNOWN.into()), ..GetWebhookEndpoint::new() }).await),
        failure(events_publish(&as_org, invoice, None).await),
        failure(orgs_create(&open_mode, CreateOrg::new(String::new()), None).await),
        failure(orgs_get(&stranger, &org.org_id).await),
    ];
    json!({
        "project": [project.name, project.subdomain],
        "validated": [validated.name, validated.permissions, validated.credits, validated.expires_at == Some(Some(until))],
        "cleared": [updated.expires_at, updated.project_id == Some(project.project_id)],
        "keys": names,
        "delivery": [delivery.event, delivery.state, delivery.attempts, delivery.job_id, statuses, payload["data"]],
        "job": [finished.status, finished.input, finished.result, finished.error],
        "errors": errors,
    })
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!("{}", runtime.block_on(story()));
}
