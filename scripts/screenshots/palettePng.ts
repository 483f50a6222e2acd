import { deflateSync, inflateSync } from "node:zlib"

const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
const maxColours = 256

const crcTable = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n
  for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1
  return c >>> 0
})
const crcOf = (bytes: Buffer) => {
  let crc = 0xffffffff
  for (const byte of bytes) crc = crcTable[(crc ^ byte) & 0xff]! ^ (crc >>> 8)
  return (crc ^ 0xffffffff) >>> 0
}

const chunk = (type: string, data: Buffer) => {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data])
  const frame = Buffer.alloc(8)
  frame.writeUInt32BE(data.length, 0)
  frame.writeUInt32BE(crcOf(body), 4)
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)])
}

const paeth = (a: number, b: number, c: number) => {
  const [pa, pb, pc] = [Math.abs(b - c), Math.abs(a - c), Math.abs(a + b - 2 * c)]
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c
}

/** The pixels of a PNG of 8 bits without interlace, as Chromium writes them: RGB or RGBA. */
const decode = (png: Buffer) => {
  const parts: Array<Buffer> = []
  for (let at = 8; at < png.length; at += png.readUInt32BE(at) + 12) {
    if (png.toString("latin1", at + 4, at + 8) === "IDAT")
      parts.push(png.subarray(at + 8, at + 8 + png.readUInt32BE(at)))
  }
  const [width, height] = [png.readUInt32BE(16), png.readUInt32BE(20)]
  const size = png[25] === 6 ? 4 : 3
  const raw = inflateSync(Buffer.concat(parts))
  const stride = width * size
  const pixels = Buffer.alloc(stride * height)
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (stride + 1)]!
    for (let x = 0; x < stride; x++) {
      const at = y * stride + x
      const a = x < size ? 0 : pixels[at - size]!
      const b = y === 0 ? 0 : pixels[at - stride]!
      const c = x < size || y === 0 ? 0 : pixels[at - stride - size]!
      const predicted = [0, a, b, (a + b) >> 1, paeth(a, b, c)][filter]!
      pixels[at] = (raw[y * (stride + 1) + 1 + x]! + predicted) & 0xff
    }
  }
  return { width, height, size, pixels }
}

/**
 * Colours that are used most; the others become the nearest of them. Pictures of pages have few, besides soft edges.
 */
const paletteOf = (counts: ReadonlyMap<number, number>) => {
  const colours = [...counts].toSorted(([, a], [, b]) => b - a).map(([colour]) => colour)
  const palette = colours.slice(0, maxColours)
  const index = new Map(palette.map((colour, i) => [colour, i]))
  const distance = (a: number, b: number) =>
    ((a >> 16) - (b >> 16)) ** 2 + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2
  for (const colour of colours.slice(maxColours)) {
    let nearest = 0
    for (let i = 1; i < palette.length; i++) {
      if (distance(colour, palette[i]!) < distance(colour, palette[nearest]!)) nearest = i
    }
    index.set(colour, nearest)
  }
  return { palette, index }
}

/** The same picture with a palette of 256 colours: a third of the bytes. */
export const toPalette = (png: Buffer): Buffer => {
  const { height, pixels, size, width } = decode(png)
  const colourAt = (i: number) => (pixels[i * size]! << 16) | (pixels[i * size + 1]! << 8) | pixels[i * size + 2]!
  const counts = new Map<number, number>()
  for (let i = 0; i < width * height; i++) counts.set(colourAt(i), (counts.get(colourAt(i)) ?? 0) + 1)
  const { index, palette } = paletteOf(counts)
  const rows = Buffer.alloc((width + 1) * height)
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) rows[y * (width + 1) + 1 + x] = index.get(colourAt(y * width + x))!
  }
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([8, 3, 0, 0, 0], 8)
  const colours = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]))
  const data = deflateSync(rows, { level: 9, memLevel: 9 })
  return Buffer.concat([
    signature,
    chunk("IHDR", header),
    chunk("PLTE", colours),
    chunk("IDAT", data),
    chunk("IEND", Buffer.alloc(0)),
  ])
}
