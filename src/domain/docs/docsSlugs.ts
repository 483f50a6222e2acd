const extension = /\.(?:mdx?|markdown)$/i

/** Whether a path is that of a page. */
export const isMarkdown = (path: string) => extension.test(path)

/** Limit of the characters of a path, and so of a slug. */
const maxLength = 512

/** Nothing is written to disk, but a path that leaves its folder cannot be a slug. */
export const isForbidden = (path: string) =>
  path.length > maxLength || /^\/|^[A-Za-z]:|\p{Cc}/u.test(path) || path.split("/").includes("..")

/** `02_setup/01-intro` without the numbers that only order files. Dates and versions stay: `2026-01-31-news`, `2.0`. */
export const withoutNumbers = (path: string) =>
  path.replaceAll(/(?<=^|\/)(?!\d+[-_.]\d)\d+\s*[-_.]+\s*(?=[^-_.\s/])/g, "")

/** The path of a page without `/index`: `guide/index` is the page of the folder `guide`. */
const withoutIndex = (path: string) => path.replace(/\/index$/i, "")

/** GitHub, GitBook, mdBook, MkDocs and Docusaurus show a `README` as the index of a folder that has no other one. */
const asIndex = (path: string, paths: ReadonlySet<string>) => {
  const index = path.replace(/(?<=^|\/)readme$/i, "index")
  return paths.has(index) ? path : index
}

/** A file of an archive: its path, and the slug of its front matter. */
export interface PageFile {
  readonly path: string
  /** From the root if it begins with `/`, otherwise from the folder of the file. "" for none. */
  readonly slug: string
}

/** The slug of front matter as a path from the root; `undefined` if it cannot be one. */
const ownSlug = ({ path, slug }: PageFile) => {
  if (slug === "" || /[\\?#]|\/\/|\p{Cc}|\p{Cs}/u.test(slug)) return undefined
  const parts = slug.startsWith("/") ? [] : path.split("/").slice(0, -1)
  for (const part of slug.split("/")) {
    if (part === ".." && parts.pop() === undefined) return undefined
    if (!["", ".", ".."].includes(part)) parts.push(part)
  }
  const own = parts.join("/") || "index"
  return isForbidden(own) ? undefined : own
}

/** The paths of files without the extension, each once: `guide.md` and `guide.mdx` are `guide` and `guide-2`. */
const uniquePaths = (files: ReadonlyArray<PageFile>) => {
  const paths = new Set<string>()
  for (const { path } of files) {
    const name = path.replace(extension, "")
    let unique = name
    for (let n = 2; paths.has(unique); n++) unique = `${name}-${n}`
    paths.add(unique)
  }
  return [...paths]
}

/**
 * The slugs of the pages of an archive, each once: that of the front matter, else the path without numbers and
 * `/index`. A slug that two pages would have is that of the file with this path, or of none: the others keep more of
 * their paths.
 */
export const slugsOf = (files: ReadonlyArray<PageFile>): ReadonlyArray<string> => {
  const paths = uniquePaths(files)
  const known = new Set(paths)
  const wishes = paths.map((path, at) => {
    const own = ownSlug(files[at]!)
    const name = asIndex(path, known)
    return new Set([...(own === undefined ? [] : [own]), withoutIndex(withoutNumbers(name)), withoutIndex(name), path])
  })
  const count = new Map<string, number>()
  for (const slug of wishes.flatMap((wish) => [...wish])) count.set(slug, (count.get(slug) ?? 0) + 1)
  return wishes.map((wish, at) => [...wish].find((slug) => count.get(slug) === 1) ?? paths[at]!)
}
