import { crc32, deflateRawSync } from "node:zlib"

/** A file of a zip, with what a hostile one may say of it. */
export interface ZipFile {
  readonly path: string | Uint8Array
  readonly content?: string | Uint8Array
  /** Stored as it is, and not compressed. */
  readonly stored?: boolean
  /** The size that the headers name; default: the true one. */
  readonly claimedSize?: number
  /** The checksum that the headers name; default: the true one. */
  readonly claimedCrc?: number
  /** Flags of the header: 1 is encrypted. */
  readonly flags?: number
  /** The number of the packing; default: 8, deflate. */
  readonly method?: number
}

/** Writes a zip by hand: APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16. */
export const zip = (files: ReadonlyArray<ZipFile>): Uint8Array => {
  const bodies: Array<Buffer> = []
  const directory: Array<Buffer> = []
  let offset = 0
  for (const { path, content = "", stored, claimedSize, claimedCrc, flags = 0x800, method } of files) {
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
    bodies.push(Buffer.from("PK\x03\x04", "latin1"), fields, name, packed)
    const rest = Buffer.alloc(14)
    rest.writeUInt32LE(offset, 10)
    directory.push(Buffer.from("PK\x01\x02\x14\x00", "latin1"), fields, rest, name)
    offset += 30 + name.length + packed.length
  }
  const end = Buffer.alloc(18)
  const size = directory.reduce((sum, part) => sum + part.length, 0)
  end.writeUInt16LE(files.length, 4)
  end.writeUInt16LE(files.length, 6)
  end.writeUInt32LE(size, 8)
  end.writeUInt32LE(offset, 12)
  return Buffer.concat([...bodies, ...directory, Buffer.from("PK\x05\x06", "latin1"), end])
}
