/** The owner of repositories at a provider. Names compare without case. */
export interface RepositoryOwner {
  readonly provider: string
  readonly owner: string
}

const ownerForm = /^(?:([a-z0-9][a-z0-9-]{0,62}):)?([\w.-]{1,100}(?:\/[\w.-]{1,100}){0,20})$/

/** What an owner looks like, for descriptions: GitHub has no nested groups. `parseOwner` has the rule. */
export const ownerFormat =
  "^([A-Za-z0-9_.-]{1,100}|[a-z0-9][a-z0-9-]{0,62}:[A-Za-z0-9_.-]{1,100}(/[A-Za-z0-9_.-]{1,100}){0,20})$"

/** Parses `provider:owner`, or `owner` for GitHub; `undefined` when it is neither. */
export const parseOwner = (text: string): RepositoryOwner | undefined => {
  const [, provider = "github", owner] = ownerForm.exec(text) ?? []
  // GitHub has no nested groups.
  const isMalformed = owner === undefined || owner.length > 255 || (provider === "github" && owner.includes("/"))
  return isMalformed ? undefined : { provider, owner }
}

/** `provider:owner`; without the provider for GitHub. */
export const formatOwner = ({ owner, provider }: RepositoryOwner) =>
  provider === "github" ? owner : `${provider}:${owner}`

export const isSameOwner = (a: RepositoryOwner, b: RepositoryOwner) =>
  a.provider === b.provider && a.owner.toLowerCase() === b.owner.toLowerCase()

/** The owner and the name of a repository. Owners with `/` are nested groups. */
export const ownerPattern = /^[A-Za-z0-9_.-]{1,100}(?:\/[A-Za-z0-9_.-]{1,100}){0,20}$/u
export const namePattern = /^(?!\.{1,2}$)[\w.-]{1,100}$/
