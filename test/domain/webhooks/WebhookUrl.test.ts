import { assert, describe, it } from "@effect/vitest"
import { urlFault } from "#src/domain/callableUrls.ts"
import { withoutTokens } from "#src/domain/audit/withoutTokens.ts"

describe("urlFault", () => {
  const any = { httpsOnly: false }
  it.each([
    "https://example.com",
    "http://example.com:8080/a?b=c#d",
    "HTTPS://EXAMPLE.COM/",
    "https://пример.рф/хук?тест=да",
    "https://example.com/@user",
    "https://example.com/?a=b@c",
    "http://127.0.0.1:3000/hook",
    "http://[::1]:3000/hook",
    `https://example.com/${"x".repeat(2028)}`,
  ])("accepts %s", (url) => {
    assert.isUndefined(urlFault(url, any))
  })
  it.each([
    ["", "must be an absolute http or https URL"],
    ["/hook", "must be an absolute http or https URL"],
    ["//example.com/hook", "must be an absolute http or https URL"],
    ["example.com", "must be an absolute http or https URL"],
    ["http:example.com", "must be an absolute http or https URL"],
    ["http:/example.com", "must be an absolute http or https URL"],
    ["http:///example.com", "must be an absolute http or https URL"],
    ["http:\\\\example.com", "must be an absolute http or https URL"],
    ["http://", "must be an absolute http or https URL"],
    ["http://?a", "must be an absolute http or https URL"],
    ["http://exa mple.com", "must be a URL without white space or control characters"],
    [" https://example.com", "must be a URL without white space or control characters"],
    ["https://example.com/\n", "must be a URL without white space or control characters"],
    ["https://example.com/\0", "must be a URL without white space or control characters"],
    ["https://example.com/\uD800", "must be a URL without white space or control characters"],
    ["http://example.com:99999", "must be an absolute http or https URL"],
    ["http://[::1", "must be an absolute http or https URL"],
    ["http://[fe80::1%25eth0]/", "must be an absolute http or https URL"],
    ["http://256.1.1.1/", "must be an absolute http or https URL"],
    ["http://1.2.3.4.5/", "must be an absolute http or https URL"],
    ["ftp://example.com", "must be an absolute http or https URL"],
    ["file:///etc/passwd", "must be an absolute http or https URL"],
    ["gopher://127.0.0.1:6379/_", "must be an absolute http or https URL"],
    ["javascript:alert(1)", "must be an absolute http or https URL"],
    ["data:text/plain,x", "must be an absolute http or https URL"],
    ["https://user:password@example.com", "must have no user name or password in it"],
    ["https://user@example.com", "must have no user name or password in it"],
    ["https://@example.com", "must have no user name or password in it"],
    ["https://example.com@127.0.0.1/", "must have no user name or password in it"],
    [`https://example.com/${"x".repeat(2029)}`, "must be at most 2,048 characters"],
  ])("refuses %j", (url, fault) => {
    assert.strictEqual(urlFault(url, any), fault)
  })
  it("refuses http where https is required", () => {
    assert.strictEqual(urlFault("http://example.com", { httpsOnly: true }), "must be an https URL")
    assert.strictEqual(urlFault("ftp://example.com", { httpsOnly: true }), "must be an absolute https URL")
    assert.isUndefined(urlFault("HTTPS://example.com", { httpsOnly: true }))
  })
})

describe("withoutTokens", () => {
  // Seen failing with the first two: everything of 16 characters was hidden.
  it.each([
    "/hooks/gatehouse-production/invoice.paid",
    "/webhooks/internal_billing/v2/customers-2026",
    "/API/Gatehouse/callback",
    "/",
  ])("shows words: %s", (path) => {
    assert.strictEqual(withoutTokens(`https://example.com${path}`), `https://example.com${path}`)
  })
  it.each([
    ["/services/T024BE7LD/B01AAFR3X/Zq8xKLm2VtYwPn4uHsRcDfGj", "/services/T024…/B01A…/Zq8x…"],
    ["/in/9007199254740993", "/in/9007…"],
    ["/in/4929-1234-5678-9012", "/in/4929…"],
    ["/in/deadbeef01", "/in/dead…"],
    ["/in/qzxkvbnmwrtp", "/in/qzxk…"],
    ["/in/aBcDeFgHiJkL", "/in/aBcD…"],
    ["/in/s3cret", "/in/…"],
    [`/in/${"word-".repeat(20)}`, "/in/word…"],
    ["/in/%D1%85%D1%83%D0%BA", "/in/%D1%…"],
    ["/in?token=abc", "/in?…"],
  ])("cuts what may be a token: %s", (path, shown) => {
    assert.strictEqual(withoutTokens(`https://example.com${path}`), `https://example.com${shown}`)
  })
})
