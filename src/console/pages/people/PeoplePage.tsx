import { useData } from "../../client/queries.ts"
import { Empty, Page } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { Link, orgPath } from "../../navigation/router.tsx"

/** What each role may do. */
const roles = [
  ["administrator", "every org", "everything"],
  ["operator", "every org", "reads; resends, recovers and retries what failed"],
  ["viewer", "every org", "reads"],
  ["owner", "one org", "everything but what the administrator alone may"],
  [
    "developer",
    "one org",
    "reads; changes endpoints, events, jobs, schedules, projects and documentation, but no keys and no roles of keys",
  ],
  ["viewer", "one org", "reads"],
] as const

/** Who may sign in by which group, and what the roles may do. */
export default () => {
  const { data, error, refetch } = useData("sessions.people", {}, { isLive: false })
  return (
    <Page
      title="People"
      intro={
        data?.issuer == null
          ? "Who signs in, and what they may do."
          : `Who signs in with ${data.issuer}, and what they may do. Of several roles the strongest counts.`
      }
    >
      <ListCard
        title="Who may sign in"
        rows={data?.rules}
        error={error}
        refetch={refetch}
        rowKey={({ claim, orgId, role, value }) => JSON.stringify([claim, value, role, orgId])}
        empty={
          <Empty icon="people" title="Tokens and keys alone">
            <p>
              With CONSOLE_OIDC_ISSUER and CONSOLE_OIDC_ROLES, people sign in with your company’s identity, by their
              groups.
            </p>
          </Empty>
        }
        columns={[
          { title: "Group", cell: ({ value }) => <span class="anywhere">{value}</span> },
          { title: "Claim", cell: ({ claim }) => <span class="anywhere">{claim}</span> },
          { title: "Role", align: "fit", cell: ({ role }) => role },
          {
            title: "Org",
            cell: ({ orgId }) => (orgId === null ? "every org" : <Link to={orgPath(orgId)}>{orgId}</Link>),
          },
        ]}
      />
      <ListCard
        title="What a role may do"
        caption="Roles"
        rows={roles}
        rowKey={([role, where]) => `${role} ${where}`}
        empty={null}
        columns={[
          { title: "Role", align: "fit", cell: ([role]) => role },
          { title: "In", align: "fit", cell: ([, where]) => where },
          { title: "May", align: "words", cell: ([, , what]) => what },
        ]}
      />
    </Page>
  )
}
