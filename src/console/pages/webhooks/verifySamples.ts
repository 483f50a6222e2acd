/** What stands for the secret in each sample: the name of a variable of the environment. */
export const secretVariable = "WEBHOOK_SECRET"

const javascript = `import { createHmac, timingSafeEqual } from "node:crypto"

const key = Buffer.from(process.env.WEBHOOK_SECRET.slice(6), "base64")

// id, timestamp, signatures: the headers webhook-id, webhook-timestamp and webhook-signature.
// body: the raw bytes of the request, before you parse them.
export const isGenuine = (id, timestamp, signatures, body) => {
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= 300)) return false
  const hmac = createHmac("sha256", key).update(\`\${id}.\${timestamp}.\`).update(body)
  const wanted = Buffer.from("v1," + hmac.digest("base64"))
  return signatures.split(" ").some((one) => {
    const given = Buffer.from(one)
    return given.length === wanted.length && timingSafeEqual(given, wanted)
  })
}`

const python = `import base64
import hmac
import os
import time

key = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))


# webhook_id, timestamp, signatures: the headers webhook-id, webhook-timestamp and webhook-signature.
# body: the raw bytes of the request, before you parse them.
def is_genuine(webhook_id: str, timestamp: str, signatures: str, body: bytes) -> bool:
    if not timestamp.isdecimal() or len(timestamp) > 12 or abs(time.time() - int(timestamp)) > 300:
        return False
    digest = hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + body, "sha256")
    wanted = b"v1," + base64.b64encode(digest)
    return any(hmac.compare_digest(wanted, one) for one in signatures.encode().split(b" "))`

const go = `package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// IsGenuine takes the headers webhook-id, webhook-timestamp and webhook-signature, and the raw body.
func IsGenuine(id, timestamp, signatures string, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	if err != nil || len(key) == 0 {
		panic("set WEBHOOK_SECRET")
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || math.Abs(float64(time.Now().Unix()-seconds)) > 300 {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	wanted := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for _, one := range strings.Fields(signatures) {
		if hmac.Equal([]byte(one), wanted) {
			return true
		}
	}
	return false
}`

const ruby = `require "openssl"

KEY = ENV.fetch("WEBHOOK_SECRET").delete_prefix("whsec_").unpack1("m0")

# id, timestamp, signatures: the headers webhook-id, webhook-timestamp and webhook-signature.
# body: the raw bytes of the request, before you parse them.
def genuine?(id, timestamp, signatures, body)
  return false unless timestamp.match?(/\\A\\d{1,12}\\z/) && (Time.now.to_i - timestamp.to_i).abs <= 300
  digest = OpenSSL::HMAC.digest("SHA256", KEY, "#{id}.#{timestamp}.".b + body.b)
  wanted = "v1," + [digest].pack("m0")
  signatures.split(" ").any? { |one| OpenSSL.secure_compare(one, wanted) }
end`

const php = `<?php
// $id, $timestamp, $signatures: the headers webhook-id, webhook-timestamp and webhook-signature.
// $body: file_get_contents("php://input"), before you parse it.
function is_genuine(string $id, string $timestamp, string $signatures, string $body): bool
{
    $key = base64_decode(substr(getenv("WEBHOOK_SECRET"), 6), true);
    if (!preg_match('/^\\d{1,12}$/D', $timestamp) || abs(time() - (int) $timestamp) > 300) {
        return false;
    }
    $wanted = "v1," . base64_encode(hash_hmac("sha256", "$id.$timestamp.$body", $key, true));
    foreach (explode(" ", $signatures) as $one) {
        if (hash_equals($wanted, $one)) {
            return true;
        }
    }
    return false;
}`

const java = `import java.security.MessageDigest;
import java.time.Instant;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

class Webhooks {
    /** Takes the headers webhook-id, webhook-timestamp and webhook-signature, and the raw body. */
    static boolean isGenuine(String id, String timestamp, String signatures, byte[] body) throws Exception {
        byte[] key = Base64.getDecoder().decode(System.getenv("WEBHOOK_SECRET").substring(6));
        if (!timestamp.matches("\\\\d{1,12}")) return false;
        if (Math.abs(Instant.now().getEpochSecond() - Long.parseLong(timestamp)) > 300) return false;
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes("UTF-8"));
        byte[] wanted = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes("UTF-8");
        for (String one : signatures.split(" ")) {
            if (MessageDigest.isEqual(one.getBytes("UTF-8"), wanted)) return true;
        }
        return false;
    }
}`

const csharp = `using System.Security.Cryptography;
using System.Text;

static class Webhooks
{
    /// Takes the headers webhook-id, webhook-timestamp and webhook-signature, and the raw body.
    public static bool IsGenuine(string id, string timestamp, string signatures, byte[] body)
    {
        var key = Convert.FromBase64String(Environment.GetEnvironmentVariable("WEBHOOK_SECRET")![6..]);
        if (!long.TryParse(timestamp, out var seconds)) return false;
        if (Math.Abs(DateTimeOffset.UtcNow.ToUnixTimeSeconds() - seconds) > 300) return false;
        byte[] content = [.. Encoding.UTF8.GetBytes($"{id}.{timestamp}."), .. body];
        var wanted = Encoding.UTF8.GetBytes("v1," + Convert.ToBase64String(HMACSHA256.HashData(key, content)));
        return signatures.Split(' ').Any(one =>
            CryptographicOperations.FixedTimeEquals(Encoding.UTF8.GetBytes(one), wanted));
    }
}`

const rust = `// Cargo.toml: base64 = "0.22", hmac = "0.12", sha2 = "0.10"
use base64::{engine::general_purpose::STANDARD, Engine};
use hmac::{Hmac, Mac};
use std::time::{SystemTime, UNIX_EPOCH};

/// Takes the headers webhook-id, webhook-timestamp and webhook-signature, and the raw body.
pub fn is_genuine(id: &str, timestamp: &str, signatures: &str, body: &[u8]) -> bool {
    let secret = std::env::var("WEBHOOK_SECRET").expect("set WEBHOOK_SECRET");
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).expect("whsec_ and base64");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    if !timestamp.parse::<u64>().is_ok_and(|seconds| now.abs_diff(seconds) <= 300) {
        return false;
    }
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    signatures.split(' ').filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok())
        .any(|given| mac.clone().verify_slice(&given).is_ok())
}`

/** Code that verifies a webhook, in each language. The secret is one that the console makes: whsec_ and base64. */
export const verifySamples = {
  JavaScript: javascript,
  Python: python,
  Go: go,
  Ruby: ruby,
  PHP: php,
  Java: java,
  "C#": csharp,
  Rust: rust,
} as const
export type SampleLanguage = keyof typeof verifySamples
