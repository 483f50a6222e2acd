import com.fasterxml.jackson.databind.ObjectMapper;
import gatehouse.ApiClient;
import gatehouse.ApiException;
import gatehouse.api.*;
import gatehouse.model.*;
import gatehouse.model.Error;
import java.time.OffsetDateTime;
import java.util.*;

/** The story of clients.test.ts, told by a client that openapi-generator generates. */
public class Story {
  static final String unknown = "01KAHBMKZ3D2X7S5QN8W4V6R9T";
  static final ObjectMapper json = new ObjectMapper();
  static final ObjectMapper errors = ApiClient.createDefaultObjectMapper();

  interface Call {
    Object run() throws ApiException;
  }

  static ApiClient client(String token) {
    var client = new ApiClient();
    client.updateBaseUri(System.getenv("GATEHOUSE_URL"));
    if (token != null) client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + token));
    return client;
  }

  /** The status of an answer, and the code of its typed error. */
  static List<Object> platformFailure(Call call) throws Exception {
    var failed = failed(call);
    return List.of(failed.getCode(), errors.readValue(failed.getResponseBody(), Error.class).getCode());
  }

  static List<Object> webhookFailure(Call call) throws Exception {
    var failed = failed(call);
    return List.of(failed.getCode(), errors.readValue(failed.getResponseBody(), V1Error.class).getCode());
  }

  static ApiException failed(Call call) {
    try {
      throw new IllegalStateException("not an error: " + call.run());
    } catch (ApiException error) {
      return error;
    }
  }

  public static void main(String[] arguments) throws Exception {
    var openMode = client(null);
    var orgs = new OrgsApi(openMode);
    var org = orgs.orgsCreate(new CreateOrg().name("Generated"), null);
    var orgId = org.getOrgId();
    var orgKey = new ApiKeysApi(openMode).keysCreateForOrg(orgId, new CreateOrgKey().name("backend"), null);
    var asOrg = client(orgKey.getKey());

    var project = new ProjectsApi(asOrg).projectsCreate(new CreateProject().name("docs").orgId(orgId), null);
    var keys = new ApiKeysApi(asOrg);
    var until = OffsetDateTime.parse("2100-01-01T00:00:00Z");
    var credits = new Credits().remaining(1_000_000_000_000L);
    var gateway = new CreateProjectKey().name("gateway").projectId(project.getProjectId()).expiresAt(until).credits(credits);
    var created = keys.keysCreateForProject(gateway.permissions(List.of("docs.*")), null);
    var validate = new ValidateKey().key(created.getKey()).permissions(List.of("docs.read")).cost(0).details(true);
    var validated = keys.keysValidate(validate);
    var updated = keys.keysUpdate(orgId, created.getId(), new UpdateKey().expiresAt(null));

    var names = new TreeSet<String>();
    String cursor = null;
    do {
      var page = keys.keysList(orgId, 1, cursor, null, null, null, null, null, null);
      page.getKeys().forEach(key -> names.add(key.getName()));
      cursor = page.getNextCursor();
    } while (cursor != null);

    var endpoint = new CreateWebhookEndpoint().url(System.getenv("RECEIVER_URL")).signingSecret("a secret of the story");
    new WebhookEndpointsApi(asOrg).webhooksCreate(endpoint.eventTypes(List.of("invoice.*")), null);
    var data = new HashMap<String, Object>();
    data.put("amount", 42);
    data.put("note", null);
    var events = new EventsApi(asOrg);
    var event = events.eventsPublish(new PublishEvent().type("invoice.paid").data(data), null);
    var deliveries = new DeliveriesApi(asOrg);
    var wanted = new ListDeliveries().eventId(event.getEventId()).state(ListDeliveries.StateEnum.DELIVERED);
    var found = deliveries.deliveriesList(wanted).getDeliveries();
    for (var deadline = System.nanoTime() + 60_000_000_000L; found.isEmpty() && System.nanoTime() < deadline; ) {
      Thread.sleep(100);
      found = deliveries.deliveriesList(wanted).getDeliveries();
    }
    var delivery = deliveries.deliveriesGet(new GetDelivery().deliveryId(found.get(0).getDeliveryId()));
    var statuses = delivery.getAttemptLog().stream().map(DeliveryAttempt::getStatus).toList();

    var jobs = new JobsApi(asOrg);
    var job = jobs.jobsCreate(new CreateJob().workflow("report").input(Map.of("pages", List.of(1, 2))), null);
    jobs.jobsComplete(new CompleteJob().jobId(job.getJobId()).result(Map.of("rows", 3)));
    var finished = jobs.jobsGet(new GetJob().jobId(job.getJobId()));

    var story = new LinkedHashMap<String, Object>();
    story.put("project", Arrays.asList(project.getName(), project.getSubdomain()));
    story.put("validated", List.of(validated.getName(), validated.getPermissions(), validated.getCredits(), until.isEqual(validated.getExpiresAt())));
    story.put("cleared", Arrays.asList(updated.getExpiresAt(), project.getProjectId().equals(updated.getProjectId())));
    story.put("keys", names);
    story.put("delivery", Arrays.asList(delivery.getEvent(), delivery.getState(), delivery.getAttempts(), delivery.getJobId(), statuses, json.readTree(delivery.getPayload()).get("data")));
    story.put("job", Arrays.asList(finished.getStatus(), finished.getInput(), finished.getResult(), finished.getError()));
    story.put("errors", List.of(
        platformFailure(() -> orgs.orgsGet(unknown)),
        webhookFailure(() -> new WebhookEndpointsApi(asOrg).webhooksGet(new GetWebhookEndpoint().id(unknown))),
        webhookFailure(() -> events.eventsPublish(new PublishEvent().type("in voice").data(1), null)),
        platformFailure(() -> orgs.orgsCreate(new CreateOrg().name(""), null)),
        platformFailure(() -> new OrgsApi(client("svc_unknown")).orgsGet(orgId))));
    System.out.println(json.writeValueAsString(story));
  }
}
