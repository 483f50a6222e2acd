package main

import (
	"encoding/json"
	"net/http"
	"os"

	svix "github.com/svix/svix-webhooks/go"
)

// Verifies what standard input has: a secret, and a request's headers and body.
func main() {
	var request struct {
		Secret  string            `json:"secret"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		panic(err)
	}
	webhook, err := svix.NewWebhook(request.Secret)
	if err != nil {
		panic(err)
	}
	headers := http.Header{}
	for name, value := range request.Headers {
		headers.Set(name, value)
	}
	if err := webhook.Verify([]byte(request.Body), headers); err != nil {
		panic(err)
	}
}
