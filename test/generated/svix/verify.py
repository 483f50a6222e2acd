"""Verifies what standard input has: a secret, and a request's headers and body."""

import json
import sys

from svix.webhooks import Webhook

request = json.load(sys.stdin)
Webhook(request["secret"]).verify(request["body"], request["headers"])
