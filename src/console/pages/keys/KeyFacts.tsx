import { useData } from "../../client/queries.ts"
import { Copyable } from "../../components/Copy.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { numberText } from "../../components/numbers.ts"
import { Facts } from "../../components/Page.tsx"
import { durationText, Time, useNow } from "../../components/Time.tsx"
import { Link, orgPath, useParam } from "../../navigation/router.tsx"
import { useChanges } from "../audit/useChanges.tsx"
import { type Key, keyStateOf, rateLimitText } from "./keyState.ts"

const none = <span class="quiet">none</span>

const Credits = ({ credits, refill }: Key) => {
  if (credits === null) return <span class="quiet">no limit</span>
  return (
    <span class="stack tight">
      <span>
        {numberText(credits)} left
        {refill !== null && `, refilled to ${numberText(refill.amount)} each ${refill.every} at 00:00 UTC`}
      </span>
      {refill !== null && (
        <progress
          class={`bar ${credits === 0 ? "bad" : credits < refill.amount * 0.1 ? "warn" : ""}`}
          aria-label="Credits left"
          value={Math.min(credits, refill.amount)}
          max={Math.max(1, refill.amount)}
        />
      )}
    </span>
  )
}

/** How long the key is still valid, second by second. */
const Countdown = ({ to }: { readonly to: string }) => {
  const left = Date.parse(to) - useNow(1_000)
  return <strong class="number">This key ends in {durationText(Math.max(0, Math.floor(left / 1_000) * 1_000))}.</strong>
}

/** What a reader has to know of a key first. */
export const KeyNotices = ({ of: key }: { readonly of: Key }) => {
  const state = keyStateOf(key, useNow(1_000))
  if (state === "leaked") {
    return (
      <Notice tone="bad">
        <strong>
          This key was found in public <Time at={key.leakedAt} isRelative />. It is refused for good.
        </strong>
        <span>Create another key for whoever uses it, and look below for uses that were not theirs.</span>
      </Notice>
    )
  }
  if (state === "expiring") {
    return (
      <Notice tone="warn" icon="clock">
        <Countdown to={key.expiresAt!} />
        <span>
          At <Time at={key.expiresAt} />. Rotated keys end after their overlap: give everyone the new key before that.
        </span>
      </Notice>
    )
  }
  if (state === "expired") {
    return (
      <Notice tone="bad">
        <strong>
          This key has ended <Time at={key.expiresAt} isRelative />. It is refused.
        </strong>
      </Notice>
    )
  }
  return state === "disabled" ? (
    <Notice tone="calm" icon="pause">
      <strong>This key is disabled. It is refused until somebody enables it.</strong>
    </Notice>
  ) : null
}

/** The project of a key, by its name once that is known. */
const ProjectLink = ({ projectId }: { readonly projectId: string }) => {
  const orgId = useParam("orgId")
  const { data } = useData("projects.get", { projectId })
  return <Link to={orgPath(orgId, `/projects/${projectId}`)}>{data?.name ?? projectId}</Link>
}

export const KeyFacts = ({ of: key }: { readonly of: Key }) => {
  const orgId = useParam("orgId")
  const changes = useChanges(key.id)
  return (
    <Facts
      of={{
        Id: <Copyable text={key.id} label="Copy the id" />,
        For: key.projectId === null ? "the whole org" : <ProjectLink projectId={key.projectId} />,
        ...(key.replacedBy !== null && {
          "Replaced by": <Link to={orgPath(orgId, `/keys/${key.replacedBy}`)}>its replacement</Link>,
        }),
        Created: <Time at={key.createdAt} />,
        "Last used": <Time at={key.lastUsedAt} isRelative none="never" />,
        "Ends at": <Time at={key.expiresAt} none="never" />,
        "Rate limit": rateLimitText(key) ?? <span class="quiet">no limit</span>,
        Credits: <Credits {...key} />,
        Permissions:
          key.permissions.length === 0 ? (
            none
          ) : (
            <ul class="row">
              {key.permissions.map((permission) => (
                <li key={permission}>
                  <code>{permission}</code>
                </li>
              ))}
            </ul>
          ),
        "External id": key.externalId ?? none,
        "Audit log": changes,
        Metadata: key.metadata === null ? none : <pre>{JSON.stringify(key.metadata, undefined, 2)}</pre>,
      }}
    />
  )
}
