import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { isIP } from "node:net"
import { addressFault, mayCall, urlFault } from "#src/domain/callableUrls.ts"

const guarded = { allowPrivateNetworks: false }
const open = { allowPrivateNetworks: true }

/** Refused in guarded mode only. */
const privateAddresses = [
  "10.0.0.0",
  "10.255.255.255",
  "172.16.0.1",
  "172.31.255.255",
  "192.168.1.1",
  "100.64.0.1",
  "100.127.255.255",
  "127.0.0.1",
  "127.255.255.254",
  "::1",
  "0:0:0:0:0:0:0:1",
  "fc00::1",
  "fd12:3456:789a::1",
  "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
]

/** Refused in both modes. */
const specialAddresses = [
  "0.0.0.0",
  "0.1.2.3",
  "169.254.169.254",
  "169.254.0.1",
  "192.0.0.1",
  "192.0.0.192",
  "192.0.2.1",
  "192.31.196.1",
  "192.52.193.1",
  "192.88.99.1",
  "192.175.48.1",
  "198.18.0.1",
  "198.19.255.255",
  "198.51.100.7",
  "203.0.113.7",
  "224.0.0.1",
  "239.255.255.255",
  "240.0.0.1",
  "255.255.255.255",
  "100.100.100.200",
  "168.63.129.16",
  "fd00:ec2::254",
  "fd20:ce::254",
  "::",
  "::7f00:1",
  "::127.0.0.1",
  "::ffff:127.0.0.1",
  "::ffff:7f00:1",
  "::FFFF:8.8.8.8",
  "0:0:0:0:0:ffff:0a00:0001",
  "::ffff:0:127.0.0.1",
  "64:ff9b::127.0.0.1",
  "64:ff9b::808:808",
  "64:ff9b:1::1",
  "100::1",
  "100:0:0:1::1",
  "2001::1",
  "2001:0:4136:e378:8000:63bf:3fff:fdd2",
  "2001:2::1",
  "2001:10::1",
  "2001:20::1",
  "2001:db8::1",
  "2002:7f00:1::",
  "2002:0808:0808::1",
  "2620:4f:8000::1",
  "3ffe::1",
  "3fff::1",
  "3fff:fff::1",
  "4000::1",
  "5f00::1",
  "fe80::1",
  "febf::1",
  "fec0::1",
  "ff02::1",
  "ff0e::1",
]

const publicAddresses = [
  "1.1.1.1",
  "8.8.8.8",
  "9.255.255.255",
  "11.0.0.0",
  "100.63.255.255",
  "100.128.0.0",
  "126.255.255.255",
  "128.0.0.0",
  "168.63.129.17",
  "169.253.255.255",
  "172.15.255.255",
  "172.32.0.0",
  "192.0.1.0",
  "192.167.255.255",
  "198.17.255.255",
  "198.20.0.0",
  "223.255.255.255",
  "2001:200::1",
  "2001:4860:4860::8888",
  "2003::1",
  "2606:4700:4700::1111",
  "2a00:1450:4001::1",
  "3ffd::1",
]

/**
 * Not in the one notation that `mayCall` accepts. All are refused, because other programs may read them as addresses.
 */
const noAddresses = [
  "",
  "localhost",
  "8.8.8.8.",
  "8.8.8",
  "08.8.8.8",
  "0x8.8.8.8",
  "134744072",
  "8.8.8.256",
  " 8.8.8.8",
  "8.8.8.8\0",
  "８.8.8.8",
  "[2606:4700:4700::1111]",
  "2606:4700:4700::1111%eth0",
  "2606:4700:4700:::1111",
  "2606:4700:4700::1111/64",
  "12345::1",
]

describe("addresses", () => {
  it.each(privateAddresses)("are private: %s", (address) => {
    assert.isFalse(mayCall(address, guarded))
    assert.isTrue(mayCall(address, open))
  })
  it.each(specialAddresses)("are never called: %s", (address) => {
    assert.isFalse(mayCall(address, guarded))
    assert.isFalse(mayCall(address, open))
  })
  it.each(publicAddresses)("are public: %s", (address) => {
    assert.isTrue(mayCall(address, guarded))
    assert.isTrue(mayCall(address, open))
  })
  it.each(noAddresses)("are invalid: %j", (address) => {
    assert.isFalse(mayCall(address, guarded))
    assert.isFalse(mayCall(address, open))
  })

  const refusedBlocks = [
    [0x00000000, 8],
    [0x0a000000, 8],
    [0x64400000, 10],
    [0x7f000000, 8],
    [0xa9fe0000, 16],
    [0xac100000, 12],
    [0xc0000000, 24],
    [0xc0000200, 24],
    [0xc0586300, 24],
    [0xc0a80000, 16],
    [0xc6120000, 15],
    [0xc6336400, 24],
    [0xcb007100, 24],
    [0xe0000000, 4],
    [0xf0000000, 4],
  ] as const

  const octets = (address: number) => [address >>> 24, (address >>> 16) & 255, (address >>> 8) & 255, address & 255]
  const dotted = (address: number) => octets(address).join(".")
  const hex = (part: number) => `0x${part.toString(16)}`
  const octal = (part: number) => `0${part.toString(8)}`
  const notations: ReadonlyArray<(address: number) => string> = [
    dotted,
    String,
    hex,
    octal,
    (address) => `0X${address.toString(16).toUpperCase().padStart(12, "0")}`,
    (address) => octets(address).map(hex).join("."),
    (address) => octets(address).map(octal).join("."),
    (address) => `${address >>> 24}.${address & 0xffffff}`,
    (address) => `${hex(address >>> 24)}.${octal((address >>> 16) & 255)}.${address & 0xffff}`,
    (address) => `${dotted(address)}.`,
    (address) => dotted(address).replaceAll(".", "。"),
    (address) => dotted(address).replace(/\d/g, (digit) => String.fromCodePoint(0xff10 + Number(digit))),
    (address) => dotted(address).replace(/\d/g, (digit) => `%3${digit}`),
    (address) => `[::ffff:${dotted(address)}]`,
    (address) => `[0:0:0:0:0:FFFF:${(address >>> 16).toString(16)}:${(address & 0xffff).toString(16)}]`,
    (address) => `[64:ff9b::${dotted(address)}]`,
    (address) => `[2002:${(address >>> 16).toString(16)}:${(address & 0xffff).toString(16)}::1]`,
  ]
  const index = (length: number) => Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: length - 1 }))

  it.prop(
    "refuses every IPv4 address of the refused blocks, in every notation that a url can have",
    [index(refusedBlocks.length), Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 32 - 1 }))],
    ([block, low]) => {
      const [base, prefix] = refusedBlocks[block]!
      const address = (base | (low >>> prefix)) >>> 0
      for (const notation of notations) {
        const url = `http://${notation(address)}:8080/hook`
        assert.isUndefined(urlFault(url, { httpsOnly: false }), url)
        const hostname = new URL(url).hostname.replace(/^\[|\]$/g, "")
        assert.notStrictEqual(isIP(hostname), 0, url)
        assert.isFalse(mayCall(hostname, guarded), url)
        assert.isDefined(addressFault(url, guarded), url)
      }
    },
    { arbitrary: { runs: 500 } },
  )
})
