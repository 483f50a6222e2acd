import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { AllowedIps, AllowedNetworks } from "#src/domain/keys/AllowedIps.ts"
import { networkOf } from "#src/domain/clientNetworks.ts"

describe("allowed addresses", () => {
  it("are addresses and networks without host bits, 1 to 100 of them", () => {
    const isValid = Schema.is(AllowedIps)
    for (const one of ["203.0.113.7", "10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32", "::1", "::ffff:10.0.0.1"]) {
      assert.isTrue(isValid([one]), one)
    }
    for (const bad of ["", "a", "1.2.3", "1.2.3.4/33", "10.0.0.1/8", "::1/64", "::/129", "fe80::1%eth0", "1.2.3.4/"]) {
      assert.isFalse(isValid([bad]), bad)
    }
    assert.isFalse(isValid([]))
    assert.isTrue(isValid(Array.from({ length: 100 }, () => "::1")))
    assert.isFalse(isValid(Array.from({ length: 101 }, () => "::1")))
  })

  it("admit clients as proxies write them: ports, brackets and zones do not count", () => {
    const networks = new AllowedNetworks(["203.0.113.0/24", "2001:db8::/32", "fe80::/10"])
    const inside = ["203.0.113.7:50123", " 203.0.113.7 ", "[203.0.113.7]:1", "[::ffff:203.0.113.7]:443"]
    for (const ip of [...inside, "[2001:db8::1]", "[2001:db8::1]:443", "fe80::1%eth0", "[fe80::1%25eth0]:443"]) {
      assert.isTrue(networks.has(ip), ip)
    }
    for (const ip of [
      "198.51.100.7:50123",
      "[2001:db9::1]:443",
      "unknown",
      "_hidden",
      "203.0.113.7, 203.0.113.8",
      "[]",
    ]) {
      assert.isFalse(networks.has(ip), ip)
    }
    assert.isFalse(networks.has(`203.0.113.7${" ".repeat(100_000)}`))
    for (const ip of ["198.51.100.7:1", "::ffff:198.51.100.7", "[::FFFF:c633:6407]:2"]) {
      assert.strictEqual(networkOf(ip), "198.51.100.7")
    }
    assert.strictEqual(networkOf("[2001:db8:0:1:2::3%eth0]:443"), "2001:db8:0:1::/64")
  })

  it("an IPv4-mapped network is its IPv4 network", () => {
    const networks = new AllowedNetworks(["::ffff:203.0.113.0/120", "::ffff:198.51.100.7/128"])
    for (const ip of ["203.0.113.0", "203.0.113.255", "::ffff:203.0.113.9", "198.51.100.7"]) {
      assert.isTrue(networks.has(ip), ip)
    }
    for (const ip of ["203.0.112.255", "203.0.114.0", "198.51.100.8", "::1"]) assert.isFalse(networks.has(ip), ip)
    assert.isTrue(new AllowedNetworks(["::ffff:0:0/96"]).has("8.8.8.8"))
  })

  it("admit their first and last address and nothing beside them, whatever the notation", () => {
    const networks = new AllowedNetworks(["10.1.0.0/16", "2001:db8::/33", "::ffff:192.0.2.1", "198.51.100.0/31"])
    const inside = ["10.1.0.0", "10.1.255.255", "::ffff:10.1.0.0", "::ffff:a01:1", "2001:DB8:0:0::1", "192.0.2.1"]
    for (const ip of [...inside, "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", "198.51.100.1"]) {
      assert.isTrue(networks.has(ip), ip)
    }
    const outside = ["10.0.255.255", "10.2.0.0", "2001:db8:8000::", "2001:db7:ffff::", "192.0.2.2", "198.51.100.2"]
    for (const ip of [...outside, "::10.1.0.1", "64:ff9b::10.1.0.1", "", "x", undefined]) {
      assert.isFalse(networks.has(ip), `${ip}`)
    }
    assert.isTrue(new AllowedNetworks(["0.0.0.0/0"]).has("8.8.8.8"))
    assert.isFalse(new AllowedNetworks(["0.0.0.0/0"]).has("2001:db8::1"))
  })
})
