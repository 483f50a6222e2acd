import { writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { sections, type Variable } from "../src/boot/variables.ts"

const at = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url))

type Section = readonly [title: string, variables: ReadonlyArray<readonly [name: string, variable: Variable]>]
const all: ReadonlyArray<Section> = Object.entries(sections).map(([title, variables]) => [
  title,
  Object.entries(variables),
])

const table = ([title, variables]: Section) => `## ${title}

| variable | default | meaning | example |
| --- | --- | --- | --- |
${variables
  .map(([name, { default: value = "", example, text }]) => `| \`${name}\` | ${value} | ${text} | \`${example}\` |`)
  .join("\n")}
`

/** The page of all variables. */
export const page = () => `# Configuration

Gatehouse reads environment variables, and needs none to start on your own machine. In production set at least \`ADMIN_TOKEN\`, \`BASE_URL\`,
\`DATABASE_URL\` and \`ENCRYPTION_KEY\` ([deploy](deploying.md)). [deploy/example.env](../deploy/example.env) has every variable, commented
out: copy it, and take the \`#\` away from those that you set.

An empty variable counts as unset. With an invalid value, Gatehouse does not start: it prints one line with the variable, the fault and an
example. It warns about a variable that it does not read and that is written almost like one of these. \`gatehouse doctor\` checks a setup. The variables of the other commands are on the page of the [command line](cli.md).

\`npm run configuration\` makes this page and the file from \`src/boot/variables.ts\`.

${all.map(table).join("\n")}`

/** The text of a table without its links and code marks. */
const plain = (text: string) => text.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll("`", "")

const lines = (variables: Section[1]) =>
  variables
    .map(([name, { default: value, example, text }]) => {
      const [, command] = /^\$\((.*)\)$/.exec(example) ?? []
      const explained = `# ${plain(text)}${value === undefined ? "" : ` (default: ${plain(value)})`}`
      return command === undefined
        ? `${explained}\n#${name}=${example}`
        : `${explained}; make one with ${command}\n#${name}=`
    })
    .join("\n")

/** The file of all variables, commented out. */
export const envFile = () => `# Every variable of Gatehouse, commented out: docs/configuration.md explains them.
# For a shell (set -a; . ./gatehouse.env), systemd (EnvironmentFile=) and Docker Compose (env_file:). Keep it secret (chmod 600).
# docker run --env-file keeps quotation marks: leave them out there.
${all.map(([title, variables]) => `\n# ${title}\n\n${lines(variables)}\n`).join("")}`

export const files = { [at("docs/configuration.md")]: page, [at("deploy/example.env")]: envFile }

if (import.meta.main) for (const [path, text] of Object.entries(files)) writeFileSync(path, text())
