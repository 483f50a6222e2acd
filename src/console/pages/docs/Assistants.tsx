import { Code } from "../../components/Code.tsx"
import { Copyable } from "../../components/Copy.tsx"
import { Facts } from "../../components/Page.tsx"
import { Link, orgPath } from "../../navigation/router.tsx"
import type { Project } from "../projects/ProjectFrame.tsx"
import type { Docs } from "./docs.ts"

/** The name of the server in an assistant's configuration: letters, digits and hyphens. */
const nameOf = ({ name }: Project) => {
  const slug = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "")
  return /(^|-)docs$/.test(slug) ? slug : `${slug || "project"}-docs`
}

/** How coding assistants and other clients read the stored pages. */
export const Assistants = ({ docs, project }: { readonly docs: Docs; readonly project: Project }) => {
  const address = `${location.origin}/api/v0/projects/${project.projectId}/docs`
  const server = {
    type: "http",
    url: `${address}/mcp`,
    ...(docs.public ? {} : { headers: { Authorization: "Bearer svc_…" } }),
  }
  return (
    <>
      <Facts
        of={{
          "MCP server": <Copyable text={`${address}/mcp`} label="Copy the address of the MCP server" />,
          "llms.txt": <Copyable text={`${address}/llms.txt`} label="Copy the address of llms.txt" />,
        }}
      />
      <Code
        title="Configuration of an MCP client"
        text={JSON.stringify({ mcpServers: { [nameOf(project)]: server } }, null, 2)}
      />
      <p class="quiet small">
        {docs.public ? (
          "Nobody needs a key: the pages are public."
        ) : (
          <>
            Put a <Link to={orgPath(project.orgId, "/keys")}>key of the project</Link> in the place of svc_…, or let
            anyone read the pages: press Change.
          </>
        )}
        {docs.docsUrl === null && " Without an address of the site, the links are slugs."}
      </p>
    </>
  )
}
