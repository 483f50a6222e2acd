import { crc32, deflateRawSync } from "node:zlib"

/** A file of a zip, with the claims of a hostile one. */
export interface ZipFile {
  readonly path: string | Uint8Array
  readonly content?: string | Uint8Array
  /** Whether it is stored without compression. */
  readonly stored?: boolean
  /** The size in the headers; default: the true one. */
  readonly claimedSize?: number
  /** The checksum in the headers; default: the true one. */
  readonly claimedCrc?: number
  /** The flags of the header: 1 means encrypted. */
  readonly flags?: number
  /** The number of the compression method; default: 8, deflate. */
  readonly method?: number
  /** Written as a stream: the sizes follow the bytes, in a data descriptor. */
  readonly streamed?: boolean
  /** Whether it is a symbolic link; the content is its target. */
  readonly link?: boolean
  /** The bytes are in the file, but not in the directory: the file was removed. */
  readonly removed?: boolean
}

/** Writes a zip from its fields: APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16. */
export const zip = (files: ReadonlyArray<ZipFile>): Uint8Array => {
  const bodies: Array<Buffer> = []
  const directory: Array<Buffer> = []
  let offset = 0
  let entries = 0
  for (const file of files) {
    const { path, content = "", stored, claimedSize, claimedCrc, method, streamed, removed, link } = file
    const flags = (file.flags ?? 0x800) | (streamed ? 8 : 0)
    const name = Buffer.from(path)
    const bytes = Buffer.from(content)
    const packed = stored ? bytes : deflateRawSync(bytes)
    const fields = Buffer.alloc(26)
    fields.writeUInt16LE(20, 0)
    fields.writeUInt16LE(flags, 2)
    fields.writeUInt16LE(method ?? (stored ? 0 : 8), 4)
    fields.writeUInt32LE(0x0021_0000, 6)
    fields.writeUInt32LE(claimedCrc ?? crc32(bytes), 10)
    fields.writeUInt32LE(packed.length, 14)
    fields.writeUInt32LE(claimedSize ?? bytes.length, 18)
    fields.writeUInt16LE(name.length, 22)
    const local = Buffer.from(fields)
    if (streamed) local.fill(0, 10, 22)
    const descriptor = streamed ? Buffer.concat([Buffer.from("PK\x07\x08", "latin1"), fields.subarray(10, 22)]) : ""
    bodies.push(Buffer.from("PK\x03\x04", "latin1"), local, name, packed, Buffer.from(descriptor))
    const rest = Buffer.alloc(14)
    rest.writeUInt32LE(link ? 0o120777 * 0x1_0000 : 0, 6)
    rest.writeUInt32LE(offset, 10)
    const version = Buffer.from(`PK\x01\x02\x14${link ? "\x03" : "\x00"}`, "latin1")
    if (!removed) directory.push(version, fields, rest, name)
    if (!removed) entries++
    offset += 30 + name.length + packed.length + descriptor.length
  }
  const end = Buffer.alloc(18)
  const size = directory.reduce((sum, part) => sum + part.length, 0)
  end.writeUInt16LE(entries % 0x1_0000, 4)
  end.writeUInt16LE(entries % 0x1_0000, 6)
  end.writeUInt32LE(size, 8)
  end.writeUInt32LE(offset, 12)
  return Buffer.concat([...bodies, ...directory, Buffer.from("PK\x05\x06", "latin1"), end])
}
