// The story of clients.test.ts, told by a client that oapi-codegen generates.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"gatehouse.test/story/gatehouse"
	"github.com/oapi-codegen/nullable"
)

var (
	ctx = context.Background()
	url = os.Getenv("GATEHOUSE_URL")
)

func client(token string) *gatehouse.ClientWithResponses {
	bearer := func(_ context.Context, request *http.Request) error {
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		return nil
	}
	made, err := gatehouse.NewClientWithResponses(url, gatehouse.WithRequestEditorFn(bearer))
	return must(made, err)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// body returns the body of an answer that is 200.
func body[T any](value *T) T {
	if value == nil {
		panic(errors.New("not a 200"))
	}
	return *value
}

func ptr[T any](value T) *T { return &value }

// orNull returns what JSON has: the value or null.
func orNull[T any](value nullable.Nullable[T]) any {
	if value.IsSpecified() && !value.IsNull() {
		return value.MustGet()
	}
	return nil
}

func main() {
	unknown := "01KAHBMKZ3D2X7S5QN8W4V6R9T"
	openMode := client("")
	org := body(must(openMode.OrgsCreateWithResponse(ctx, nil, gatehouse.CreateOrg{Name: "Generated"})).JSON200)
	orgKey := body(must(openMode.KeysCreateForOrgWithResponse(ctx, org.OrgId, nil, gatehouse.CreateOrgKey{Name: "backend"})).JSON200)
	asOrg := client(orgKey.Key)

	project := body(must(asOrg.ProjectsCreateWithResponse(ctx, nil, gatehouse.CreateProject{Name: "docs", OrgId: &org.OrgId})).JSON200)
	until := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	created := body(must(asOrg.KeysCreateForProjectWithResponse(ctx, nil, gatehouse.CreateProjectKey{
		Name:        "gateway",
		ProjectId:   project.ProjectId,
		Permissions: &[]string{"docs.*"},
		ExpiresAt:   &until,
		Credits:     &gatehouse.Credits{Remaining: 1_000_000_000_000},
	})).JSON200)
	validated := body(must(asOrg.KeysValidateWithResponse(ctx, gatehouse.ValidateKey{
		Key: created.Key, Permissions: &[]string{"docs.read"}, Cost: ptr(int32(0)), Details: ptr(true),
	})).JSON200)
	updated := body(must(asOrg.KeysUpdateWithResponse(ctx, org.OrgId, created.Id, gatehouse.UpdateKey{
		ExpiresAt: nullable.NewNullNullable[time.Time](),
	})).JSON200)

	var names []string
	for params := (&gatehouse.KeysListParams{Limit: ptr(int32(1))}); ; {
		page := body(must(asOrg.KeysListWithResponse(ctx, org.OrgId, params)).JSON200)
		for _, key := range page.Keys {
			names = append(names, key.Name)
		}
		if page.NextCursor.IsNull() {
			break
		}
		params.Cursor = ptr(page.NextCursor.MustGet())
	}
	slices.Sort(names)

	body(must(asOrg.WebhooksCreateWithResponse(ctx, nil, gatehouse.CreateWebhookEndpoint{
		Url:           os.Getenv("RECEIVER_URL"),
		SigningSecret: ptr("a secret of the story"),
		EventTypes:    nullable.NewNullableWithValue([]string{"invoice.*"}),
	})).JSON200)
	data := map[string]any{"amount": 42, "note": nil}
	event := body(must(asOrg.EventsPublishWithResponse(ctx, nil, gatehouse.PublishEvent{Type: "invoice.paid", Data: data})).JSON200)
	wanted := gatehouse.ListDeliveries{EventId: &event.EventId, State: ptr(gatehouse.ListDeliveriesStateDelivered)}
	var deliveries []gatehouse.Delivery
	for deadline := time.Now().Add(time.Minute); len(deliveries) == 0 && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		deliveries = body(must(asOrg.DeliveriesListWithResponse(ctx, wanted)).JSON200).Deliveries
	}
	delivery := body(must(asOrg.DeliveriesGetWithResponse(ctx, gatehouse.GetDelivery{DeliveryId: deliveries[0].DeliveryId})).JSON200)
	var statuses []any
	for _, attempt := range delivery.AttemptLog {
		statuses = append(statuses, orNull(attempt.Status))
	}
	var payload struct{ Data any }
	must(0, json.Unmarshal([]byte(delivery.Payload), &payload))

	input, result := map[string]any{"pages": []int{1, 2}}, map[string]any{"rows": 3}
	job := body(must(asOrg.JobsCreateWithResponse(ctx, nil, gatehouse.CreateJob{Workflow: "report", Input: ptr[any](input)})).JSON200)
	body(must(asOrg.JobsCompleteWithResponse(ctx, gatehouse.CompleteJob{JobId: job.JobId, Result: ptr[any](result)})).JSON200)
	finished := body(must(asOrg.JobsGetWithResponse(ctx, gatehouse.GetJob{JobId: job.JobId})).JSON200)

	noOrg := must(openMode.OrgsGetWithResponse(ctx, unknown))
	noEndpoint := must(asOrg.WebhooksGetWithResponse(ctx, gatehouse.GetWebhookEndpoint{Id: ptr(unknown)}))
	noType := must(asOrg.EventsPublishWithResponse(ctx, nil, gatehouse.PublishEvent{Type: "in voice", Data: 1}))
	noName := must(openMode.OrgsCreateWithResponse(ctx, nil, gatehouse.CreateOrg{}))
	noKey := must(client("svc_unknown").OrgsGetWithResponse(ctx, org.OrgId))

	fmt.Println(string(must(json.Marshal(map[string]any{
		"project":   []any{project.Name, orNull(project.Subdomain)},
		"validated": []any{validated.Name, validated.Permissions, orNull(validated.Credits), validated.ExpiresAt.MustGet().Equal(until)},
		"cleared":   []any{orNull(updated.ExpiresAt), orNull(updated.ProjectId) == project.ProjectId},
		"keys":      names,
		"delivery":  []any{delivery.Event, delivery.State, delivery.Attempts, orNull(delivery.JobId), statuses, payload.Data},
		"job":       []any{finished.Status, finished.Input, finished.Result, orNull(finished.Error)},
		"errors": []any{
			[]any{noOrg.StatusCode(), noOrg.JSON404.Code},
			[]any{noEndpoint.StatusCode(), noEndpoint.JSON404.Code},
			[]any{noType.StatusCode(), noType.JSON400.Code},
			[]any{noName.StatusCode(), noName.JSON400.Code},
			[]any{noKey.StatusCode(), noKey.JSON401.Code},
		},
	}))))
}
